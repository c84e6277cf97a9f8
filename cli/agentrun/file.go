package agentrun

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/document"
)

// The defaults of an agent's health probes.
const (
	healthHost = "127.0.0.1"
	healthPort = 9091
	healthPath = "/health"
)

// file is the file of --config. Every section and every key may be left out.
type file struct {
	Agent struct { // what the flags say; a key that differs from its flag has the flag beside it
		AgentID          string            `json:"agent_id"` // --id
		Address          string            `json:"address"`
		AvailabilityZone string            `json:"availability_zone"` // --zone
		AgentGroup       string            `json:"agent_group"`       // --group
		Hubs             []string          `json:"hubs"`              // --hub
		Cluster          string            `json:"cluster"`
		Slots            int               `json:"slots,omitempty" minimum:"1" maximum:"10000"`
		Capabilities     []string          `json:"capabilities"`
		Providers        []string          `json:"providers"`
		Metadata         map[string]string `json:"metadata"`
		AllowExec        bool              `json:"allow_exec"`
		ExecEnv          []string          `json:"exec_env"`
		JoinTokenFile    string            `json:"join_token_file"`
		CA               string            `json:"ca"`
		Cert             string            `json:"cert"`
		Key              string            `json:"key"`
		HealthFile       string            `json:"health_file"`
		MCP              string            `json:"mcp"`       // a file with servers of tools
		Models           string            `json:"models"`    // a file with providers of models
		Resources        string            `json:"resources"` // a file with what tasks may ask for
		Ports            string            `json:"ports"`
		Volumes          []string          `json:"volumes"` // --volume
	} `json:"agent"`
	Heartbeat   heartbeat `json:"heartbeat"`
	HealthCheck struct {
		Host string `json:"host"`                                       // default 127.0.0.1
		Port *int   `json:"port,omitempty" minimum:"0" maximum:"65535"` // default 9091; 0: no probes
		Path string `json:"path"`                                       // default /health; /readyz and /healthz stay where they are
	} `json:"health_check"`
	GracefulShutdown struct {
		TimeoutSeconds int `json:"timeout_seconds,omitempty" minimum:"1" maximum:"86400"` // --stop-timeout
	} `json:"graceful_shutdown"`
}

// heartbeat is what the agent expects of its hubs, which set both. The agent warns of a hub with longer times.
type heartbeat struct {
	IntervalSeconds int `json:"interval_seconds,omitempty" minimum:"1" maximum:"86400"` // between two heartbeats, at most
	TimeoutSeconds  int `json:"timeout_seconds,omitempty" minimum:"1" maximum:"86400"`  // without a heartbeat until the agent counts as lost, at most
}

// readFile reads and checks a file.
func readFile(path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	f := &file{}
	places, err := document.Read(path, text, f, nil)
	if err != nil {
		return nil, err
	}
	if path := f.HealthCheck.Path; path != "" && path[0] != '/' {
		return nil, &document.Error{Problems: []document.Problem{
			places.Place("health_check.path", "must be a path like /health")}}
	}
	return f, nil
}

func (f *file) port() int {
	if f.HealthCheck.Port == nil {
		return healthPort
	}
	return *f.HealthCheck.Port
}

// flags are the values of the file as flags take them; what the file leaves out is not there.
func (f *file) flags() map[string][]string {
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
func fromFile(c *cobra.Command, path, health string) (probes, heartbeat, error) {
	p := probes{address: health, path: healthPath, chosen: c.Flags().Changed("health")}
	if path == "" {
		return p, heartbeat{}, nil
	}
	f, err := readFile(path)
	if err != nil {
		return p, heartbeat{}, app.WithExit(app.ExitUsage, err)
	}
	for name, values := range f.flags() {
		if c.Flags().Changed(name) {
			continue
		}
		for _, value := range values {
			if err := c.Flags().Set(name, value); err != nil {
				return p, heartbeat{}, app.UsageError("%s: --%s: %w", path, name, err)
			}
		}
	}
	check := &f.HealthCheck
	p.path = cmp.Or(check.Path, healthPath)
	if !p.chosen {
		p.chosen = check.Host != "" || check.Port != nil
		p.address = net.JoinHostPort(cmp.Or(check.Host, healthHost), strconv.Itoa(f.port()))
		if f.port() == 0 {
			p.address = ""
		}
	}
	return p, f.Heartbeat, nil
}

// warnOfHub warns of a hub that wants heartbeats more rarely than the file expects, or notices a loss later.
func warnOfHub(log *slog.Logger, e agent.Event, expected heartbeat) {
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
