package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// FailoverTrigger is the cause of a failover.
type FailoverTrigger string

// The triggers.
const (
	TriggerLost    FailoverTrigger = "lost"     // the hub gave the agent up
	TriggerHubLost FailoverTrigger = "hub_lost" // its hub was lost and it did not re-attach
	TriggerManual  FailoverTrigger = "manual"   // a person asked
)

// FailoverStatus is the outcome of a failover, or that it runs.
type FailoverStatus string

// The statuses.
const (
	FailoverRunning      FailoverStatus = "running"
	FailoverSucceeded    FailoverStatus = "succeeded"
	FailoverNotInCluster FailoverStatus = "not_in_cluster"
	FailoverNoTarget     FailoverStatus = "no_target_available" // the work waits in its lanes for an agent
	FailoverFailed       FailoverStatus = "failed"
)

// HeldAttempt is an attempt that an agent had when it was lost.
type HeldAttempt struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
}

// Transfer is the move of one task.
type Transfer struct {
	TaskID string `json:"task_id"`
	From   string `json:"from"`
	// To is the agent that has it now; empty while it waits, for a person or for an agent.
	To string `json:"to,omitempty"`
	// Epoch is the new agent's session's.
	Epoch      int64      `json:"epoch,omitempty"`
	RetryCount int        `json:"retry_count"`
	Status     TaskStatus `json:"status"`
	Why        string     `json:"why"`
	At         *time.Time `json:"at,omitempty"`
}

// FailoverRecord is the record of one failover.
type FailoverRecord struct {
	ID            string          `json:"id"`
	Cluster       string          `json:"cluster"`
	FailedAgentID string          `json:"failed_agent_id"`
	Epoch         int64           `json:"epoch"`
	TargetAgentID string          `json:"target_agent_id,omitempty"`
	Trigger       FailoverTrigger `json:"trigger"`
	Reason        string          `json:"reason,omitempty"`
	Status        FailoverStatus  `json:"status"`
	Error         string          `json:"error,omitempty"`
	// TasksTransferred counts the transfers that another agent has begun or finished.
	TasksTransferred int         `json:"tasks_transferred"`
	Transfers        []Transfer  `json:"transfers,omitempty"`
	Promoted         string      `json:"promoted,omitempty"`
	LeaderEpoch      int64       `json:"leader_epoch,omitempty"`
	Shards           []ShardMove `json:"shards,omitempty"`
	// Targets are the deployment targets that moved with its roles.
	Targets []string `json:"targets,omitempty"`
	// StateSync is the outcome of the state sync after a promotion; empty: this failover made none.
	StateSync   SyncStatus `json:"state_sync,omitempty"`
	NoticedAt   time.Time  `json:"noticed_at"`
	StartedAt   time.Time  `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
}

// MaxTransfers bounds the attempts that one failover records; others move without a record.
const MaxTransfers = 500

// FailoverNeed has the requirements for the target of a failover, and its preferred place.
type FailoverNeed struct {
	FailedAgent          string   `json:"failed_agent"`
	RequiredCapabilities []string `json:"required_capabilities,omitempty"`
	// Affinity names an agent, a group or a zone to prefer.
	Affinity string `json:"affinity,omitempty"`
	// RoundRobin is how many targets the round_robin strategy picked before: Cluster.RoundRobin.
	RoundRobin int64 `json:"round_robin,omitempty"`
}

// SelectTarget picks the agent that takes over from a failed one, and false when none can: it must be online,
// another one, and have every required capability. loads are running tasks by agent id; load is compared by the share
// of slots in use. Ties go to the lower id, so equal facts give equal targets.
//
//   - standby: standbys first, then the least loaded
//   - least_loaded, and any unknown strategy: the least loaded
//   - round_robin: each in turn by id, as the counter says
//   - affinity: the agent, group or zone that Affinity names, then the failed agent's own group, then its zone
func SelectTarget(
	strategy SelectionStrategy, members []Member, roles func(id string) Role, loads map[string]int, f FailoverNeed,
) (string, bool) {
	var failed *Member
	var candidates []*Member
	for i := range members {
		switch m := &members[i]; {
		case m.AgentID == f.FailedAgent:
			failed = m
		case m.Status == AgentOnline && HasAll(m.Capabilities, f.RequiredCapabilities):
			candidates = append(candidates, m)
		}
	}
	if len(candidates) == 0 {
		return "", false
	}
	rank := func(*Member) int { return 0 }
	switch strategy {
	case SelectRoundRobin:
		slices.SortFunc(candidates, func(a, b *Member) int { return strings.Compare(a.AgentID, b.AgentID) })
		return candidates[uint64(f.RoundRobin)%uint64(len(candidates))].AgentID, true
	case SelectStandby:
		rank = func(m *Member) int {
			if roles(m.AgentID) == RoleStandby {
				return 0
			}
			return 1
		}
	case SelectAffinity:
		rank = func(m *Member) int { return affinityRank(m, failed, f.Affinity) }
	}
	return slices.MinFunc(candidates, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareLoad(a, b, loads), strings.Compare(a.AgentID, b.AgentID))
	}).AgentID, true
}

// affinityRank is how near m is to the preferred place; less is nearer. failed is nil when it is no longer a member.
func affinityRank(m, failed *Member, affinity string) int {
	switch {
	case affinity != "" && m.AgentID == affinity:
		return 0
	case affinity != "" && m.Group == affinity:
		return 1
	case affinity != "" && m.Zone == affinity:
		return 2
	case failed != nil && failed.Group != "" && m.Group == failed.Group:
		return 3
	case failed != nil && failed.Zone != "" && m.Zone == failed.Zone:
		return 4
	}
	return 5
}
