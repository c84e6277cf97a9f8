package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	agent := func(id string, change func(*Candidate)) Candidate {
		c := Candidate{AgentID: id, MaxTasks: 4}
		if change != nil {
			change(&c)
		}
		return c
	}
	tests := []struct {
		name       string
		spec       api.TaskSpec
		candidates []Candidate
		hint       Hint
		want       string
	}{
		{"none", api.TaskSpec{}, nil, Hint{}, ""},
		{"equal: lower id", api.TaskSpec{}, []Candidate{agent("b", nil), agent("a", nil)}, Hint{}, "a"},
		{"less loaded", api.TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 2 }), agent("b", nil)},
			Hint{}, "b"},
		{"full", api.TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 4 })}, Hint{}, ""},
		{"unknown is better than busy", api.TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.CPUPercent = new(90.) }),
			agent("b", nil)}, Hint{}, "b"},
		{"unknown is worse than idle", api.TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.CPUPercent = new(0.) })}, Hint{}, "b"},
		{"required capability", api.TaskSpec{RequiredCapabilities: []string{"gpu"}},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"gpu"} })}, Hint{},
			"b"},
		{"no such capability", api.TaskSpec{RequiredCapabilities: []string{"gpu"}}, []Candidate{agent("a", nil)}, Hint{},
			""},
		{"preferred capability", api.TaskSpec{PreferredCapabilities: []string{"ssd"}},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"ssd"} })}, Hint{},
			"b"},
		{"affinity", api.TaskSpec{Affinity: "b"}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 1 })}, Hint{}, "b"},
		{"pinned", api.TaskSpec{Agent: "b"}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running = 3 })},
			Hint{}, "b"},
		{"task type", api.TaskSpec{Type: "exec"}, []Candidate{agent("a",
			func(c *Candidate) { c.TaskTypes = []string{"echo"} }), agent("b",
			func(c *Candidate) { c.TaskTypes = []string{"echo", "exec"} })}, Hint{}, "b"},
		{"fenced command", api.TaskSpec{Type: "exec", RetrySafety: api.Fenced},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running, c.EndsProcessTrees = 3, true })},
			Hint{Prefer: "a"}, "b"},
		{"at_most_once command, nobody ends trees", api.TaskSpec{Type: "exec", RetrySafety: api.AtMostOnce},
			[]Candidate{agent("a", nil)}, Hint{}, ""},
		{"unmarked command, nobody ends trees", api.TaskSpec{Type: "exec", RetrySafety: api.Unmarked},
			[]Candidate{agent("a", nil)}, Hint{}, ""},
		{"idempotent command", api.TaskSpec{Type: "exec"}, []Candidate{agent("a", nil)}, Hint{}, "a"},
		{"fenced, but no command", api.TaskSpec{Type: "render", RetrySafety: api.Fenced}, []Candidate{agent("a", nil)}, Hint{},
			"a"},
		{"avoids the one that was lost", api.TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 3 })}, Hint{Avoid: "a"}, "b"},
		{"the avoided is better than none", api.TaskSpec{}, []Candidate{agent("a", nil)}, Hint{Avoid: "a"}, "a"},
		{"prefers the target", api.TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 3 })}, Hint{Prefer: "b"}, "b"},
		{"provider access", api.TaskSpec{Provider: "llm"}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) {
				c.Running, c.Providers = 1,
					api.Providers{"llm": {Available: true}}
			})}, Hint{}, "b"},
		{"provider access is only preferred", api.TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", func(c *Candidate) { c.Providers = api.Providers{"llm": {}} })}, Hint{}, "a"},
		{"rate limited", api.TaskSpec{Provider: "llm"}, []Candidate{agent("a", limited("llm", now.Add(time.Second)))},
			Hint{}, ""},
		{"rate limited, but not for this task", api.TaskSpec{Provider: "other"},
			[]Candidate{agent("a", limited("llm", now.Add(time.Second)))}, Hint{}, "a"},
		{"rate limited until now", api.TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", limited("llm", now)), agent("b", nil)}, Hint{}, "a"},
		{"a rate-limited target is no target", api.TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", nil), agent("b", limited("llm", now.Add(time.Second)))}, Hint{Prefer: "b"}, "a"},
		{"a full target is no target", api.TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 4 })}, Hint{Prefer: "b"}, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if i := Place(&tt.spec, tt.candidates, tt.hint, now); i >= 0 {
				got = tt.candidates[i].AgentID
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// A worked example: 100 + 10 per preferred capability − 0.3 cpu − 0.2 memory.
func TestScore(t *testing.T) {
	t.Parallel()
	c := Candidate{AgentID: "a", Capabilities: []string{"docker", "gpu"}, MaxTasks: 10, CPUPercent: new(50.),
		MemoryPercent: new(40.)}
	require.InDelta(t, 100+20-15-8, c.Score(&api.TaskSpec{PreferredCapabilities: []string{"docker", "gpu", "tpu"}},
		time.Time{}), 1e-9)
}
