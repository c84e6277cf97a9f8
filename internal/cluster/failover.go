package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// HeldAttempt is an attempt that an agent had when it was lost.
type HeldAttempt struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
	// AwaitedUntil: it has not ended; until then its hub waits for the lost agent to come back with it.
	AwaitedUntil time.Time `json:"awaited_until,omitzero"`
}

// MovedBy says how many of the tasks under way another agent has begun or finished: "2 of 3 tasks", "no tasks".
func MovedBy(r *api.FailoverRecord) string { return movedOf(r.TasksTransferred, r.Tasks) }

// TakeTransfers records how the listed tasks stand, and that unlisted others were under way besides. It returns how
// many of the listed ones the failed agent has again.
func TakeTransfers(r *api.FailoverRecord, listed []api.Transfer, unlisted int) (back int) {
	r.Transfers, r.Tasks, r.TasksTransferred = listed, len(listed)+unlisted, 0
	for i := range listed {
		switch listed[i].To {
		case "":
		case r.FailedAgentID:
			back++
		default:
			r.TasksTransferred++
		}
	}
	if len(listed) > 0 {
		r.TasksTransferred += unlisted * r.TasksTransferred / len(listed)
	}
	return back
}

// EndOfFailover is the event of its end.
func EndOfFailover(r *api.FailoverRecord) Event {
	return Event{Type: api.EventFailoverEnded, EventData: api.EventData{
		Cluster: r.Cluster, AgentID: r.FailedAgentID, Epoch: r.Epoch, TargetAgentID: r.TargetAgentID, ID: r.ID,
		Count: r.TasksTransferred, Of: r.Tasks, Outcome: string(r.Status), Reason: r.Error,
	}}
}

func movedOf(moved, of int) string {
	if of == 0 {
		return "no tasks"
	}
	return fmt.Sprintf("%d of %s", moved, api.Count(of, "task"))
}

// FailoverNeed has the requirements for the target of a failover, and its preferred place.
type FailoverNeed struct {
	FailedAgent          string
	RequiredCapabilities []string
	// TaskTypes are the types of the work; the target must handle one of them. Empty: no type is asked for.
	TaskTypes []string
	// Affinity names agents, groups or zones to prefer, the first most.
	Affinity []string
}

// SelectTarget picks the agent that takes over from a failed one, and false when none can: it must be online, another
// one, handle a type of the work, and have every required capability; of these only the agents of the best level of
// health count, then those nearest to what Affinity names, then, where work moves to one agent, those with a free slot.
// loads are running tasks by agent id; load is compared by the share of slots in use. Ties go to the lower id, so equal
// facts give equal targets.
//
//   - standby: the standby that has stood by longest, else the least loaded
//   - least_loaded, and any unknown strategy: the least loaded
//   - round_robin: each in turn by id; it counts its choices in RoundRobin
//   - affinity: one of the failed agent's own group, then of its zone
func (c *Cluster) SelectTarget(strategy api.SelectionStrategy, need FailoverNeed, loads map[string]int) (string, bool) {
	var failed *Member
	var candidates []*Member
	for i := range c.Members {
		switch m := &c.Members[i]; {
		case m.AgentID == need.FailedAgent:
			failed = m
		case m.MayHold() && m.HandlesAny(need.TaskTypes) &&
			api.HasAll(m.Capabilities, need.RequiredCapabilities):
			candidates = append(candidates, m)
		}
	}
	if len(candidates) == 0 {
		return "", false
	}
	keepBest := func(rank func(*Member) int) {
		best := rank(slices.MinFunc(candidates, func(a, b *Member) int { return rank(a) - rank(b) }))
		candidates = slices.DeleteFunc(candidates, func(m *Member) bool { return rank(m) > best })
	}
	keepBest(func(m *Member) int { return m.HealthLevel().Rank() })
	keepBest(need.distance)
	if c.Config.ReplicationMode == api.ActiveActive {
		keepBest(func(m *Member) int { return min(loads[m.AgentID]/max(m.MaxTasks, 1), 1) })
	}
	rank := func(*Member) int { return 0 }
	switch strategy {
	case api.SelectRoundRobin:
		slices.SortFunc(candidates, func(a, b *Member) int { return strings.Compare(a.AgentID, b.AgentID) })
		next := candidates[uint64(c.RoundRobin)%uint64(len(candidates))]
		c.RoundRobin++
		return next.AgentID, true
	case api.SelectStandby:
		rank = func(m *Member) int {
			if i := slices.Index(c.Standbys, m.AgentID); i >= 0 {
				return i
			}
			return len(c.Standbys)
		}
	case api.SelectAffinity:
		rank = func(m *Member) int { return distance(m, failed) }
	}
	return slices.MinFunc(candidates, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareLoad(a, b, loads), strings.Compare(a.AgentID, b.AgentID))
	}).AgentID, true
}

// distance is how near m is to what Affinity names; less is nearer. An agent is nearer than a group, and this than a
// zone.
func (need *FailoverNeed) distance(m *Member) int {
	for i, near := range need.Affinity {
		if place := slices.Index([]string{m.AgentID, m.Group, m.Zone}, near); near != "" && place >= 0 {
			return 3*i + place
		}
	}
	return 3 * len(need.Affinity)
}

// distance is how near m is to the failed member, which is nil when it is no longer one; less is nearer.
func distance(m, failed *Member) int {
	switch {
	case failed != nil && failed.Group != "" && m.Group == failed.Group:
		return 0
	case failed != nil && failed.Zone != "" && m.Zone == failed.Zone:
		return 1
	}
	return 2
}
