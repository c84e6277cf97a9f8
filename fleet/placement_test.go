package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlace(t *testing.T) {
	t.Parallel()
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
		exclude    string
		want       string
	}{
		{"none", TaskSpec{}, nil, "", ""},
		{"equal: lower id", TaskSpec{}, []Candidate{agent("b", nil), agent("a", nil)}, "", "a"},
		{"less loaded", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 2 }), agent("b", nil)}, "", "b"},
		{"full", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.Running = 4 })}, "", ""},
		{"busy processor", TaskSpec{}, []Candidate{agent("a", func(c *Candidate) { c.CPUPercent = 90 }), agent("b", nil)}, "", "b"},
		{"required capability", TaskSpec{RequiredCapabilities: []string{"gpu"}}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"gpu"} })}, "", "b"},
		{"no such capability", TaskSpec{RequiredCapabilities: []string{"gpu"}}, []Candidate{agent("a", nil)}, "", ""},
		{"preferred capability", TaskSpec{PreferredCapabilities: []string{"ssd"}}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Capabilities = []string{"ssd"} })}, "", "b"},
		{"affinity", TaskSpec{Affinity: "b"}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running = 1 })}, "", "b"},
		{"pinned", TaskSpec{Agent: "b"}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running = 3 })}, "", "b"},
		{"task type", TaskSpec{Type: "exec"}, []Candidate{agent("a", func(c *Candidate) { c.TaskTypes = []string{"echo"} }), agent("b", func(c *Candidate) { c.TaskTypes = []string{"echo", "exec"} })}, "", "b"},
		{"avoids the excluded", TaskSpec{}, []Candidate{agent("a", nil), agent("b", func(c *Candidate) { c.Running = 3 })}, "a", "b"},
		{"the excluded is better than none", TaskSpec{}, []Candidate{agent("a", nil)}, "a", "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if i := Place(&tt.spec, tt.candidates, tt.exclude); i >= 0 {
				got = tt.candidates[i].AgentID
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// The document's example: 100 + 10 per preferred capability − 0.3 cpu − 0.2 memory (row B7).
func TestScore(t *testing.T) {
	t.Parallel()
	c := Candidate{AgentID: "a", Capabilities: []string{"docker", "gpu"}, MaxTasks: 10, CPUPercent: 50, MemoryPercent: 40}
	require.InDelta(t, 100+20-15-8, c.Score(&TaskSpec{PreferredCapabilities: []string{"docker", "gpu", "tpu"}}), 1e-9)
}
