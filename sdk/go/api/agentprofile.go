package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AgentStatus is a member's status as operators see it.
type AgentStatus string

// The agent statuses.
const (
	AgentOnline      AgentStatus = "online"
	AgentSuspect     AgentStatus = "suspect" // its connection closed, or the brake holds it; not yet given up
	AgentOffline     AgentStatus = "offline"
	AgentDraining    AgentStatus = "draining"
	AgentMaintenance AgentStatus = "maintenance"

	// AgentWarning and AgentStopping, and as a rule AgentSuspect, are live: a hub publishes them of an agent that its
	// cluster has as online.

	AgentWarning  AgentStatus = "warning"  // silent for longer than the warning threshold
	AgentStopping AgentStatus = "stopping" // it takes nothing new, finishes what it has, and leaves
)

// AgentStatuses are all statuses.
var AgentStatuses = []AgentStatus{AgentOnline, AgentSuspect, AgentWarning, AgentStopping, AgentOffline, AgentDraining,
	AgentMaintenance}

// Connection is how an agent stands with its hub. An agent that is lost goes through these in their order; it skips
// disconnected where nothing holds its work for it.
type Connection string

// The connections.
const (
	Connected    Connection = "connected"
	Reconnecting Connection = "reconnecting" // it is out of touch, and its grace runs
	Disconnected Connection = "disconnected" // its grace is over, and work is held for it
	GivenUp      Connection = "offline"
)

// Role is a member's role in its cluster.
type Role string

// The roles.
const (
	RoleLeader  Role = "leader"
	RoleStandby Role = "standby"
	RoleMember  Role = "member"
)

// AgentProfile is what an agent says of itself when it registers.
type AgentProfile struct {
	MaxTasks     int               `json:"max_tasks" minimum:"1" maximum:"10000" doc:"Slots: tasks it runs at a time."`
	TaskTypes    []string          `json:"task_types,omitempty" maxItems:"256" doc:"Handled task types; empty means any."`
	Capabilities []string          `json:"capabilities,omitempty" maxItems:"64"`
	Host         string            `json:"host,omitempty" maxLength:"255"`
	PID          int               `json:"pid,omitempty"`
	Address      string            `json:"address,omitempty" maxLength:"255" doc:"Where it can be reached, as host:port, for people and tools. Left out: the address that it registers from."`
	StartedAt    time.Time         `json:"started_at,omitzero" doc:"When its process began."`
	Zone         string            `json:"zone,omitempty" maxLength:"63"`
	Group        string            `json:"group,omitempty" maxLength:"63"`
	Version      string            `json:"version,omitempty" maxLength:"63"`
	Metadata     map[string]string `json:"metadata,omitempty" maxProperties:"64" doc:"At most 64 entries, and 4 KiB of JSON in all."`
	// EndsProcessTrees: no process that an exec task started outlives its attempt or its agent.
	EndsProcessTrees bool `json:"ends_process_trees,omitempty" doc:"No process that an exec task has started outlives its attempt, its agent or, if it is fenced, its lease. Absent: the agent is given no exec task whose retry_safety is fenced, at_most_once or unmarked."`
	// Reconnects: it polls again at once, on a new connection to the same hub, when its connection breaks.
	Reconnects bool `json:"reconnects,omitempty" doc:"When its connection breaks, it polls again at once, on a new connection to the same hub. Its hub then waits for a few round trips instead of disconnect_grace before it gives the agent up."`
	// Resources are what tasks may ask for; nil: the agent gets no task that asks for any.
	Resources *Inventory `json:"resources,omitempty" doc:"What tasks may ask for with place. Absent: the agent gets no such task."`
}

// Handles reports whether the agent has a handler for a type of task. One without types handles any.
func (p *AgentProfile) Handles(taskType string) bool {
	return len(p.TaskTypes) == 0 || slices.Contains(p.TaskTypes, taskType)
}

// ClusterStatus is whether a cluster has the agents that it should have.
type ClusterStatus string

// The cluster statuses.
const (
	ClusterHealthy  ClusterStatus = "healthy"  // as many healthy agents as desired
	ClusterDegraded ClusterStatus = "degraded" // fewer than desired, or one is not healthy while no count is set
	ClusterCritical ClusterStatus = "critical" // fewer online than the minimum, or none at all
	ClusterUnknown  ClusterStatus = "unknown"  // no worker answered for the cluster
)

