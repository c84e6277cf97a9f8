package controlplane

import (
	"context"
	"net/http"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/page"
)

// mountPage serves the fleet page beside the API.
func mountPage(api *httpapi.Server, g *gateway.Gateway, version string, o page.Options) error {
	o.Version = version
	p, err := page.New(o)
	if err != nil {
		return err
	}
	strip, err := p.StripHandler(func(ctx context.Context) (page.Glance, error) { return glance(ctx, g) })
	if err != nil {
		return err
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		api.Handle(access.Open, method, page.Path, p)
		api.Handle(access.Open, method, page.Assets+"{version}/{file}", p)
	}
	api.Handle(access.View, http.MethodGet, page.Strip, strip)
	return nil
}

// glance is the fleet in one line.
func glance(ctx context.Context, g *gateway.Gateway) (page.Glance, error) {
	o, err := g.Overview(ctx)
	if err != nil {
		return page.Glance{}, err
	}
	line := page.Glance{At: o.At, Online: o.Agents.Online, Running: o.Agents.Running, Slots: o.Agents.Slots,
		Open: o.Tasks.Open}
	for i := range o.Problems {
		switch o.Problems[i].Severity {
		case diagnosis.SeverityCritical:
			line.Critical++
		case diagnosis.SeverityWarning:
			line.Warnings++
		case diagnosis.SeverityNotice:
			continue
		}
		if line.First == "" {
			line.First = o.Problems[i].What
		}
	}
	return line, nil
}
