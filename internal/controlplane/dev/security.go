package dev

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane"
)

// exposed lists the parts that other machines can reach, with their addresses.
func (o *Options) exposed(listener net.Listener, ui *webUI) (parts []string) {
	if !controlplane.Loopback(listener) {
		parts = append(parts, "the REST API on "+o.HTTP)
	}
	if address := net.JoinHostPort(o.Temporal.Host, strconv.Itoa(o.Temporal.Port)); !onlyHere(address) {
		parts = append(parts, "Temporal on "+address)
	}
	if ui != nil && !controlplane.Loopback(ui.listener) {
		parts = append(parts, "Temporal's Web UI on "+o.UI)
	}
	return parts
}

// decideExec decides whether agents run commands: while security is on, only if that was asked for. Commands run as
// this user, who can read the tokens in the data directory.
func (d *Run) decideExec(o Options, getenv func(string) string) error {
	given := !o.Open && controlplane.AdminTokenGiven(o.security, getenv)
	d.exec = o.DemoRoot == "" && (o.allowExec || len(d.exposed) == 0 && !given)
	switch {
	case d.exec, o.Agents == 0, o.DemoRoot != "":
		return nil
	case len(d.exposed) > 0:
		return app.UsageError("others than this machine can reach %s, and could run any command through the agents: "+
			"add --allow-exec if you want that, else --agents 0, or listen on 127.0.0.1", strings.Join(d.exposed, " and "))
	}
	return app.UsageError("an admin token is set, and who may submit tasks could run any command as you, " +
		"and so read that token: add --allow-exec if you want that, else --agents 0")
}

// takeTokens reads or makes the tokens, if `dev` is to ask for them: not while everything that it serves is for this
// machine alone and no token is set.
func (d *Run) takeTokens(o Options, getenv func(string) string, log *zap.Logger) error {
	if o.Open {
		return nil
	}
	given, err := controlplane.ReadFirstTokens(o.security, getenv, log)
	if err != nil {
		return err
	}
	if given.Admin == "" && len(d.exposed) == 0 {
		return nil
	}
	d.tokens, err = keptTokens(d.dir, given)
	return err
}

// secure makes the control plane ask for the tokens, if there are any.
func (d *Run) secure(o Options, p *controlplane.Options) (err error) {
	if d.tokens.Admin == "" {
		return nil
	}
	p.Metrics = controlplane.MetricsPolicy(o.security.OpenMetrics)
	p.Hosts = nil // other pages have no token, whatever host they pretend to be; and a proxy has a name of its own
	if p.Proxies, err = controlplane.TrustedProxies(o.security); err != nil {
		return err
	}
	p.Gate, p.Audit, err = controlplane.NewGate(o.security, d.tokens, p.Key, d.Client, p.Logger)
	return err
}

// madeToken is the file of a token that `dev` has made; empty for one that was given.
func (d *Run) madeToken(name, token string) string {
	path := filepath.Join(d.dir, name)
	data, err := os.ReadFile(path)
	if token == "" || err != nil || strings.TrimSpace(string(data)) != token {
		return ""
	}
	return path
}

// writeSecurity says whether tokens are asked for.
func (r *Report) writeSecurity(row func(name, text string)) {
	switch {
	case !r.Security:
		row("Security", "off: only this machine can reach it")
		return
	case r.AdminTokenFile != "":
		row("Security", "on; the admin token is in "+r.AdminTokenFile)
	default:
		row("Security", "on, with the admin token that was given")
	}
	row("", "clients of Temporal need the key in "+r.TemporalKeyFile)
	if r.Exec {
		row("Warning", "commands run as this user, who can read these tokens and keys:")
		row("", "whoever may submit tasks can become an admin")
	}
	if r.OpenTemporal {
		row("Warning", "others than this machine can reach Temporal on "+r.Temporal+", and it speaks no TLS:")
		row("", "who reads its key on the way can do everything, and run commands on the agents")
	}
}

// onlyHere reports whether the IP address with a port that the embedded Temporal listens on is of this machine alone.
func onlyHere(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return net.ParseIP(host).IsLoopback()
}

var errNoTLSInDev = errors.New(
	"dev speaks plain http: use `mainstay serve` for https, or put a proxy that speaks it before dev (security.tls_cert)",
)
