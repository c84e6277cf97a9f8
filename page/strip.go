package page

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"time"
)

// Strip is the path of the fleet in one line, for a frame in the Temporal Web UI. That frame has no origin of its own,
// so no script in it could read the API; nor do links work there, as what they open has none either. So it is made
// here, has neither, and renews itself.
const Strip = "/page/strip"

// stripSeconds is how often the strip renews itself.
const stripSeconds = 5

// Glance is the fleet in one line.
type Glance struct {
	// Critical and Warnings count problems; First is the most urgent in words.
	Critical, Warnings int
	First              string
	// Online agents run Running tasks of Slots; Open tasks have not ended.
	Online, Running, Slots int
	Open                   int64
	At                     time.Time
}

// stripView is what the template shows.
type stripView struct {
	Base, Tone, Sign, Verdict, First, Numbers, Address string
	Seconds                                            int
	At                                                 time.Time
}

func (g *Glance) view() stripView {
	v := stripView{Tone: "ok", Sign: "●", Verdict: "Nothing is wrong", First: g.First, At: g.At.UTC(),
		Numbers: fmt.Sprintf("%d agents online · %d of %d slots busy · %d open tasks", g.Online, g.Running, g.Slots,
			g.Open)}
	switch {
	case g.Critical > 0:
		v.Tone, v.Sign, v.Verdict = "bad", "✕", plural(g.Critical, "critical problem")
		if g.Warnings > 0 {
			v.Verdict += " and " + plural(g.Warnings, "warning")
		}
	case g.Warnings > 0:
		v.Tone, v.Sign, v.Verdict = "warn", "▲", plural(g.Warnings, "warning")
	}
	return v
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// StripHandler serves the strip; look reads the fleet.
func (p *Page) StripHandler(look func(context.Context) (Glance, error)) (http.Handler, error) {
	text, err := files.ReadFile("static/strip.html")
	if err != nil {
		return nil, fmt.Errorf("read the strip: %w", err)
	}
	t, err := template.New("strip").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("parse the strip: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		glance, err := look(r.Context())
		view := glance.view()
		if err != nil {
			view = stripView{Tone: "bad", Sign: "✕", Verdict: "The control plane cannot tell how the fleet stands",
				At: time.Now().UTC()}
		}
		view.Base, view.Seconds, view.Address = p.base, stripSeconds, "http://"+r.Host
		var body bytes.Buffer
		if err := t.Execute(&body, view); err != nil {
			http.Error(w, "the strip cannot be made", http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[".html"])
		h.Set("Content-Security-Policy", p.policy)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		_, _ = w.Write(body.Bytes()) // a browser that goes away needs no answer
	}), nil
}
