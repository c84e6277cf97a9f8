// Package page is the fleet page: hand-written HTML, CSS and ES modules that are part of the binary and read the REST
// API. Nothing is loaded from elsewhere. Of the modules in static, `make page` makes the two scripts in bundle.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static/*.html static/*.css static/*.svg
var files embed.FS

// What stands in the page, so that it comes with one request: the style; the script that runs before there is anything
// to see; the one that does everything else.
var (
	//go:embed static/style.css
	style string
	//go:embed bundle/early.js
	early string
	//go:embed bundle/app.js
	app string
)

// Paths that the page is served at. What is below Assets has a digest of all files in its name.
const (
	Path   = "/"
	Assets = "/page/"
)

// Options are what the page shows beside the API's answers.
type Options struct {
	// TemporalUI is the address of the Temporal Web UI, to link to; empty: there are no links.
	TemporalUI string
	// Namespace is the one of Temporal. Default "default".
	Namespace string
	// Version is shown.
	Version string
	// Framers are origins whose pages may show this one in a frame, beside its own.
	Framers []string
}

// Page serves the fleet page.
type Page struct {
	base   string // /page/<digest>/
	policy string
	index  file
	assets map[string]file
}

// file is one file as it is sent.
type file struct {
	kind       string
	plain, zip []byte
	etag       string
}

// types are the media types of what is served, by extension. A file of another kind is a mistake.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8",
}

// New prepares the page.
func New(o Options) (*Page, error) {
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	p := &Page{assets: map[string]file{}}
	sum, index := sha256.New(), []byte(nil)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		switch name = path.Base(name); name {
		case "index.html":
			index = data
			return nil
		case "strip.html":
			return nil
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
		p.assets[name], err = newFile(name, data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the page's files: %w", err)
	}
	p.base = Assets + hex.EncodeToString(sum.Sum(nil))[:12] + "/"
	p.policy = policy(o.Framers)
	return p, p.makeIndex(index, o)
}

func (p *Page) makeIndex(text []byte, o Options) error {
	t, err := template.New("index").Parse(string(text))
	if err != nil {
		return fmt.Errorf("parse the page: %w", err)
	}
	var page bytes.Buffer
	if err := t.Execute(&page, struct {
		Options
		Base  string
		Style template.CSS
		Early template.JS
		App   template.JS
	}{o, p.base, template.CSS(style), template.JS(early), template.JS(app)}); err != nil {
		return fmt.Errorf("make the page: %w", err)
	}
	p.index, err = newFile("index.html", page.Bytes())
	return err
}

func newFile(name string, data []byte) (file, error) {
	kind, known := types[path.Ext(name)]
	if !known {
		return file{}, fmt.Errorf("%s: no media type is known for it", name)
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(data); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	sum := sha256.Sum256(data)
	return file{kind: kind, plain: data, zip: zipped.Bytes(), etag: hex.EncodeToString(sum[:8])}, nil
}

// policy lets the page run the scripts that stand in it, call its own API, and nothing else; no text can become markup
// or a script.
func policy(framers []string) string {
	return "default-src 'none'; script-src " + digest(early) + " " + digest(app) +
		"; style-src 'self' " + digest(style) +
		"; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors " + strings.Join(append(
		[]string{"'self'"}, framers...), " ")
}

// digest is how a policy names what stands in the page.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP serves the page at Path and its files below Assets.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	if r.URL.Path == Path {
		h.Set("Content-Security-Policy", p.policy)
		h.Set("Cache-Control", "no-cache")
		p.index.serve(w, r)
		return
	}
	name := path.Base(r.URL.Path)
	f, known := p.assets[name]
	if !known || strings.Count(strings.TrimPrefix(r.URL.Path, Assets), "/") != 1 {
		http.NotFound(w, r)
		return
	}
	// A page of another version of this program may ask for its own files: it gets ours, and must not keep them.
	if h.Set("Cache-Control", "no-store"); strings.HasPrefix(r.URL.Path, p.base) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	// They are no secret, and the strip's frame has no origin that could be ours.
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	f.serve(w, r)
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	body, etag := f.plain, `"`+f.etag+`"`
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		body, etag = f.zip, `"`+f.etag+`-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	for _, known := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == etag || known == "*" {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a browser that goes away needs no answer
	}
}

func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.TrimSpace(quality)
			return q != "q=0" && q != "q=0.0"
		}
	}
	return false
}
