package devserver

import (
	"fmt"
	"io/fs"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiapi "github.com/temporalio/ui-server/v2/server/api"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
	"google.golang.org/grpc/metadata"
)

// UI makes the Web UI. It asks nobody who they are and serves any Host, so the caller must put a guard before it. This
// is what the UI's own server does but for its listener, which would let everybody in.
func (s *Server) UI() (http.Handler, error) {
	settings, err := uiconfig.NewConfigProviderWithRefresh(&uiconfig.Config{
		TemporalGRPCAddress: s.address,
		EnableUI:            true,
		DefaultNamespace:    s.namespace,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		DisableNewsFetch:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("configure the Web UI: %w", err)
	}
	files, err := ui.Assets()
	if err != nil {
		return nil, fmt.Errorf("read the Web UI's files: %w", err)
	}
	if files, err = fs.Sub(files, "local"); err != nil {
		return nil, fmt.Errorf("read the Web UI's files: %w", err)
	}
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(false), middleware.CSRFWithConfig(csrf.MiddlewareConfig(settings, false)))
	forwarded := []uiapi.Middleware{headers.WithForwardHeaders([]string{"Caller-Type"})}
	if err := route.SetAPIRoutes(e, settings, forwarded); err != nil {
		return nil, fmt.Errorf("make the Web UI's API: %w", err)
	}
	if err := route.SetUIRoutes(e, "", files, settings); err != nil {
		return nil, fmt.Errorf("make the Web UI's pages: %w", err)
	}
	route.SetRenderRoute(e, "/")
	if s.key == "" {
		return e, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := metadata.AppendToOutgoingContext(r.Context(), "authorization", "Bearer "+s.key)
		r = r.Clone(ctx) // a few of the UI's requests to Temporal take their headers from the context
		r.Header.Set("Authorization", "Bearer "+s.key)
		e.ServeHTTP(w, r)
	}), nil
}
