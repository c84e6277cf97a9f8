// Package page is the fleet page: hand-written HTML, CSS and ES modules that are part of the binary and read the REST
// API. Nothing is loaded from elsewhere. Of the modules in static, `make page` makes the two scripts in bundle.
package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"

	"mainstay.dev/mainstay/internal/httpapi/static"
)

// The page, and what stands in it, so that it comes with one request: the style; the script that runs before there is
// anything to see; the one that does everything else. Beside it there is an icon.
var (
	//go:embed static/index.html
	index string
	//go:embed static/icon.svg
	icon []byte
	//go:embed static/style.css
	style string
	//go:embed bundle/early.js
	early string
	//go:embed bundle/app.js
	app string
)

// Paths that the page is served at. What is below Assets has its digest in its name.
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
}

// Page serves the fleet page.
type Page struct {
	base        string // /page/<digest>/
	index, icon *static.Text
}

// iconName is the icon's name below Assets.
const iconName = "icon.svg"

// New prepares the page.
func New(o Options) (*Page, error) {
	o.Namespace = cmp.Or(o.Namespace, "default")
	image, err := static.New("image/svg+xml", icon)
	if err != nil {
		return nil, err
	}
	p := &Page{base: Assets + image.Digest + "/", icon: image}
	t, err := template.New("index").Parse(index)
	if err != nil {
		return nil, fmt.Errorf("parse the page: %w", err)
	}
	var page bytes.Buffer
	if err := t.Execute(&page, struct {
		Options
		Base  string
		Style template.CSS
		Early template.JS
		App   template.JS
	}{o, p.base, template.CSS(style), template.JS(early), template.JS(app)}); err != nil {
		return nil, fmt.Errorf("make the page: %w", err)
	}
	p.index, err = static.New("text/html; charset=utf-8", page.Bytes())
	return p, err
}

// policy lets the page run the scripts that stand in it, call its own API, and nothing else; no text can become markup
// or a script.
var policy = "default-src 'none'; script-src " + digest(early) + " " + digest(app) + "; style-src " + digest(style) +
	"; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'none'"

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
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-cache")
		p.index.ServeHTTP(w, r)
		return
	}
	// Whatever its version, a page asks for the icon two levels below the root.
	if below := strings.TrimPrefix(r.URL.Path, Assets); path.Base(below) != iconName || strings.Count(below, "/") != 1 {
		http.NotFound(w, r)
		return
	}
	// A page of another version of this program may ask for its own icon: it gets ours, and must not keep it.
	if h.Set("Cache-Control", "no-store"); strings.HasPrefix(r.URL.Path, p.base) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	p.icon.ServeHTTP(w, r)
}
