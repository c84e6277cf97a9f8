package agentrun

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config/agentconfig"
	"mainstay.dev/sdk/agent"
)

// The defaults of an agent's health probes.
const (
	healthHost = "127.0.0.1"
	healthPath = "/health"
)

// flagsFrom are the values of the file in the form of flags, without those that the file leaves out.
func flagsFrom(f *agentconfig.File) map[string][]string {
	a := &f.Agent
	flags := map[string][]string{
		"id": {a.AgentID}, "address": {a.Address}, "zone": {a.AvailabilityZone}, "group": {a.AgentGroup}, "hub": a.Hubs,
		"cluster": {a.Cluster}, "capability": a.Capabilities, "provider": a.Providers, "exec-env": a.ExecEnv,
		"join-token-file": {a.JoinTokenFile}, "ca": {a.CA}, "cert": {a.Cert}, "key": {a.Key},
		"health-file": {a.HealthFile}, "mcp": {a.MCP}, "models": {a.Models},
		"resources": {a.Resources}, "ports": {a.Ports}, "volume": a.Volumes,
	}
	for name, value := range a.Metadata {
		flags["metadata"] = append(flags["metadata"], name+"="+value)
	}
	if a.Slots > 0 {
		flags["slots"] = []string{strconv.Itoa(a.Slots)}
	}
	if a.AllowExec {
		flags["allow-exec"] = []string{"true"}
	}
	if s := f.GracefulShutdown.TimeoutSeconds; s > 0 {
		flags["stop-timeout"] = []string{strconv.Itoa(s) + "s"}
	}
	for name, values := range flags {
		if len(values) == 0 || values[0] == "" {
			delete(flags, name)
		}
	}
	return flags
}

// probes is where an agent serves its health probes.
type probes struct {
	address string // empty: nowhere
	path    string // of the health endpoint, beside /readyz and /healthz
	chosen  bool   // a flag or the file names the address
}

// fromFile gives the flags that the command line leaves out the values of a file, if there is one. It returns what no
// flag has: where the probes are, and what the file expects of hubs.
func fromFile(c *cobra.Command, path, health string) (probes, agentconfig.Heartbeat, error) {
	if health == "off" {
		health = ""
	}
	p := probes{address: health, path: healthPath, chosen: c.Flags().Changed("health")}
	if path == "" {
		return p, agentconfig.Heartbeat{}, nil
	}
	f, err := agentconfig.Read(path)
	if err != nil {
		return p, agentconfig.Heartbeat{}, app.WithExit(app.ExitUsage, err)
	}
	for name, values := range flagsFrom(f) {
		if c.Flags().Changed(name) {
			continue
		}
		for _, value := range values {
			if err := c.Flags().Set(name, value); err != nil {
				return p, agentconfig.Heartbeat{}, app.UsageError("%s: --%s: %w", path, name, err)
			}
		}
	}
	check := &f.HealthCheck
	p.path = cmp.Or(check.Path, healthPath)
	if !p.chosen {
		p.chosen = check.Host != "" || check.Port != nil
		p.address = net.JoinHostPort(cmp.Or(check.Host, healthHost), strconv.Itoa(f.HealthPort()))
		if f.HealthPort() == 0 {
			p.address = ""
		}
	}
	return p, f.Heartbeat, nil
}

// warnOfHub warns of a hub that wants heartbeats more rarely than the file expects, or notices a loss later.
func warnOfHub(log *slog.Logger, e agent.Event, expected agentconfig.Heartbeat) {
	if e.Kind != agent.EventRegistered {
		return
	}
	for _, c := range []struct {
		key, setting string
		seconds      int
		hub          time.Duration
	}{
		{"heartbeat.interval_seconds", "hub.heartbeat_interval", expected.IntervalSeconds, e.HeartbeatInterval},
		{"heartbeat.timeout_seconds", "hub.failure_threshold", expected.TimeoutSeconds, e.FailureThreshold},
	} {
		if want := time.Duration(c.seconds) * time.Second; want > 0 && c.hub > want {
			log.Warn(fmt.Sprintf("The hub's time is longer than %s asks for; change %s of the control plane", c.key,
				c.setting), "wanted", want, "hub", c.hub)
		}
	}
}
