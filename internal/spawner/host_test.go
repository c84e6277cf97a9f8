package spawner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/sdk/api"
)

// ended is a spawner with one agent, which remembers whom it was asked to end.
type ended struct {
	Spawner
	asked []string
}

func (e *ended) List(context.Context) ([]cluster.Spawned, error) {
	return []cluster.Spawned{{ID: "web-1", Cluster: "web"}}, nil
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

// clusters is a Temporal where one cluster answers no update, and the others do at once.
type clusters struct {
	client.Client
	silent string // the workflow's id

	mu    sync.Mutex
	now   int            // updates that are under way
	most  int            // at a time
	tries map[string]int // by id of the update
	taken []string
}

func (c *clusters) UpdateWorkflow(
	ctx context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries[o.UpdateID]++
	if o.WorkflowID != c.silent {
		c.taken = append(c.taken, o.Args[0].(cluster.DeathProof).AgentID)
		return nil, serviceerror.NewNotFound("it is over, which ends the tries")
	}
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.now--
	return nil, ctx.Err()
}

func (*clusters) SignalWorkflow(context.Context, string, string, string, any) error { return nil }

// The proofs that a silent cluster does not take had those for all others wait for a minute, and some were never sent.
func TestProofsOfASilentClusterKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clusters{silent: contract.ClusterWorkflowID("silent"), tries: map[string]int{}}
		h := &Host{o: HostOptions{Name: "s", Client: c, Logger: zap.NewNop()}, proofs: limit.AtOnce{Most: proofsAtOnce}}
		const agents = 8
		for i := range agents {
			h.ended(t.Context(), api.SpawnEnd{AgentID: fmt.Sprint("silent-", i), Cluster: "silent", At: time.Now(),
				Gone: true})
		}
		<-time.After(time.Second)
		h.ended(t.Context(), api.SpawnEnd{AgentID: "web-1", Cluster: "web", At: time.Now(), Gone: true})
		synctest.Wait()
		require.Equal(t, []string{"web-1"}, c.taken, "at once")
		h.tasks.Wait()
		require.Equal(t, proofsAtOnce, c.most)
		require.Len(t, c.tries, agents+1, "each proof is one update, however often it is tried")
		for id, n := range c.tries {
			require.True(t, n > 5 || strings.HasPrefix(id, "web-1"), "%s was tried %d times", id, n)
		}
	})
}

// The event had what the proof of the death left of two seconds: nothing, where the cluster was busy.
func TestAnEndIsPublishedWhileItsProofWaits(t *testing.T) {
	t.Parallel()
	b := busy{published: make(chan error, 1)}
	h := &Host{o: HostOptions{Name: "s", Client: b, Logger: zap.NewNop()}}
	ctx, cancel := context.WithCancel(t.Context())
	h.ended(ctx, api.SpawnEnd{AgentID: "web-1", Cluster: "web", Gone: true})
	require.NoError(t, <-b.published)
	cancel()
	h.tasks.Wait()
}
