package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// exposed lists what others than this machine can reach, as part and address.
func (o *devOptions) exposed(listener net.Listener, ui *webUI) (parts []string) {
	if !loopback(listener) {
		parts = append(parts, "the REST API on "+o.http)
	}
	if address := net.JoinHostPort(o.temporal.Host, strconv.Itoa(o.temporal.Port)); !onlyHere(address) {
		parts = append(parts, "Temporal on "+address)
	}
	if ui != nil && !loopback(ui.listener) {
		parts = append(parts, "Temporal's Web UI on "+o.ui)
	}
	return parts
}

// takeTokens decides whether `dev` asks who one is: unless all that it serves is for this machine alone and no token is set.
// Then there are tokens.
func (d *devRun) takeTokens(o devOptions, getenv func(string) string) error {
	if o.open {
		return nil
	}
	given, err := readFirstTokens(o.security, getenv)
	if err != nil {
		return err
	}
	if given.admin == "" && len(d.exposed) == 0 {
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
	if r.OpenTemporal {
		row("Warning", "others than this machine can reach Temporal on "+r.Temporal+", and it asks nobody who they are:")
		row("", "they can see, stop and start everything, and run commands on the agents")
	}
}
