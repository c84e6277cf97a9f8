package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RolloutPolicy says how spawned agents are replaced when what they are started with has changed.
type RolloutPolicy struct {
	MaxUnavailable int      `json:"max_unavailable,omitempty" yaml:"max_unavailable" minimum:"0" maximum:"50" doc:"How many agents may be missing while others are started in their place. Default 1."`
	HealthyTime    Duration `json:"healthy_time,omitempty" yaml:"healthy_time" doc:"How long a new agent must be online before it counts as healthy. Default 10s."`
	Deadline       Duration `json:"deadline,omitempty" yaml:"deadline" doc:"The rollout fails when it does not get on for so long. Default 10m; longer than a drain, a start and healthy_time together."`
	AutoRevert     bool     `json:"auto_revert,omitempty" yaml:"auto_revert" doc:"After a rollout that failed, the settings of the last that succeeded are put in force again."`
}

func (p *RolloutPolicy) withDefaults() *RolloutPolicy {
	if p == nil {
		return nil
	}
	q := *p
	defaultTo(&q.MaxUnavailable, 1)
	defaultTo(&q.HealthyTime, Duration(10*time.Second))
	defaultTo(&q.Deadline, Duration(10*time.Minute))
	return &q
}

func (p *RolloutPolicy) validate(spawn *SpawnPolicy) error {
	if p == nil {
		return nil
	}
	if p.MaxUnavailable < 1 || p.MaxUnavailable > MaxScaleStep {
		return wrongField("scaling.rollout.max_unavailable", "must lie between 1 and %d", MaxScaleStep)
	}
	if err := ValidateDuration("scaling.rollout.healthy_time", p.HealthyTime, time.Second, time.Hour); err != nil {
		return err
	}
	return ValidateDuration("scaling.rollout.deadline", p.Deadline,
		(spawn.DrainTimeout + spawn.JoinTimeout + p.HealthyTime).Std(), 7*24*time.Hour)
}

// RolloutStatus is where a rollout stands.
type RolloutStatus string

// The statuses of a rollout.
const (
	RolloutRunning    RolloutStatus = "running"
	RolloutSuccessful RolloutStatus = "successful"
	RolloutFailed     RolloutStatus = "failed"
	RolloutCancelled  RolloutStatus = "cancelled" // scaling or its rollout was taken from the settings
)

