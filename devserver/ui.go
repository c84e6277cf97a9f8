package devserver

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiapi "github.com/temporalio/ui-server/v2/server/api"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
)

// UI makes the Web UI. It asks nobody who they are and serves any Host, so the caller must put a guard before it. This
// is what the UI's own server does but for its listener, which would let everybody in. strip is an address on this
// machine whose page the UI shows in a strip below its top bar; empty: none. The UI takes http only from loopback
// addresses; another is left out.
func (s *Server) UI(strip string) (http.Handler, error) {
	settings, err := uiconfig.NewConfigProviderWithRefresh(&uiconfig.Config{
		TemporalGRPCAddress: s.address,
		EnableUI:            true,
		DefaultNamespace:    s.namespace,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		DisableNewsFetch:    true,
		CustomUI:            stripUI(strip),
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
	return e, nil
}

// stripHeight of the frame in pixels.
const stripHeight = 52

// stripUI puts a page into the slot below the Web UI's top bar. What the Web UI would refuse is left out: it is an
// extra, and with an invalid one the Web UI answers nothing at all.
func stripUI(address string) uiconfig.CustomUI {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return uiconfig.CustomUI{}
	}
	custom := uiconfig.CustomUI{Enabled: true, IframeExtensions: []uiconfig.IframeExtension{{
		ID:            "mainstay",
		Title:         "Mainstay: the fleet",
		Slot:          "app.top-nav.sub-nav",
		Src:           address,
		AllowedOrigin: u.Scheme + "://" + u.Host,
		Sizing:        uiconfig.IframeExtensionSizing{DefaultHeight: stripHeight},
	}}}
	if custom.Validate(false) != nil {
		return uiconfig.CustomUI{}
	}
	return custom
}
