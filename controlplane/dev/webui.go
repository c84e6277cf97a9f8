package dev

import (
	"errors"
	"net"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/controlplane"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/page"
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
		handler = toSignIn(handler, o.Listener)
	}
	d.ui.server.Handler = controlplane.GuardBrowsers(handler, o.Hosts)
	go func() {
		if err := d.ui.server.Serve(d.ui.listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("The Web UI stopped", zap.Error(err))
		}
	}()
	return nil
}

// toSignIn sends a person who is not signed in to the fleet page, where that is done. Cookies are the same on all ports
// of a host.
func toSignIn(next http.Handler, api net.Listener) http.Handler {
	_, port, _ := net.SplitHostPort(api.Addr().String())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := r.Cookie(httpapi.SessionCookie)
		if err == nil || r.Header.Get("Authorization") != "" || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next.ServeHTTP(w, r)
			return
		}
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		http.Redirect(w, r, "http://"+net.JoinHostPort(strings.Trim(host, "[]"), port)+page.Path, http.StatusSeeOther)
	})
}

func (u *webUI) stop() {
	switch {
	case u == nil:
	case u.server == nil:
		_ = u.listener.Close()
	default:
		_ = u.server.Close()
	}
}
