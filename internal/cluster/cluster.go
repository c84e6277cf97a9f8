package cluster

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
)

// Member is the cluster's record of one agent. Facts that change every second (load, last heartbeat) are not in it.
type Member struct {
	api.AgentProfile
	AgentID      string          `json:"agent_id"`
	Instance     string          `json:"instance_id"`
	Epoch        int64           `json:"epoch"`
	Registration int64           `json:"registration,omitempty"` // the process's newest registration that came; 0: it does not count them
	Status       api.AgentStatus `json:"status"`
	StatusSince  time.Time       `json:"status_since"`
	StatusReason string          `json:"status_reason,omitempty"`
	Hub          string          `json:"hub,omitempty"`
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
	// Failovers counts the failovers of this process.
	Failovers int `json:"failovers,omitempty"`
	// FencedInstances are the newest processes that were replaced under this id; they may not come back.
	FencedInstances []string `json:"fenced_instances,omitempty"`

	counted memberSizes // see sizes
}

// Serving reports whether the member may get work.
func (m *Member) Serving() bool { return m.Status == api.AgentOnline || m.Status == api.AgentSuspect }

// MayHold reports whether the member may be given a role.
func (m *Member) MayHold() bool { return m.Status == api.AgentOnline && !m.Stopping }

// Connection is how the member stands with its hub, which publishes live of it.
func (m *Member) Connection(live api.AgentStatus, now time.Time) api.Connection {
	switch {
	case now.Before(m.AwaitedUntil):
		return api.Disconnected
	case !m.Connected():
		return api.GivenUp
	case m.Status == api.AgentSuspect || !m.HubLostAt.IsZero():
		return api.Disconnected
	case live == api.AgentSuspect || live == api.AgentWarning:
		return api.Reconnecting
	}
	return api.Connected
}

// Can reports whether the member has a capability.
func (m *Member) Can(capability string) bool { return api.HasAll(m.Capabilities, []string{capability}) }

// HandlesAny reports whether the member has a handler for one of the types, or none are given.
func (m *Member) HandlesAny(types []string) bool {
	return len(types) == 0 || slices.ContainsFunc(types, m.Handles)
}

// CanRun reports whether the member has a handler and the capabilities for a task.
func (m *Member) CanRun(t api.HeldTask) bool {
	return m.Handles(t.Type) && api.HasAll(m.Capabilities, t.RequiredCapabilities)
}

// Cluster is the state of one cluster, which its workflow keeps. Members are sorted by id.
type Cluster struct {
	Config  api.ClusterConfig `json:"config"`
	Members []Member          `json:"members,omitempty"`
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
	statesync.SyncState
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

// Watch makes the cluster notify a job. A tenant may have at most as many watching jobs as are still free, so that
// others get room.
func (c *Cluster) Watch(job string) {
	i, known := slices.BinarySearch(c.Watchers, job)
	tenant, _ := api.CutTenant(job)
	own := 0
	for _, other := range c.Watchers {
		if of, _ := api.CutTenant(other); of == tenant {
			own++
		}
	}
	if !known && own < MaxWatchers-len(c.Watchers) {
		c.Watchers = slices.Insert(c.Watchers, i, job)
	}
}

// Join is a request of one agent process for membership.
type Join struct {
	api.AgentProfile
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

	RefusedProfile  = "profile"  // the agent's profile is too large
	RefusedProfiles = "profiles" // the profiles of the cluster's agents are too large together
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
	Status api.AgentStatus `json:"status,omitempty"`
	Reason string          `json:"reason,omitempty"`
	At     time.Time       `json:"at"`
	// Left: the agent said goodbye, so it is no member any more, and its roles are free at once.
	Left bool `json:"left,omitempty"`
	// LeaseRemaining is how long after the report the agent may go on with its roles; absent: a whole role lease.
	LeaseRemaining *api.Duration `json:"lease_remaining,omitempty"`
	// Evidence is the reason for giving the agent up, and NoticedAfter the time from its last sign of life.
	Evidence     api.Evidence `json:"evidence,omitempty"`
	NoticedAfter api.Duration `json:"noticed_after,omitempty"`
	// Attempts were under way on the agent, at most MaxTransfers of them; Unlisted counts the others.
	Attempts []HeldAttempt `json:"attempts,omitempty"`
	Unlisted int           `json:"unlisted,omitempty"`
	// AwaitedUntil is until when work waits for the agent although it is lost; zero: none does.
	AwaitedUntil time.Time `json:"awaited_until,omitzero"`
	// Health is the new health; nil: unchanged.
	Health *MemberHealth `json:"health,omitempty"`
}

// OnlineCount is the number of online members; suspect ones do not count.
func (c *Cluster) OnlineCount() int { return count(c.Members, hasStatus(api.AgentOnline)) }

// HealthyCount is the number of online members whose health is not critical or worse.
func (c *Cluster) HealthyCount() int {
	return count(c.Members, func(m *Member) bool {
		return m.Status == api.AgentOnline && !m.HealthLevel().WorseThan(api.HealthWarning)
	})
}

func hasStatus(s api.AgentStatus) func(*Member) bool {
	return func(m *Member) bool { return m.Status == s }
}

// Status judges the cluster by its online and its healthy members. A cluster that never had an agent and wants none is
// healthy.
func (c *Cluster) Status() api.ClusterStatus {
	online, healthy, wanted := c.OnlineCount(), c.HealthyCount(), c.Wanted()
	switch {
	case online < c.Config.MinAgents:
		return api.ClusterCritical
	case online == 0 && (len(c.Members) > 0 || wanted > 0):
		return api.ClusterCritical
	case healthy < wanted:
		return api.ClusterDegraded
	case wanted == 0 && healthy < len(c.Members)-count(c.Members, hasStatus(api.AgentMaintenance)):
		return api.ClusterDegraded
	}
	return api.ClusterHealthy
}

// EndsTree reports whether the member ends all processes of a task's command, or the task does not need that.
func (m *Member) EndsTree(taskType string, safety api.RetrySafety) bool {
	return m.EndsProcessTrees || !api.NeedsTreeEnd(taskType, safety)
}
