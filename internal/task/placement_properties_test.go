package task

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

var placementNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// limited gives a candidate a provider that is rate limited until a time.
func limited(provider string, until time.Time) func(*Candidate) {
	return func(c *Candidate) {
		c.Providers = api.Providers{provider: {Available: true, RateLimitedUntil: &until}}
	}
}

func drawSubset(t *rapid.T, label string, of ...string) []string {
	var set []string
	for _, item := range of {
		if rapid.Bool().Draw(t, label+" "+item) {
			set = append(set, item)
		}
	}
	return set
}

func drawCandidate(t *rapid.T, id string) Candidate {
	c := Candidate{
		AgentID:      id,
		MaxTasks:     rapid.IntRange(1, 8).Draw(t, "slots"),
		Capabilities: drawSubset(t, "capability", "big", "gpu", "ssd"),
		TaskTypes:    drawSubset(t, "type", "echo", "exec"), CPUPercent: new(rapid.Float64Range(0, 100).Draw(t, "cpu")),
		MemoryPercent: new(rapid.Float64Range(0, 100).Draw(t, "memory")),
	}
	c.Running = rapid.IntRange(0, c.MaxTasks).Draw(t, "running")
	if rapid.Bool().Draw(t, "told of the provider") {
		access := api.ProviderAccess{Available: rapid.Bool().Draw(t, "access")}
		if rapid.Bool().Draw(t, "was limited") {
			until := placementNow.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "until")) * time.Second)
			access.RateLimitedUntil = &until
		}
		c.Providers = api.Providers{"llm": access}
	}
	return c
}

func drawCandidates(t *rapid.T) []Candidate {
	candidates := make([]Candidate, rapid.IntRange(0, 6).Draw(t, "agents"))
	for i := range candidates {
		candidates[i] = drawCandidate(t, string(rune('a'+i)))
	}
	return candidates
}

func drawSpec(t *rapid.T) api.TaskSpec {
	return api.TaskSpec{
		Type:                  rapid.SampledFrom([]string{"echo", "exec"}).Draw(t, "task type"),
		RequiredCapabilities:  drawSubset(t, "requires", "gpu"),
		PreferredCapabilities: drawSubset(t, "prefers", "big", "ssd"),
		Provider:              rapid.SampledFrom([]string{"", "llm"}).Draw(t, "provider"),
		Affinity:              rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "affinity"),
		Agent:                 rapid.SampledFrom([]string{"", "", "c"}).Draw(t, "pinned"),
	}
}

// The chosen agent can run the task, has a slot, and is not rate limited. None is chosen only if none could run it.
func TestPlacePicksOnlyEligibleAgents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec, candidates := drawSpec(t), drawCandidates(t)
		hint := Hint{Prefer: rapid.SampledFrom([]string{"", "a"}).Draw(t, "target"),
			Avoid: rapid.SampledFrom([]string{"", "b"}).Draw(t, "avoid")}
		can := func(c Candidate) bool { return c.FreeSlots() > 0 && c.Eligible(&spec, placementNow) }
		chosen := Place(&spec, candidates, hint, placementNow)
		if chosen < 0 {
			if slices.ContainsFunc(candidates, can) {
				t.Fatal("somebody could have taken it")
			}
			return
		}
		c := candidates[chosen]
		if !can(c) {
			t.Fatalf("%+v cannot take it", c)
		}
		if until, limited := c.Providers.LimitedUntil(spec.Provider, placementNow); spec.Provider != "" && limited {
			t.Fatalf("%s is rate limited until %s", c.AgentID, until)
		}
	})
}

// The order in which hubs come to know of agents does not matter.
func TestPlaceIsDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec, candidates := drawSpec(t), drawCandidates(t)
		name := func(list []Candidate) string {
			if i := Place(&spec, list, Hint{}, placementNow); i >= 0 {
				return list[i].AgentID
			}
			return ""
		}
		want := name(candidates)
		if got := name(rapid.Permutation(candidates).Draw(t, "order")); got != want {
			t.Fatalf("%q in one order, %q in another", want, got)
		}
	})
}

// No advantage lowers a score: a preferred capability, an idle processor, free memory, free slots, the provider.
func TestScoreIsMonotonic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec, c := drawSpec(t), drawCandidate(t, "a")
		before := c.Score(&spec, placementNow)
		better := c
		switch rapid.SampledFrom([]string{"capability", "cpu", "memory", "slots", "provider"}).Draw(t, "improves") {
		case "capability":
			better.Capabilities = []string{"big", "gpu", "ssd"}
		case "cpu":
			better.CPUPercent = new(rapid.Float64Range(0, *c.CPUPercent).Draw(t, "less cpu"))
		case "memory":
			better.MemoryPercent = new(rapid.Float64Range(0, *c.MemoryPercent).Draw(t, "less memory"))
		case "slots":
			better.Running = rapid.IntRange(0, c.Running).Draw(t, "fewer tasks")
		case "provider":
			better.Providers = api.Providers{"llm": {Available: true}}
		}
		if after := better.Score(&spec, placementNow); after < before {
			t.Fatalf("%g, and %g when it is better: %+v", before, after, better)
		}
	})
}

// Equal agents get equal shares, and full ones nothing more.
func TestPlaceSpreadsLoad(t *testing.T) {
	t.Parallel()
	const agents, slots = 7, 10
	candidates := make([]Candidate, agents)
	for i := range candidates {
		candidates[i] = Candidate{AgentID: string(rune('a' + i)), MaxTasks: slots}
	}
	for n := range agents * slots {
		chosen := Place(&api.TaskSpec{}, candidates, Hint{}, placementNow)
		require.GreaterOrEqual(t, chosen, 0)
		candidates[chosen].Running++
		least, most := slots, 0
		for _, c := range candidates {
			least, most = min(least, c.Running), max(most, c.Running)
		}
		require.LessOrEqual(t, most-least, 1, "after %d tasks", n+1)
	}
	require.Equal(t, -1, Place(&api.TaskSpec{}, candidates, Hint{}, placementNow))
}
