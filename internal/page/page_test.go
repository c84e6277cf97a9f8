package page_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/page"
)

func get(t *testing.T, p *page.Page, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}

func TestPageAndItsFiles(t *testing.T) {
	t.Parallel()
	p, err := page.New(page.Options{TemporalUI: "http://127.0.0.1:8233", Version: `1"><script>`})
	require.NoError(t, err)
	index := get(t, p, "/")
	require.Equal(t, "text/html; charset=utf-8", index.Header.Get("Content-Type"))
	policy := index.Header.Get("Content-Security-Policy")
	require.Contains(t, policy, "frame-ancestors 'none'")
	require.NotContains(t, policy, "unsafe")
	body := text(t, index)
	require.NotContains(t, body, `1"><script>`)
	require.Contains(t, body, `content="http://127.0.0.1:8233"`)
	digests := func(element string) string {
		var all []string
		for _, found := range regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(body,
			-1) {
			sum := sha256.Sum256([]byte(found[1]))
			all = append(all, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		}
		return strings.Join(all, " ")
	}
	require.Contains(t, policy,
		"default-src 'none'; script-src "+digests("script")+"; style-src "+digests("style")+"; connect-src 'self'")
	require.Less(t, len(text(t, get(t, p, "/", "Accept-Encoding", "gzip"))), 40<<10, "bytes on the wire")

	used := regexp.MustCompile(`"(/page/[^"]+)"`).FindAllStringSubmatch(body, -1)
	require.Len(t, used, 1, "the icon")
	for _, match := range used {
		r := get(t, p, match[1])
		require.Equal(t, http.StatusOK, r.StatusCode, match[1])
		require.Contains(t, r.Header.Get("Cache-Control"), "immutable")
	}

	again := get(t, p, "/", "If-None-Match", index.Header.Get("ETag"))
	require.Equal(t, http.StatusNotModified, again.StatusCode)
	require.Empty(t, text(t, again))
}

func TestZipped(t *testing.T) {
	t.Parallel()
	p, err := page.New(page.Options{})
	require.NoError(t, err)
	plain, zipped := get(t, p, "/"), get(t, p, "/", "Accept-Encoding", "br, gzip;q=0.8")
	require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"))
	require.NotEqual(t, plain.Header.Get("ETag"), zipped.Header.Get("ETag"))
	r, err := gzip.NewReader(zipped.Body)
	require.NoError(t, err)
	unzipped, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, text(t, plain), string(unzipped))
	require.Empty(t, get(t, p, "/", "Accept-Encoding", "gzip;q=0").Header.Get("Content-Encoding"))
}

func TestOtherPaths(t *testing.T) {
	t.Parallel()
	p, err := page.New(page.Options{})
	require.NoError(t, err)
	old := get(t, p, "/page/0123456789ab/icon.svg")
	require.Equal(t, http.StatusOK, old.StatusCode)
	require.Equal(t, "no-store", old.Header.Get("Cache-Control"))
	for _, path := range []string{"/page/x/index.html", "/page/icon.svg", "/page/x/y/icon.svg", "/page/x/none.js",
		"/page/"} {
		require.Equal(t, http.StatusNotFound, get(t, p, path).StatusCode, path)
	}
}

// TestNothingBecomesMarkup holds the scripts to what the policy promises: text is only ever set as text.
func TestNothingBecomesMarkup(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment|setAttribute\("style"|\.style\b|https?://(?:[a-z])`)
	entries, err := os.ReadDir("static")
	require.NoError(t, err)
	for _, entry := range entries {
		data, err := os.ReadFile("static/" + entry.Name())
		require.NoError(t, err)
		if !strings.HasSuffix(entry.Name(), ".js") {
			continue
		}
		for _, line := range strings.Split(string(data), "\n") {
			if !strings.Contains(line, "http://www.w3.org/2000/svg") {
				require.NotRegexp(t, forbidden, line, entry.Name())
			}
		}
	}
}
