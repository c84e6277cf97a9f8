package controlplane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/devserver"
)

func TestGuardBrowsers(t *testing.T) {
	t.Parallel()
	handler := GuardBrowsers(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}), LocalHosts)
	anywhere := GuardBrowsers(handler, nil)
	for name, c := range map[string]struct {
		method, host, origin string
		status               int
		proxied              string
	}{
		"a program":        {"POST", "127.0.0.1:8080", "", 204, ""},
		"by name":          {"POST", "localhost:8080", "", 204, ""},
		"IPv6":             {"GET", "[::1]:8080", "", 204, ""},
		"own page":         {"POST", "127.0.0.1:8080", "http://127.0.0.1:8080", 204, ""},
		"foreign page":     {"POST", "127.0.0.1:8080", "http://evil.example", 403, ""},
		"opaque page":      {"POST", "127.0.0.1:8080", "null", 403, ""},
		"rebound name":     {"GET", "evil.example:8080", "", 403, ""},
		"rebound own page": {"POST", "evil.example:8080", "http://evil.example:8080", 403, ""},
		"by a proxy":       {"GET", "127.0.0.1:8080", "", 403, "X-Forwarded-For"},
		"by another proxy": {"GET", "127.0.0.1:8080", "", 403, "Via"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/api/v1/agents/tasks", nil)
			r.Host = c.host
			if c.proxied != "" {
				r.Header.Set(c.proxied, "192.0.2.1")
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			for _, h := range []http.Handler{handler, anywhere} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				require.Equal(t, c.status, w.Code)
				if c.status == 403 {
					require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
					require.Contains(t, w.Body.String(), `"code":"cross_origin"`)
				}
			}
		})
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for text, wants := range map[string]roles{"hub,gateway,worker": AllRoles, "hub": {hub: true},
		"gateway,worker": {gateway: true, worker: true}} {
		got, err := parseRoles(strings.Split(text, ","))
		require.NoError(t, err)
		require.Equal(t, wants, got)
		require.Equal(t, text, got.String())
	}
}

const goodSecret = "0123456789abcdef0123456789abcdef"

func TestTokenKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(goodSecret+"\n"), 0o600))
	env := func(value string) func(string) string { return func(string) string { return value } }
	log := zap.NewNop()
	key, err := LoadTokenKey(file, env("x"), log)
	require.NoError(t, err)
	require.Equal(t, goodSecret, string(key))
	key, err = LoadTokenKey("", env(goodSecret), log)
	require.NoError(t, err)
	require.Len(t, key, 32)
	for name, c := range map[string]struct{ file, env, wants string }{
		"none":     {"", "", "openssl rand -hex 32"},
		"short":    {"", "hunter", "has 6 characters, at least 32"},
		"guessed":  {"", strings.Repeat("hunter", 6), "only 6 different characters"},
		"no file":  {"/no/such", "", "hub.token_key_file"},
		"a folder": {t.TempDir(), "", "hub.token_key_file"},
	} {
		_, err := LoadTokenKey(c.file, env(c.env), log)
		require.ErrorContains(t, err, c.wants, name)
		require.NotContains(t, err.Error(), "hunter", name)
	}
}

