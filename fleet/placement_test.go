package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		spec       TaskSpec
		candidates []Candidate
		hint       Hint
		want       string
	}{
		{"none", TaskSpec{}, nil, Hint{}, ""},
		{"equal: lower id", TaskSpec{}, []Candidate{agent("b", nil), agent("a", nil)}, Hint{}, "a"},
		{"less loaded", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 2 }), agent("b", nil)},
			Hint{}, "b"},
		{"full", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 4 })}, Hint{}, ""},
		{"unknown is better than busy", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.CPUPercent = new(90.) }),
			agent("b", nil)}, Hint{}, "b"},
		{"unknown is worse than idle", TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.CPUPercent = new(0.) })}, Hint{}, "b"},
		{"required capability", TaskSpec{RequiredCapabilities: []string{"gpu"}},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"gpu"} })}, Hint{},
			"b"},
		{"no such capability", TaskSpec{RequiredCapabilities: []string{"gpu"}}, []Candidate{agent("a", nil)}, Hint{},
			""},
		{"preferred capability", TaskSpec{PreferredCapabilities: []string{"ssd"}},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"ssd"} })}, Hint{},
			"b"},
		{"affinity", TaskSpec{Affinity: "b"}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 1 })}, Hint{}, "b"},
		{"pinned", TaskSpec{Agent: "b"}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running = 3 })},
			Hint{}, "b"},
		{"task type", TaskSpec{Type: "exec"}, []Candidate{agent("a",
			func(c *Candidate) { c.TaskTypes = []string{"echo"} }), agent("b",
			func(c *Candidate) { c.TaskTypes = []string{"echo", "exec"} })}, Hint{}, "b"},
		{"fenced command", TaskSpec{Type: "exec", RetrySafety: Fenced},
			[]Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running, c.EndsProcessTrees = 3, true })},
			Hint{Prefer: "a"}, "b"},
		{"at_most_once command, nobody ends trees", TaskSpec{Type: "exec", RetrySafety: AtMostOnce},
			[]Candidate{agent("a", nil)}, Hint{}, ""},
		{"unmarked command, nobody ends trees", TaskSpec{Type: "exec", RetrySafety: Unmarked},
			[]Candidate{agent("a", nil)}, Hint{}, ""},
		{"idempotent command", TaskSpec{Type: "exec"}, []Candidate{agent("a", nil)}, Hint{}, "a"},
		{"fenced, but no command", TaskSpec{Type: "render", RetrySafety: Fenced}, []Candidate{agent("a", nil)}, Hint{},
			"a"},
		{"avoids the one that was lost", TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 3 })}, Hint{Avoid: "a"}, "b"},
		{"the avoided is better than none", TaskSpec{}, []Candidate{agent("a", nil)}, Hint{Avoid: "a"}, "a"},
		{"prefers the target", TaskSpec{}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) { c.Running = 3 })}, Hint{Prefer: "b"}, "b"},
		{"provider access", TaskSpec{Provider: "llm"}, []Candidate{agent("a", nil),
			agent("b", func(c *Candidate) {
				c.Running, c.Providers = 1,
					Providers{"llm": {Available: true}}
			})}, Hint{}, "b"},
		{"provider access is only preferred", TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", func(c *Candidate) { c.Providers = Providers{"llm": {}} })}, Hint{}, "a"},
		{"rate limited", TaskSpec{Provider: "llm"}, []Candidate{agent("a", limited("llm", now.Add(time.Second)))},
			Hint{}, ""},
		{"rate limited, but not for this task", TaskSpec{Provider: "other"},
			[]Candidate{agent("a", limited("llm", now.Add(time.Second)))}, Hint{}, "a"},
		{"rate limited until now", TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", limited("llm", now)), agent("b", nil)}, Hint{}, "a"},
		{"a rate-limited target is no target", TaskSpec{Provider: "llm"},
			[]Candidate{agent("a", nil), agent("b", limited("llm", now.Add(time.Second)))}, Hint{Prefer: "b"}, "a"},
		{"a full target is no target", TaskSpec{}, []Candidate{agent("a", nil),
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
	require.InDelta(t, 100+20-15-8, c.Score(&TaskSpec{PreferredCapabilities: []string{"docker", "gpu", "tpu"}},
		time.Time{}), 1e-9)
}
