package task

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Candidate is an agent that may get a task, with live facts.
type Candidate struct {
	AgentID       string
	Capabilities  []string // sorted
	TaskTypes     []string // sorted; empty means any
	Labels        map[string]string
	Running       int
	MaxTasks      int
	Health        api.HealthLevel // empty counts as healthy
	CPUPercent    *float64        // nil: unknown
	MemoryPercent *float64
	Providers     api.Providers
	// EndsProcessTrees: no process of an exec task outlives its attempt or the agent.
	EndsProcessTrees bool
	// Inventory is what it offers, and Stock the part left now; only tasks that ask for resources need them.
	Inventory *api.Inventory
	Stock     *Stock
}

// Room rates the candidate without regard to a task: the larger, the better. It goes by the level of health first.
func (c *Candidate) Room() float64 {
	const level = 1000 // more than a score
	return c.Score(&api.TaskSpec{}, time.Time{}) - level*float64(c.Health.Rank())
}

// FreeSlots is how many more tasks the candidate may run.
func (c *Candidate) FreeSlots() int { return c.MaxTasks - c.Running }

// Eligible reports whether the candidate can run the task now, with or without a free slot.
func (c *Candidate) Eligible(spec *api.TaskSpec, now time.Time) bool {
	return !c.limited(spec, now) && c.Fits(spec)
}

func (c *Candidate) limited(spec *api.TaskSpec, now time.Time) bool {
	if spec.Provider == "" {
		return false
	}
	_, limited := c.Providers.LimitedUntil(spec.Provider, now)
	return limited
}

// Fits reports whether the candidate can run the task at all, busy or rate limited too.
func (c *Candidate) Fits(spec *api.TaskSpec) bool {
	return c.handles(spec) && FitsOn(&spec.Place, c.Inventory)
}

// handles reports whether the candidate could run the task if it had the resources that this asks for.
func (c *Candidate) handles(spec *api.TaskSpec) bool {
	if spec.Agent != "" && spec.Agent != c.AgentID {
		return false
	}
	if len(c.TaskTypes) > 0 {
		if _, handles := slices.BinarySearch(c.TaskTypes, spec.Type); !handles {
			return false
		}
	}
	if spec.NeedsTreeEnd() && !c.EndsProcessTrees {
		return false
	}
	return api.HasAll(c.Capabilities, spec.RequiredCapabilities)
}

// Score rates an eligible candidate; more is better. 100, +10 for each preferred capability, −0.3 per cent of CPU,
// −0.2 per cent of memory (50 while they are unknown), +20 with access to the task's provider that is not rate limited,
// −40 for a full agent in proportion to its used slots, +20 when the task's affinity names the agent.
func (c *Candidate) Score(spec *api.TaskSpec, now time.Time) float64 {
	score := 100.0
	for _, want := range spec.PreferredCapabilities {
		if _, has := slices.BinarySearch(c.Capabilities, want); has {
			score += 10
		}
	}
	if spec.Affinity != "" && spec.Affinity == c.AgentID {
		score += 20
	}
	if spec.Provider != "" && c.Providers.Usable(spec.Provider, now) {
		score += 20
	}
	score -= 0.3*orHalf(c.CPUPercent) + 0.2*orHalf(c.MemoryPercent)
	if c.MaxTasks > 0 {
		score -= 40 * float64(c.Running) / float64(c.MaxTasks)
	}
	return score
}

// orHalf is a used part in per cent; unknown is neither good nor bad.
func orHalf(percent *float64) float64 {
	if percent == nil {
		return 50
	}
	return *percent
}

// Hint has a failover's preferences for a placement.
type Hint struct {
	Prefer string // takes the task if it can
	Avoid  string // takes the task only if no other agent can
}

func (h Hint) rank(agentID string) int {
	switch agentID {
	case h.Prefer:
		return 1
	case h.Avoid:
		return -1
	}
	return 0
}

// packing weighs how full a task's devices would be: more than the share of used slots, so that devices fill up one
// after another.
const packing = 100

// Place picks the best eligible candidate with a free slot and what the task asks for, or -1: by the hint, then by the
// level of health, then by the score. A candidate's score is Score, +100 for devices that the task would
// fill up. Ties go to the lower id, so equal facts give equal decisions.
func Place(spec *api.TaskSpec, candidates []Candidate, hint Hint, now time.Time) int {
	best, bestRank, bestHealth, bestScore := -1, 0, 0, 0.0
	for i := range candidates {
		c := &candidates[i]
		if c.FreeSlots() <= 0 || c.limited(spec, now) || !c.handles(spec) {
			continue
		}
		rank, health, score := hint.rank(c.AgentID), c.Health.Rank(), c.Score(spec, now)
		if !spec.Place.IsZero() {
			allocation, lacking := c.Stock.Allocate(&spec.Place)
			if lacking != "" {
				continue
			}
			score += packing * c.Stock.Fullness(allocation)
		}
		better := best < 0 || cmp.Or(cmp.Compare(rank, bestRank), cmp.Compare(bestHealth, health),
			cmp.Compare(score, bestScore), strings.Compare(candidates[best].AgentID, c.AgentID)) > 0
		if better {
			best, bestRank, bestHealth, bestScore = i, rank, health, score
		}
	}
	return best
}