// TestFirstTokens refuses tokens that others could guess or change, and warns of files that all can read.
func TestFirstTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token string
		mode  os.FileMode
		wants string // "": it is taken
		warns int
		owner int // 0: this user
	}{
		"its owner's":            {goodSecret, 0o600, "", 0, 0},
		"its group's too":        {goodSecret, 0o640, "", 0, 0},
		"another user's":         {goodSecret, 0o600, "belongs to another user", 0, 65534},
		"for all to read":        {goodSecret, 0o644, "", 1, 0},
		"for all to write":       {goodSecret, 0o666, "others can change", 0, 0},
		"for a group to write":   {goodSecret, 0o660, "others can change", 0, 0},
		"one letter":             {strings.Repeat("a", 32), 0o600, "only 1 different characters", 0, 0},
		"a word again and again": {strings.Repeat("admin", 8), 0o600, "only 5 different characters", 0, 0},
		"short":                  {"0123456789abcdef", 0o600, "at least 32", 0, 0},
		"two words":              {goodSecret + " " + goodSecret, 0o600, "one word", 0, 0},
		"nothing":                {"\n", 0o600, "is empty", 0, 0},
	} {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte(c.token), 0o600))
		require.NoError(t, os.Chmod(file, c.mode))
		if c.owner != 0 {
			if os.Geteuid() != 0 {
				continue // only root can give a file away
			}
			require.NoError(t, os.Chown(file, c.owner, c.owner))
		}
		core, logged := observer.New(zap.WarnLevel)
		got, err := ReadFirstTokens(config.Security{AdminTokenFile: file}, func(string) string { return "" }, zap.New(core))
		require.Equal(t, c.warns, logged.Len(), name)
		if c.wants == "" {
			require.NoError(t, err, name)
			require.Equal(t, FirstTokens{Admin: c.token}, got, name)
			continue
		}
		require.ErrorContains(t, err, c.wants, name)
		require.NotContains(t, err.Error(), strings.TrimSpace(c.token)+".", name)
	}
}

func TestCompareAttributes(t *testing.T) {
	t.Parallel()
	wanted := contract.SearchAttributes()
	missing, err := compareAttributes(wanted,
		map[string]enumspb.IndexedValueType{"Other": enumspb.INDEXED_VALUE_TYPE_INT})
	require.NoError(t, err)
	require.Equal(t, wanted, missing)
	missing, err = compareAttributes(wanted, wanted)
	require.NoError(t, err)
	require.Empty(t, missing)
	_, err = compareAttributes(wanted,
		map[string]enumspb.IndexedValueType{"MainstayStatus": enumspb.INDEXED_VALUE_TYPE_TEXT})
	require.ErrorContains(t, err, "MainstayStatus of the namespace has type Text, and Mainstay needs it as Keyword")
	require.ErrorContains(t,
		missingAttributes("ns",
			map[string]enumspb.IndexedValueType{"MainstayLabels": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST},
			os.ErrPermission),
		"temporal operator search-attribute create --namespace ns --name MainstayLabels --type KeywordList")
}

func TestSearchAttributesOnATemporalWithoutThem(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := devserver.Start(ctx, devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	options := client.Options{HostPort: server.Address(), Namespace: "bare", Logger: ForSDK(zap.NewNop())}

	_, err = Connect(ctx, options)
	require.ErrorContains(t, err, `has no namespace "bare"`)
	require.ErrorContains(t, err, "temporal operator namespace create --namespace bare")

	inDefault := options
	inDefault.Namespace = server.Namespace()
	c, err := Connect(ctx, inDefault)
	require.NoError(t, err)
	require.NoError(t, EnsureSearchAttributes(ctx, c, inDefault.Namespace, zap.NewNop()), "it has them all")
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	c.Close()

	require.Eventually(t, func() bool { c, err = Connect(ctx, options); return err == nil }, 30*time.Second,
		100*time.Millisecond)
	defer c.Close()
	require.Eventually(t, func() bool { // all parts of Temporal know the new namespace
		err = probeEach(ctx, c, "bare", contract.SearchAttributes())
		return err != nil && strings.Contains(err.Error(), "--name MainstayCluster --type Keyword")
	}, 30*time.Second, 100*time.Millisecond)
	// Another part of the installation has just added them: they are listed, and Temporal does not take them yet.
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: "bare",
		SearchAttributes: contract.SearchAttributes()})
	require.NoError(t, err)
	require.NoError(t, EnsureSearchAttributes(ctx, c, "bare", zap.NewNop()))
	require.NoError(t, probeEach(ctx, c, "bare", contract.SearchAttributes()))
	require.NoError(t, EnsureSearchAttributes(ctx, c, "bare", zap.NewNop()))
}

func TestUnreachableTemporal(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1"
	_, err := Connect(t.Context(), client.Options{HostPort: address, Namespace: "default", Logger: ForSDK(zap.NewNop())})
	require.Equal(t, app.ExitUnreachable, app.ExitCode(err))
	require.ErrorContains(t, err, "cannot reach Temporal at "+address+" (namespace default)")
	require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
}
