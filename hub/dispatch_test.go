package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

func TestUnplacedSaysWhy(t *testing.T) {
	t.Parallel()
	l := &lane{sessions: map[*session]struct{}{
		{candidate: fleet.Candidate{AgentID: "a", TaskTypes: []string{"exec"}, Capabilities: []string{"gpu"}}}: {},
		{candidate: fleet.Candidate{AgentID: "b", TaskTypes: []string{"render"}}}:                              {},
	}}
	for name, c := range map[string]struct {
		spec  fleet.TaskSpec
		wants string
	}{
		"busy":             {fleet.TaskSpec{Type: "exec", RequiredCapabilities: []string{"gpu"}}, "is busy"},
		"no handler":       {fleet.TaskSpec{Type: "bake"}, "no agent here has a handler"},
		"not on one agent": {fleet.TaskSpec{Type: "render", RequiredCapabilities: []string{"gpu"}}, "no agent here has a handler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, l.unplaced(&c.spec), c.wants)
		})
	}
}
