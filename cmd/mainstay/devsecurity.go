package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

// takeTokens decides whether `dev` asks who one is: unless all that it serves is for this machine alone and no token is set.
// Then there are tokens.
func (d *devRun) takeTokens(o devOptions, listener net.Listener, getenv func(string) string) error {
	if o.open {
		return nil
	}
	given, err := readFirstTokens(o.security, getenv)
	if err != nil {
		return err
	}
	d.exposedUI = o.temporal.UIPort != 0 && !onlyHere(o.temporal.UIHost)
	if given.admin == "" && loopback(listener) && onlyHere(o.temporal.Host) && !d.exposedUI {
		return nil
	}
	d.tokens, err = keptTokens(d.dir, given)
	return err
}

// secure has the control plane ask for the tokens, if there are any.
func (d *devRun) secure(o devOptions, p *planeOptions) (err error) {
	if d.tokens.admin == "" {
		return nil
	}
	p.metrics = metricsPolicy(o.security.OpenMetrics)
	p.hosts = nil // other pages have no token, whatever host they pretend to be; and a proxy has a name of its own
	if p.proxies, err = trustedProxies(o.security); err != nil {
		return err
	}
	p.gate, p.audit, err = newGate(o.security, d.tokens, p.key, d.client, p.logger)
	return err
}

// madeToken is the file of a token that `dev` has made; empty for one that was given.
func (d *devRun) madeToken(name, token string) string {
	path := filepath.Join(d.dir, name)
	data, err := os.ReadFile(path)
	if token == "" || err != nil || strings.TrimSpace(string(data)) != token {
		return ""
	}
	return path
}

// writeSecurity says whether tokens are asked for.
func (r *devReport) writeSecurity(row func(name, text string)) {
	switch {
	case !r.Security:
		row("Security", "off: only this machine can reach it")
		return
	case r.AdminTokenFile != "":
		row("Security", "on; the admin token is in "+r.AdminTokenFile)
	default:
		row("Security", "on, with the admin token that was given")
	}
	if r.ExposedUI {
		row("", "Temporal's Web UI asks nobody who they are: others can reach it, and see and stop everything")
	}
}
