package spawner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// ended is a spawner with one agent, which remembers whom it was asked to end.
type ended struct {
	Spawner
	asked []string
}

func (e *ended) List(context.Context) ([]fleet.Spawned, error) {
	return []fleet.Spawned{{ID: "web-1", Cluster: "web"}}, nil
}

func (e *ended) Terminate(_ context.Context, id string, _ bool) error {
	e.asked = append(e.asked, id)
	return nil
}

// An agent tells its spawner and its id itself: what one cluster's agent says must not end an agent of another.
func TestOnlyItsOwnClusterEndsAnAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    contract.TerminateInput
		asked []string
	}{
		"its cluster":          {contract.TerminateInput{ID: "web-1", Cluster: "web"}, []string{"web-1"}},
		"another cluster":      {contract.TerminateInput{ID: "web-1", Cluster: "build"}, nil},
		"of an older workflow": {contract.TerminateInput{ID: "web-1"}, []string{"web-1"}},
		"unknown":              {contract.TerminateInput{ID: "web-2", Cluster: "build"}, []string{"web-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &ended{}
			h := &Host{o: HostOptions{Spawner: e}}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(h.terminate)
			_, err := env.ExecuteActivity(h.terminate, c.in)
			require.NoError(t, err)
			require.Equal(t, c.asked, e.asked)
		})
	}
}