// Rollout is how new agents take the place of those that were started with other settings.
type Rollout struct {
	Number int           `json:"number"`
	Status RolloutStatus `json:"status"`
	Reason string        `json:"reason,omitempty"`
	// Revert: it puts earlier settings in force again, and is not reverted itself.
	Revert bool `json:"revert,omitempty"`
	// Former are the settings before, and Stable the agents that have them.
	Former SpawnPolicy `json:"former"`
	Stable []string    `json:"stable,omitempty"`
	// Old are the agents to replace; Left is how many of them serve, and Healthy how many others are healthy.
	Old     []string `json:"old,omitempty"`
	Left    int      `json:"left"`
	Healthy int      `json:"healthy"`
	// ProgressAt is when it got on last; Best is how many new agents were healthy at once.
	Best       int       `json:"best,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	ProgressAt time.Time `json:"progress_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

func (r *Rollout) end(status RolloutStatus, reason string, now time.Time) {
	r.Status, r.EndedAt = status, now
	if reason != "" {
		r.Reason = reason
	}
}

// startsAlike reports whether agents started with either settings are the same.
func startsAlike(a, b SpawnPolicy) bool {
	for _, s := range []*SpawnPolicy{&a, &b} {
		s.JoinTimeout, s.DrainTimeout, s.Backoff = 0, 0, SpawnBackoff{}
	}
	//workflowcheck:ignore
	x, errX := json.Marshal(a) // maps are written in the order of their keys
	//workflowcheck:ignore
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// RollOut begins a rollout if agents were started with other settings than those now in force.
func (c *Cluster) RollOut(before SpawnPolicy, now time.Time) {
	p := &c.Config.Scaling
	if p.Rollout == nil || !p.On() || startsAlike(before, p.Spawn) {
		return
	}
	c.beginRollout(before, "", now)
}

func (c *Cluster) beginRollout(before SpawnPolicy, why string, now time.Time) {
	s := c.scaling()
	spawned := c.spawned()
	next := Rollout{Number: 1, Status: RolloutRunning, Reason: why, Former: before, Stable: spawned, Old: spawned,
		StartedAt: now, ProgressAt: now}
	if last := s.Rollout; last != nil {
		next.Number = last.Number + 1
		if last.Status != RolloutSuccessful { // what it was to replace is still the last that was known to do
			next.Former, next.Stable = last.Former, last.Stable
		}
		if next.Revert = last.Status != RolloutSuccessful &&
			startsAlike(last.Former, c.Config.Scaling.Spawn); next.Revert {
			next.Old = slices.DeleteFunc(slices.Clone(spawned),
				func(agent string) bool { return slices.Contains(last.Stable, agent) })
		}
	}
	next.Left = len(next.Old)
	s.Rollout, s.Blocked = &next, nil
}

// spawned are the agents that spawners have started, or are about to.
func (c *Cluster) spawned() []string {
	var list []string
	for i := range c.Members {
		if _, spawned := c.Members[i].SpawnedBy(); spawned {
			list = append(list, c.Members[i].AgentID)
		}
	}
	for _, a := range c.Scaling.Active {
		if a.Change == ScaleUp {
			list = append(list, a.Agents...)
		}
	}
	return SortedSet(list)
}

// rolling is the rollout under way, or nil.
func (c *Cluster) rolling() *Rollout {
	if c.Scaling == nil || c.Scaling.Rollout == nil || c.Scaling.Rollout.Status != RolloutRunning {
		return nil
	}
	return c.Scaling.Rollout
}

// RollsOut reports whether a rollout is under way.
func (c *Cluster) RollsOut() bool { return c.rolling() != nil }

// AdvanceRollout ends a rollout that is done or late. It reports whether it put the former settings in force again.
func (c *Cluster) AdvanceRollout(now time.Time) (reverted bool) {
	r, p := c.rolling(), &c.Config.Scaling
	switch {
	case r == nil:
		return false
	case p.Rollout == nil || !p.On():
		r.end(RolloutCancelled, "the cluster's settings ask for no rollouts any more", now)
		return false
	case len(c.BrakeHolds) > 0:
		r.ProgressAt = now // nothing is started or stopped meanwhile
		return false
	}
	d := scaler{Cluster: c, now: now, policy: p}
	d.count()
	left := len(d.outdated(r))
	healthy, _ := d.healthy(r)
	r.Healthy = healthy - left
	if left < r.Left || r.Healthy > r.Best {
		r.ProgressAt = now
	}
	r.Left, r.Best = left, max(r.Best, r.Healthy)
	if left == 0 && healthy >= d.goal() {
		r.end(RolloutSuccessful, "", now)
		r.Old, r.Stable = nil, nil
		return false
	}
	if now.Before(r.ProgressAt.Add(p.Rollout.Deadline.Std())) {
		return false
	}
	why := fmt.Sprintf("it did not get on for %s: %s of the former settings left, and %d of the others healthy",
		p.Rollout.Deadline, Count(left, "agent"), r.Healthy)
	if b := c.Scaling.Blocked; b != nil {
		why += "; " + b.Reason
	}
	r.end(RolloutFailed, why, now)
	if !p.Rollout.AutoRevert || r.Revert {
		return false
	}
	p.Spawn = r.Former
	c.beginRollout(p.Spawn, fmt.Sprintf("rollout %d failed: %s", r.Number, why), now)
	return true
}

// NextRollout is when the rollout under way gets on, or fails, without being told of anything; zero: at no time.
func (c *Cluster) NextRollout(now time.Time) time.Time {
	r, p := c.rolling(), &c.Config.Scaling
	if r == nil || p.Rollout == nil || len(c.BrakeHolds) > 0 {
		return time.Time{}
	}
	d := scaler{Cluster: c, now: now, policy: p}
	d.count()
	_, next := d.healthy(r)
	return sooner(next, r.ProgressAt.Add(p.Rollout.Deadline.Std()))
}

// goal is how many agents are wanted.
func (d *scaler) goal() int {
	return min(max(d.scalingTarget(), d.Config.MinAgents), d.Config.MaxAgents)
}

func (d *scaler) outdated(r *Rollout) []string {
	var old []string
	for _, m := range d.serving {
		if slices.Contains(r.Old, m.AgentID) {
			old = append(old, m.AgentID)
		}
	}
	return old
}

// healthy counts the serving agents without the new ones that are not online for long enough, of which next is the
// first to be.
func (d *scaler) healthy(r *Rollout) (count int, next time.Time) {
	for _, m := range d.serving {
		at := m.StatusSince.Add(d.policy.Rollout.HealthyTime.Std())
		if slices.Contains(r.Old, m.AgentID) || !d.mayStop(m) || !d.now.Before(at) {
			count++
		} else {
			next = sooner(next, at)
		}
	}
	return count, next
}

// rollOut stops old agents, as many as may be missing; the cluster then starts new ones in their place.
func (d *scaler) rollOut() ScalingDecision {
	r := d.rolling()
	if r == nil || d.policy.Rollout == nil {
		return ScalingDecision{}
	}
	old, most := d.outdated(r), d.policy.Rollout.MaxUnavailable
	healthy, _ := d.healthy(r)
	count := min(len(old), most, healthy-(d.goal()-most))
	if count <= 0 {
		return ScalingDecision{}
	}
	why := fmt.Sprintf("rollout %d replaces agents that were started with other settings", r.Number)
	if d.facts == nil {
		return ScalingDecision{Rule: RuleRollout, NeedFacts: true, Reason: why + "; which ones first depends on what they do"}
	}
	var agents []string
	for _, a := range d.stoppable() {
		if slices.Contains(old, a.AgentID) && len(agents) < count {
			agents = append(agents, a.AgentID)
		}
	}
	if len(agents) == 0 {
		return ScalingDecision{}
	}
	return ScalingDecision{Change: ScaleDown, Count: len(agents), Agents: agents, Target: d.scalingTarget(),
		Rule: RuleRollout, Reason: why + ": " + strings.Join(agents, ", ")}
}
