package spawner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

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

// busy is a Temporal whose updates take longer than anybody waits for them.
type busy struct {
	client.Client
	published chan error // what a signal's context said when it was sent
}

func (b busy) UpdateWorkflow(ctx context.Context, _ client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (b busy) SignalWorkflow(ctx context.Context, _, _, _ string, _ any) error {
	b.published <- ctx.Err()
	return nil
}

// The event had what the proof of the death left of two seconds: nothing, where the cluster was busy.
func TestAnEndIsPublishedWhileItsProofWaits(t *testing.T) {
	t.Parallel()
	b := busy{published: make(chan error, 1)}
	h := &Host{o: HostOptions{Name: "s", Client: b, Logger: zap.NewNop()}, proofs: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	h.ended(ctx, fleet.SpawnEnd{AgentID: "web-1", Cluster: "web", Gone: true})
	require.NoError(t, <-b.published)
	cancel()
	h.tasks.Wait()
}
