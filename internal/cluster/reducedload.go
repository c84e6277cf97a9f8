package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// DefaultReduceFor is how long an agent has fewer slots by default.
	DefaultReduceFor = 10 * time.Minute
	// MaxReduceFor bounds it.
	MaxReduceFor = 7 * 24 * time.Hour
	// RestoreStep is the time between two steps in which an agent gets slots back.
	RestoreStep = 30 * time.Second
	// DefaultReduceFactor is the share of its slots that an agent keeps.
	DefaultReduceFactor = 0.5
)

// LoadReduction limits an agent to fewer tasks at a time than it has slots. Its running tasks go on. It belongs to the
// agent's id, like a cordon.
type LoadReduction struct {
	AgentID string `json:"agent_id"`
	// Slots is how many it may use now.
	Slots  int       `json:"slots"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when it begins to get its slots back, step by step
	Reason string    `json:"reason,omitempty"`
	// UntilHealthy gives them back earlier, once the agent is healthy again.
	UntilHealthy bool `json:"until_healthy,omitempty"`
	// NextStep is when to check it again.
	NextStep time.Time `json:"next_step"`
}

// Reduce is a request: a number of slots, or a share of the agent's slots; neither means half.
type Reduce struct {
	Slots        int           `json:"slots,omitempty"`
	Factor       float64       `json:"factor,omitempty"`
	For          time.Duration `json:"for,omitempty"` // 0: DefaultReduceFor
	UntilHealthy bool          `json:"until_healthy,omitempty"`
	Reason       string        `json:"reason,omitempty"`
}

// Validate checks what can be checked without the agent.
func (r Reduce) Validate() error {
	switch {
	case r.Slots != 0 && r.Factor != 0:
		return fmt.Errorf("give slots or factor, not both")
	case r.Slots < 0:
		return fmt.Errorf("slots must be 1 or more")
	case r.Factor != 0 && !(r.Factor > 0 && r.Factor < 1): // also refuses NaN
		return fmt.Errorf("factor must lie between 0 and 1, as in 0.5 for half of its slots")
	case r.For < 0 || r.For > MaxReduceFor:
		return fmt.Errorf("for must lie between 1s and %s", api.Duration(MaxReduceFor).Std())
	}
	return nil
}

// SlotsOf is how many of an agent's slots are left, at least one. It does not depend on an earlier reduction, so a
// repeated request changes nothing.
func (r Reduce) SlotsOf(maxTasks int) int {
	if r.Slots > 0 {
		return min(r.Slots, maxTasks)
	}
	return max(1, int(float64(maxTasks)*cmp.Or(r.Factor, DefaultReduceFactor)))
}

// Reductions are the agents that may use fewer slots than they have, sorted by id.
type Reductions []LoadReduction

// Of returns an agent's reduction, or nil.
func (l Reductions) Of(agentID string) *LoadReduction {
	if i, found := l.search(agentID); found {
		return &l[i]
	}
	return nil
}

func (l Reductions) search(agentID string) (int, bool) {
	return search(l, agentID, func(r LoadReduction) string { return r.AgentID })
}

// EffectiveSlots is how many tasks a member may run at a time now.
func (c *Cluster) EffectiveSlots(m *Member) int {
	if r := c.Reductions.Of(m.AgentID); r != nil {
		return min(r.Slots, m.MaxTasks)
	}
	return m.MaxTasks
}

// ReduceLoad limits a member's slots, or changes their number and time. It reports whether the number of slots changed.
func (c *Cluster) ReduceLoad(agentID string, r Reduce, now time.Time) (changed bool, err error) {
	m := c.Member(agentID)
	if m == nil {
		return false, fmt.Errorf("the agent is not a member of the cluster")
	}
	if err := r.Validate(); err != nil {
		return false, err
	}
	slots := r.SlotsOf(m.MaxTasks)
	if slots >= m.MaxTasks {
		if m.MaxTasks <= 1 {
			return false, fmt.Errorf("the agent has one slot, so its load cannot be reduced: drain it instead")
		}
		return false, fmt.Errorf("the agent has %d slots: name fewer", m.MaxTasks)
	}
	before := c.EffectiveSlots(m)
	next := LoadReduction{AgentID: agentID, Slots: slots, Since: now,
		Until: now.Add(cmp.Or(r.For, DefaultReduceFor)), Reason: noteOf(r.Reason), UntilHealthy: r.UntilHealthy}
	next.NextStep = next.Until
	if r.UntilHealthy {
		next.NextStep = earliest(next.Until, now.Add(RestoreStep))
	}
	i, found := c.Reductions.search(agentID)
	if found {
		next.Since = c.Reductions[i].Since
		if next.Reason == "" {
			next.Reason = c.Reductions[i].Reason
		}
		c.Reductions[i] = next
	} else {
		c.Reductions = slices.Insert(c.Reductions, i, next)
	}
	return before != slots, nil
}

// Restore gives an agent all its slots back at once. It reports whether it had fewer.
func (l *Reductions) Restore(agentID string) bool {
	i, found := l.search(agentID)
	if found {
		*l = slices.Delete(*l, i, i+1)
	}
	return found
}

// resume brings the next check of a returned agent forward: while it was no member, its next step was the end of its
// reduction.
func (l Reductions) resume(agentID string, now time.Time) {
	if r := l.Of(agentID); r != nil && r.UntilHealthy {
		r.NextStep = earliest(r.NextStep, now.Add(RestoreStep))
	}
}

// NextStep is when StepReductions has something to do; zero: never.
func (l Reductions) NextStep() time.Time {
	var next time.Time
	for i := range l {
		next = Sooner(next, l[i].NextStep)
	}
	return next
}

// HealthAwaited names the agents whose health decides on their next step, which is due.
func (l Reductions) HealthAwaited(now time.Time) []string {
	var agents []string
	for i := range l {
		if r := &l[i]; r.UntilHealthy && !now.Before(r.NextStep) && now.Before(r.Until) {
			agents = append(agents, r.AgentID)
		}
	}
	return agents
}

// StepReductions gives a quarter of their slots back to agents whose time has come, or who are healthy again. It
// reports whether any agent's slots changed.
func (c *Cluster) StepReductions(healthy map[string]bool, now time.Time) bool {
	changed := false
	c.Reductions = slices.DeleteFunc(c.Reductions, func(r LoadReduction) bool {
		m := c.Member(r.AgentID)
		if m == nil {
			return !now.Before(r.Until) // it left
		}
		return r.Slots >= m.MaxTasks && !now.Before(r.NextStep) // it came back with fewer
	})
	kept := c.Reductions[:0]
	for _, r := range c.Reductions {
		m := c.Member(r.AgentID)
		if now.Before(r.NextStep) {
			kept = append(kept, r)
			continue
		}
		over := !now.Before(r.Until)
		r.NextStep = now.Add(RestoreStep)
		if !over {
			r.NextStep = earliest(r.NextStep, r.Until)
		}
		if m == nil {
			r.NextStep = r.Until
		} else if over || r.UntilHealthy && healthy[r.AgentID] {
			r.Slots = min(m.MaxTasks, r.Slots+max(1, m.MaxTasks/4))
			changed = true
			if r.Slots == m.MaxTasks {
				continue
			}
		}
		kept = append(kept, r)
	}
	c.Reductions = kept
	return changed
}

// Limits are how many slots each of the agents may use, by agent id.
func (l Reductions) Limits() map[string]int {
	if len(l) == 0 {
		return nil
	}
	limits := make(map[string]int, len(l))
	for i := range l {
		limits[l[i].AgentID] = l[i].Slots
	}
	return limits
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Sooner is the earlier of two times; a zero one is none.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return Later(a, b)
	}
	return earliest(a, b)
}
