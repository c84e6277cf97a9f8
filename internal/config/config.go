// Package config reads Mainstay's configuration file: strict YAML with defaults and validation. Unknown keys are
// errors, and every error names file, line, field and what is allowed.
package config

import (
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Config is the whole file. Every section and every key may be left out.
type Config struct {
	HTTP     HTTP     `json:"http,omitempty"`
	Temporal Temporal `json:"temporal,omitempty"`
	Dev      Dev      `json:"dev,omitempty"`
	Hub      Hub      `json:"hub,omitempty"`
	// Spawner is what the role spawner does.
	Spawner  Spawner  `json:"spawner,omitempty"`
	Security Security `json:"security,omitempty"`
	Mesh     Mesh     `json:"mesh,omitempty"`
	// Clusters are the clusters that should exist. Default: none.
	Clusters []Cluster `json:"clusters,omitempty"`
	// AgentCluster is one more cluster, in the long form. Default: none.
	AgentCluster *AgentCluster `json:"agent_cluster,omitempty"`
}

// HTTP is where the API, the agents' endpoints and the web page are served.
type HTTP struct {
	// Listen is host:port. Without a host it listens on all interfaces; port 0 takes a free one. Default
	// 127.0.0.1:8080.
	Listen string `json:"listen,omitempty"`
}

// Mesh configures the handling of events from outside.
type Mesh struct {
	// AssignmentTypes are the types of events whose data is a task. Default AgentTaskAssigned,
	// dev.mainstay.task.assigned, InvokeModel and InvokeTool.
	AssignmentTypes []string `json:"assignment_types,omitempty"`
}

// Temporal says which Temporal the serve command uses. TEMPORAL_* environment variables win over it.
type Temporal struct {
	// Address is the frontend's host:port, or a gRPC target such as dns:///temporal:7233. Default 127.0.0.1:7233.
	Address string `json:"address,omitempty"`
	// Namespace holds all workflows of this installation. Default "default".
	Namespace string `json:"namespace,omitempty"`
}

// Dev is what the dev command runs on one machine: Temporal, its Web UI and some agents.
type Dev struct {
	// DataDir holds Temporal's database. Empty: all is in memory and gone at the end. Default .mainstay.
	DataDir string `json:"data_dir,omitempty"`
	// Temporal is where the embedded Temporal listens, host:port; port 0 takes a free one. Default 127.0.0.1:7233.
	Temporal string `json:"temporal,omitempty"`
	// UI is where Temporal's Web UI listens, host:port; port 0 takes a free one, empty: no Web UI. Default
	// 127.0.0.1:8233.
	UI string `json:"ui,omitempty"`
	// Agents is how many agents run beside the server, 0 to 100. Default 3.
	Agents int `json:"agents,omitempty" minimum:"0" maximum:"100"`
	// Slots is how many tasks each of them runs at once, 1 to 1000. Default 4.
	Slots int `json:"slots,omitempty" minimum:"1" maximum:"1000"`
	// Durability says what the database survives. Default process.
	Durability Durability `json:"durability,omitempty"`
}

// Durability says what the embedded database survives. The values are those of package devserver.
type Durability string

// The durabilities.
const (
	DurableProcess Durability = "process" // a crash of the program; a power loss may cost the last moments
	DurablePower   Durability = "power"   // a power loss too; every write waits for the disk
	DurableNone    Durability = "none"    // a clean stop only; fastest
)

// Hub is the part that agents talk to. Fields left out have their defaults.
type Hub struct {
	// ID names the hub; a restarted hub keeps it, so that its lease and its agents go on. Default: the program picks
	// one.
	ID string `json:"id,omitempty"`
	// TokenKeyFile holds the key that seals session and attempt tokens, at least 32 characters; all hubs of a
	// namespace share it. Default: serve reads it from MAINSTAY_TOKEN_KEY, and dev keeps its own in its data directory.
	TokenKeyFile string `json:"token_key_file,omitempty"`
	// HeartbeatInterval is the longest an agent's poll is held. Shorter costs more requests. Default 2s.
	HeartbeatInterval api.Duration `json:"heartbeat_interval,omitempty" least:"50ms" most:"10m"`
	// CrowdInterval is the same for agents that register when the hub would answer 1,000 polls a second to the others.
	// Such an agent is given up after three of these intervals and a second. Default 5s.
	CrowdInterval api.Duration `json:"crowd_interval,omitempty" least:"50ms" most:"10m"`
	// WarningThreshold is the silence after which an agent is suspect. Longer than HeartbeatInterval. Default two of
	// these: 4s.
	WarningThreshold api.Duration `json:"warning_threshold,omitempty" least:"50ms" most:"10m"`
	// FailureThreshold is the silence after which an agent is lost and its tasks move; fenced tasks also wait as long.
	// Longer than WarningThreshold. Default three heartbeat intervals and a second: 7s.
	FailureThreshold api.Duration `json:"failure_threshold,omitempty" least:"50ms" most:"10m"`
	// DisconnectGrace is how long a closed connection may stay closed before the agent is lost. At most
	// FailureThreshold. An agent that promises to reconnect at once has a few of its round trips. Default 1s.
	DisconnectGrace api.Duration `json:"disconnect_grace,omitempty" least:"50ms" most:"10m"`
	// HealthCheckInterval is the time between two ratings of the agents' health. Default 1s.
	HealthCheckInterval api.Duration `json:"health_check_interval,omitempty" least:"50ms" most:"10m"`
	// AcceptTimeout is how long an agent may take to confirm that it runs a task; then the task goes back. Idempotent
	// work that an answer carried waits at least for the agent's lease. Default 5s.
	AcceptTimeout api.Duration `json:"accept_timeout,omitempty" least:"50ms" most:"10m"`
	// Park is how long a task without a free slot waits in the hub before it goes back to its lane. Default 2s.
	Park api.Duration `json:"park,omitempty" least:"50ms" most:"10m"`
	// LanePollers bounds the open polls on one lane, 1 to 1000. More give more tasks per second. Default 16.
	LanePollers int `json:"lane_pollers,omitempty" minimum:"1" maximum:"1000"`
}

// Default is the configuration of an empty file.
func Default() *Config {
	c := blank()
	c.fill()
	return c
}

// blank holds the defaults of keys whose zero value means something; fill adds the others after decoding.
func blank() *Config {
	return &Config{
		HTTP:     HTTP{Listen: "127.0.0.1:8080"},
		Temporal: Temporal{Address: "127.0.0.1:7233", Namespace: "default"},
		Dev: Dev{DataDir: ".mainstay", Temporal: "127.0.0.1:7233", UI: "127.0.0.1:8233", Agents: 3, Slots: 4,
			Durability: DurableProcess},
		Hub:      Hub{LanePollers: 16},
		Security: Security{RateLimit: 200, RateBurst: 1000, AuditLog: "log"},
	}
}

// fill gives a default to every zero whose meaning is "the default". The hub's timing comes from the hub section, else
// from agent_cluster, else from cluster.DefaultTiming.
func (c *Config) fill() {
	timing := c.Timing()
	c.Hub.HeartbeatInterval = api.Duration(timing.HeartbeatInterval)
	c.Hub.CrowdInterval = api.Duration(timing.CrowdInterval)
	c.Hub.WarningThreshold = api.Duration(timing.WarningThreshold)
	c.Hub.FailureThreshold = api.Duration(timing.FailureThreshold)
	c.Hub.DisconnectGrace = api.Duration(timing.DisconnectGrace)
	if c.AgentCluster != nil {
		orDefault(&c.Hub.HealthCheckInterval, c.AgentCluster.HealthMonitoring.HealthCheckInterval)
	}
	orDefault(&c.Hub.HealthCheckInterval, api.Duration(time.Second))
	orDefault(&c.Hub.AcceptTimeout, api.Duration(5*time.Second))
	orDefault(&c.Hub.Park, api.Duration(2*time.Second))
	c.Spawner.fill()
	for i := range c.Clusters {
		c.Clusters[i].fill()
	}
	if c.AgentCluster != nil {
		c.AgentCluster.fill()
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Timing is the hub's failure detector. Values missing in the hub section come from agent_cluster's health_monitoring,
// else from the other times.
func (c *Config) Timing() cluster.Timing {
	var health HealthMonitoring
	if c.AgentCluster != nil {
		health = c.AgentCluster.HealthMonitoring
	}
	return cluster.Timing{
		HeartbeatInterval: c.Hub.HeartbeatInterval.Or(health.HeartbeatInterval.Std()),
		CrowdInterval:     c.Hub.CrowdInterval.Std(),
		WarningThreshold:  c.Hub.WarningThreshold.Or(health.WarningThreshold.Std()),
		FailureThreshold:  c.Hub.FailureThreshold.Or(health.FailureThreshold.Std()),
		DisconnectGrace:   c.Hub.DisconnectGrace.Std(),
	}.WithDefaults()
}
