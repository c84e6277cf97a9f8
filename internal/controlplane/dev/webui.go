package dev

import (
	"errors"
	"net"
	"net/http"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/httpapi"
)

// webUI serves the Web UI of the embedded Temporal behind the guard of the REST API: who can use it can start any
// workflow, and so run commands on the agents. A nil webUI is none.
type webUI struct {
	listener net.Listener
	server   *http.Server // nil until it is served
}

// listenUI takes the address, so that one that is taken is known before anything starts.
func listenUI(address string) (*webUI, error) {
	listener, err := controlplane.Listen("the Web UI", address, "--ui")
	if err != nil {
		return nil, err
	}
	return &webUI{listener: listener}, nil
}

// address is where a browser on this machine finds it; empty: nowhere.
func (u *webUI) address() string {
	if u == nil {
		return ""
	}
	return controlplane.LocalURL(u.listener)
}

// startUI serves the Web UI, if there is to be one. Where security is on it asks for an admin, because Temporal knows
// no roles.
func (d *Run) startUI(o controlplane.Options) error {
	if d.ui == nil {
		return nil
	}
	ui, err := d.Temporal.UI()
	if err != nil {
		return err
	}
	options := httpapi.Options{Logger: o.Logger, Gate: controlplane.APIGate(o.Gate, o.Key), Proxies: o.Proxies}
	guarded := httpapi.Guarding(options, access.Administer, ui)
	d.ui.server = guarded.HTTPServer()
	handler := d.ui.server.Handler
	if o.Gate != nil {
		handler = byPassword(handler)
	}
	d.ui.server.Handler = controlplane.GuardBrowsers(handler, o.Hosts)
	controlplane.LimitConnections(d.ui.server, o)
	go func() {
		if err := d.ui.server.Serve(d.ui.listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("The Web UI stopped", zap.Error(err))
		}
	}()
	return nil
}

// byPassword takes an admin's token as the password that a browser asks for. A browser gives a password to this port
// alone. The Web UI does not send the key of a session, and a cookie alone counts for nothing.
func byPassword(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token, basic := r.BasicAuth(); basic {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		next.ServeHTTP(&asking{w}, r)
	})
}

// asking makes a browser ask for a password where a token is needed.
type asking struct{ http.ResponseWriter }

func (w *asking) WriteHeader(status int) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="Temporal: any name, and an admin's API token as password", charset="UTF-8"`)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *asking) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (u *webUI) stop() {
	switch {
	case u == nil:
	case u.server == nil:
		_ = u.listener.Close()
	default:
		_ = u.server.Close()
	}
}