// Bounds of agents' profiles, in bytes of JSON. A cluster's state must fit into one message of Temporal, with all of
// its members.
const (
	maxMetadataEntries = 64
	maxMetadata        = 4 << 10
	maxProfile         = 32 << 10
)

// Validate checks the sizes and names. Its errors are FieldErrors.
func (p *AgentProfile) Validate() error {
	if len(p.Metadata) > maxMetadataEntries {
		return WrongField("metadata", "may have at most %d entries", maxMetadataEntries)
	}
	if sizeOfMap(p.Metadata) > maxMetadata {
		return WrongField("metadata", "may have at most 4 KiB of JSON in all")
	}
	for _, list := range []struct {
		field, kind string
		names       []string
		most        int
	}{{"task_types", "task type", p.TaskTypes, 256}, {"capabilities", "capability", p.Capabilities, 64}} {
		if len(list.names) > list.most {
			return WrongField(list.field, "may have at most %d entries", list.most)
		}
		for i, name := range list.names {
			if err := ValidateID(list.kind, name); err != nil {
				return &FieldError{fmt.Sprintf("%s[%d]", list.field, i), err}
			}
		}
	}
	if p.Resources != nil {
		if err := p.Resources.Validate(); err != nil {
			return &FieldError{"resources", err}
		}
	}
	if err := ValidateTime("started_at", p.StartedAt); err != nil {
		return err
	}
	if p.Size() > maxProfile {
		return WrongField("host", "and the other texts of the agent have more than 32 KiB of JSON")
	}
	return nil
}

// Size is about how long the profile's texts are as JSON, in bytes.
func (p *AgentProfile) Size() int {
	n := sizeOfMap(p.Metadata)
	for _, list := range [][]string{p.TaskTypes, p.Capabilities, {p.Host, p.Address, p.Zone, p.Group, p.Version}} {
		for _, s := range list {
			n += JSONSize(s)
		}
	}
	return n + p.Resources.size()
}

// size is how long it is as JSON, in bytes, which is the same each time.
//
//workflowcheck:ignore
func (v *Inventory) size() int {
	if v == nil {
		return 0
	}
	text, _ := json.Marshal(v) // it has nothing that JSON cannot have
	return len(text)
}

// sizeOfMap is the same in whatever order it is walked.
//
//workflowcheck:ignore
func sizeOfMap(m map[string]string) int {
	n := 0
	for name, value := range m {
		n += JSONSize(name) + JSONSize(value)
	}
	return n
}

// JSONSize is how many bytes a text takes as JSON, with quotes and a comma. It counts possible escapes as escapes.
func JSONSize(s string) int {
	n := len(s) + 3
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || strings.IndexByte(`"\<>&`, c) >= 0 {
			n += 5
		}
	}
	return n
}

// MaxProviders bounds the providers that an agent may name.
const MaxProviders = 64

// ProviderAccess is an agent's access to a provider: an outside service that tasks may name, such as a model's API,
// with limits of its own.
type ProviderAccess struct {
	// Available: the agent has credentials, and a network that reaches the provider.
	Available bool `json:"available"`
	// RateLimitedUntil is when the provider serves the agent again; absent: it does now.
	RateLimitedUntil *time.Time `json:"rate_limited_until,omitempty"`
}

// Providers are the providers that an agent has reported, by name.
type Providers map[string]ProviderAccess

// Validate checks names and bounds. Messages never repeat the submitted value.
func (p Providers) Validate() error {
	if len(p) > MaxProviders {
		return fmt.Errorf("an agent may name at most %d providers", MaxProviders)
	}
	for name := range p {
		if err := ValidateID("provider", name); err != nil {
			return err
		}
	}
	return nil
}

// LimitedUntil is when a rate limit of the provider ends; false: none holds at now.
func (p Providers) LimitedUntil(provider string, now time.Time) (time.Time, bool) {
	access, known := p[provider]
	if !known || access.RateLimitedUntil == nil || !access.RateLimitedUntil.After(now) {
		return time.Time{}, false
	}
	return *access.RateLimitedUntil, true
}

// Usable reports access to the provider that is not rate limited at now.
func (p Providers) Usable(provider string, now time.Time) bool {
	_, limited := p.LimitedUntil(provider, now)
	return p[provider].Available && !limited
}
