package fleet

import (
	"slices"
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

// Member is the cluster's record of one agent. Facts that change every second (load, last heartbeat) are not in it.
type Member struct {
	AgentProfile
	AgentID      string      `json:"agent_id"`
	Instance     string      `json:"instance_id"`
	Epoch        int64       `json:"epoch"`
	Registration int64       `json:"registration,omitempty"` // the process's newest registration that came; 0: it does not count them
	Status       AgentStatus `json:"status"`
	StatusSince  time.Time   `json:"status_since"`
	StatusReason string      `json:"status_reason,omitempty"`
	Hub          string      `json:"hub,omitempty"`
	// HubLostAt is when its hub was lost, while the mass-loss brake holds the member nevertheless.
	HubLostAt time.Time `json:"hub_lost_at,omitzero"`
	// AwaitedUntil is until when work waits for it although it is lost; zero: none does.
	AwaitedUntil time.Time `json:"awaited_until,omitzero" doc:"Work that it had waits for it until then. Absent: none does."`
	JoinedAt     time.Time `json:"joined_at"`
	// Health is the member's health by its hub's last report; nil: healthy, or not connected.
	Health *MemberHealth `json:"health,omitempty"`
	// JoinToken is the id of the token that it joined with; empty for credentials that are not stored.
	JoinToken string `json:"join_token,omitempty"`
	// Revoked: its session was ended with that token, so its process may not resume it.
	Revoked bool `json:"revoked,omitempty"`
	// Relieved: a failover by hand took its shards. It gets none while others are online, until a rebalance, the end
	// of its maintenance, or a new process.
	Relieved bool `json:"relieved,omitempty"`
	// Stopping: it is stopping, and gets no role.
	Stopping bool `json:"stopping,omitempty"`
	// Mistakes counts how often this process came back after it had been given up.
	Mistakes int `json:"given_up_wrongly,omitempty"`
	// Failovers counts those of this process.
	Failovers int `json:"failovers,omitempty"`
	// FencedInstances are the newest processes that were replaced under this id; they may not come back.
	FencedInstances []string `json:"fenced_instances,omitempty"`

	counted memberSizes // see sizes
}

// Serving reports whether the member may get work.
func (m *Member) Serving() bool { return m.Status == AgentOnline || m.Status == AgentSuspect }

// MayHold reports whether the member may be given a role.
func (m *Member) MayHold() bool { return m.Status == AgentOnline && !m.Stopping }

// Connection is how the member stands with its hub, which publishes live of it.
func (m *Member) Connection(live AgentStatus, now time.Time) Connection {
	switch {
	case now.Before(m.AwaitedUntil):
		return Disconnected
	case !m.Connected():
		return GivenUp
	case m.Status == AgentSuspect || !m.HubLostAt.IsZero():
		return Disconnected
	case live == AgentSuspect || live == AgentWarning:
		return Reconnecting
	}
	return Connected
}

// Can reports whether the member has a capability.
func (m *Member) Can(capability string) bool { return HasAll(m.Capabilities, []string{capability}) }

// Handles reports whether the agent has a handler for a type of task. One without types handles any.
func (p *AgentProfile) Handles(taskType string) bool {
	return len(p.TaskTypes) == 0 || slices.Contains(p.TaskTypes, taskType)
}

// HandlesAny reports whether the member has a handler for one of the types, or none are given.
func (m *Member) HandlesAny(types []string) bool {
	return len(types) == 0 || slices.ContainsFunc(types, m.Handles)
}

// CanRun reports whether the member has a handler and the capabilities for a task.
func (m *Member) CanRun(t HeldTask) bool {
	return m.Handles(t.Type) && HasAll(m.Capabilities, t.RequiredCapabilities)
}

// Cluster is the state of one cluster, which its workflow keeps. Members are sorted by id.
type Cluster struct {
	Config  ClusterConfig `json:"config"`
	Members []Member      `json:"members,omitempty"`
	// LastEpoch is the highest epoch ever given in this cluster. It only grows.
	LastEpoch int64 `json:"last_epoch"`
	// Version counts the changes of the directive; hubs keep the newest.
	Version int64 `json:"version"`
	CapabilityLanes
	TypeLanes
	AgentLanes

	// Leader is the serving agent of an active_passive cluster; LeaderEpoch is the epoch of its leadership.
	Leader      string    `json:"leader,omitempty"`
	LeaderEpoch int64     `json:"leader_epoch,omitempty"`
	LeaderSince time.Time `json:"leader_since,omitzero"`
	// Handovers counts how often the leadership went from one agent to another.
	Handovers int64 `json:"handovers,omitempty"`
	// LastLeader is the previous leader, while there is none.
	LastLeader string `json:"last_leader,omitempty"`
	// Successor is the target of the last leader's failover, while there is no leader: it leads next, if it is online.
	Successor string `json:"successor,omitempty"`
	// LeaderFreeAt is when the last leader's lease has certainly run out. No leader is granted before.
	LeaderFreeAt time.Time `json:"leader_free_at,omitzero"`
	// Standbys are the online members that do not lead, in the order in which they became standbys.
	Standbys []string `json:"standbys,omitempty"`

	// Cordons are the agents that get no work, sorted by id.
	Cordons Cordons `json:"cordons,omitempty"`

	// Reductions are the agents that may use fewer slots than they have, sorted by id.
	Reductions Reductions `json:"load_reductions,omitempty"`

	// Shards has the owner of each shard of a sharded cluster.
	Shards Shards `json:"shards,omitempty"`
	// Targets are the deployment targets of its agents, sorted by id.
	Targets Targets `json:"targets,omitempty"`
	SyncState
	// RoundRobin counts the targets that the round_robin strategy has picked.
	RoundRobin int64 `json:"round_robin,omitempty"`

	// Pauses are the paused lanes, sorted by lane; a pause of the whole cluster comes first.
	Pauses Pauses `json:"pauses,omitempty"`
	Brakes
	// Scaling is the state of scaling; nil: it was never on.
	Scaling *ScalingState `json:"scaling,omitempty"`
	TokenLedger
	// Departures are the newest agents that said goodbye, oldest first.
	Departures Departures `json:"departures,omitempty"`
	// Deaths are the newest proofs that agents have ended, oldest first.
	Deaths Deaths `json:"deaths,omitempty"`
	// Watchers are the jobs that learn of changes of the members, by their full names, sorted.
	Watchers []string `json:"watchers,omitempty"`
}

// MaxWatchers bounds the jobs that a cluster notifies at once: Temporal takes no more than 2,000 signals under way.
const MaxWatchers = 500

// Watch has the cluster notify a job. A tenant has as many such jobs as are then still free, so that it leaves room for
// others.
func (c *Cluster) Watch(job string) {
	i, known := slices.BinarySearch(c.Watchers, job)
	tenant, _ := CutTenant(job)
	own := 0
	for _, other := range c.Watchers {
		if of, _ := CutTenant(other); of == tenant {
			own++
		}
	}
	if !known && own < MaxWatchers-len(c.Watchers) {
		c.Watchers = slices.Insert(c.Watchers, i, job)
	}
}

// Join is a request of one agent process for membership.
type Join struct {
	AgentProfile
	AgentID      string `json:"agent_id"`
	Instance     string `json:"instance_id"`
	Registration int64  `json:"registration,omitempty"` // which of the process's registrations this is; 0: it does not count them
	// Token is the agent's join token. With Resume the agent shows its session instead, as when the token has expired.
	Token  JoinToken `json:"token,omitzero"`
	Resume bool      `json:"resume,omitempty"`
}

// Joined answers a Join.
type Joined struct {
	AgentID string `json:"agent_id"`
	Epoch   int64  `json:"epoch,omitempty"`
	// Refused is empty when the agent is a member now, else one of the Refused constants.
	Refused string `json:"refused,omitempty"`
	// Replaced is the instance that this one fenced, if any.
	Replaced string `json:"replaced,omitempty"`
	// ReplacedHub is the hub with the replaced instance's session, if it is another; it must be notified.
	ReplacedHub string `json:"replaced_hub,omitempty"`
	// Stopping: it is stopping, and gets no role.
	Stopping bool `json:"stopping,omitempty"`
	// Mistakes counts how often this process came back after it had been given up; GivenUp: now it does.
	Mistakes int  `json:"given_up_wrongly,omitempty"`
	GivenUp  bool `json:"given_up,omitempty"`
	// Refuted is the reason of the proof of death of this very process, which lives.
	Refuted string `json:"refuted,omitempty"`
}

// Reasons to refuse a join.
const (
	RefusedFull   = "cluster_full" // the cluster has MaxAgents members
	RefusedFenced = "fenced"       // a newer process already took this agent id
	RefusedLate   = "late"         // a later registration of the same process came first

	RefusedToken   = "token_revoked"   // its join token was revoked
	RefusedUses    = "token_used_up"   // its join token has let in as many agents as it may
	RefusedRevoked = "session_revoked" // its session was ended together with its join token
	RefusedResume  = "not_a_member"    // it has no session to resume

	RefusedProfile  = "profile"  // what it tells of itself is too much
	RefusedProfiles = "profiles" // what the cluster's agents tell of themselves is too much together
)

// Transition is one change of a member's status or health that its hub saw. It is ignored unless Instance and Epoch are
// still the member's.
type Transition struct {
	AgentID  string `json:"agent_id"`
	Instance string `json:"instance_id"`
	Epoch    int64  `json:"epoch"`
	// Registration is the registration of the process that the hub saw change; 0: unknown.
	Registration int64 `json:"registration,omitempty"`
	// Status is empty in a change of health.
	Status AgentStatus `json:"status,omitempty"`
	Reason string      `json:"reason,omitempty"`
	At     time.Time   `json:"at"`
	// Left: the agent said goodbye, so it is no member any more, and its roles are free at once.
	Left bool `json:"left,omitempty"`
	// LeaseRemaining is how long after the report the agent may go on with its roles; absent: a whole role lease.
	LeaseRemaining *Duration `json:"lease_remaining,omitempty"`
	// Evidence is what the agent was given up on, and NoticedAfter how long after its last sign of life.
	Evidence     Evidence `json:"evidence,omitempty"`
	NoticedAfter Duration `json:"noticed_after,omitempty"`
	// Attempts were under way on the agent, at most MaxTransfers of them; Unlisted counts the others.
	Attempts []HeldAttempt `json:"attempts,omitempty"`
	Unlisted int           `json:"unlisted,omitempty"`
	// AwaitedUntil is until when work waits for the agent although it is lost; zero: none does.
	AwaitedUntil time.Time `json:"awaited_until,omitzero"`
	// Health is the new health; nil: unchanged.
	Health *MemberHealth `json:"health,omitempty"`
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

// OnlineCount is the number of online members; suspect ones do not count.
func (c *Cluster) OnlineCount() int { return count(c.Members, hasStatus(AgentOnline)) }

// HealthyCount is the number of online members whose health is not critical or worse.
func (c *Cluster) HealthyCount() int {
	return count(c.Members, func(m *Member) bool {
		return m.Status == AgentOnline && !m.HealthLevel().WorseThan(HealthWarning)
	})
}

func hasStatus(s AgentStatus) func(*Member) bool {
	return func(m *Member) bool { return m.Status == s }
}

// Status judges the cluster by its online and its healthy members. A cluster that never had an agent and wants none is
// healthy.
func (c *Cluster) Status() ClusterStatus {
	online, healthy, wanted := c.OnlineCount(), c.HealthyCount(), c.Wanted()
	switch {
	case online < c.Config.MinAgents:
		return ClusterCritical
	case online == 0 && (len(c.Members) > 0 || wanted > 0):
		return ClusterCritical
	case healthy < wanted:
		return ClusterDegraded
	case wanted == 0 && healthy < len(c.Members)-count(c.Members, hasStatus(AgentMaintenance)):
		return ClusterDegraded
	}
	return ClusterHealthy
}
