package replay

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// yard is a spawner whose agents run in the test's own process.
type yard struct {
	t    *testing.T
	node *plane.Node
	mute bool // agents are started that never join

	mu     sync.Mutex
	agents map[string]context.CancelFunc
}

func (y *yard) Platform() api.Platform { return "yard" }

func (y *yard) Spawn(_ context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.agents[spec.ID] == nil && !y.mute {
		a, err := agent.New(agent.Options{HubURLs: []string{y.node.URL}, Cluster: spec.Cluster, ID: spec.ID,
			Metadata: map[string]string{api.MetadataSpawner: "yard", api.MetadataSpawnID: spec.ID}})
		if err != nil {
			return cluster.Spawned{}, err
		}
		a.Handle("echo", func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil })
		ctx, cancel := context.WithCancel(context.Background())
		y.agents[spec.ID] = cancel
		go func() { _ = a.Run(ctx) }()
	}
	return cluster.Spawned{ID: spec.ID, Cluster: spec.Cluster, Spawner: "yard", Platform: "yard", Handle: "1",
		StartedAt: time.Now()}, nil
}

func (y *yard) Terminate(_ context.Context, id string, _ bool) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if cancel := y.agents[id]; cancel != nil {
		cancel()
		delete(y.agents, id)
	}
	return nil
}

func (y *yard) List(context.Context) ([]cluster.Spawned, error) { return nil, nil }

// recordScaling records agents that cannot be started for want of a spawner, that are started and stopped, and one that
// never joins, with a sweep.
func recordScaling(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	quick := api.ScalingPolicy{Mode: api.ScalingManual, Spawn: api.SpawnPolicy{Spawner: "yard",
		JoinTimeout: api.Duration(5 * time.Second),
		Backoff:     api.SpawnBackoff{Strategy: api.BackoffConstant, Delay: api.Duration(time.Minute)}}}
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "scaled", DesiredAgents: 2, Scaling: quick})
	closed(t, c, contract.ScalingWorkflowID(cluster, 1))
	y := &yard{t: t, node: node, agents: map[string]context.CancelFunc{}}
	host, err := spawner.Start(t.Context(), spawner.HostOptions{Name: "yard", Client: c, Namespace: "default",
		Spawner: y})
	require.NoError(t, err)
	defer host.Stop()
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.ServingCount() == 2 })
	closed(t, c, contract.ScalingWorkflowID(cluster, 2))
	update(t, c, contract.ClusterWorkflowID(cluster), contract.ScaleUpdate.Name, contract.ScaleRequest{To: new(1)})
	awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return len(v.Members) == 1 })
	closed(t, c, contract.ScalingWorkflowID(cluster, 3))
	y.mu.Lock()
	y.mute = true
	y.mu.Unlock()
	update(t, c, contract.ClusterWorkflowID(cluster), contract.ScaleUpdate.Name, contract.ScaleRequest{To: new(2)})
	closed(t, c, contract.ScalingWorkflowID(cluster, 4))
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "sweep", TaskQueue: contract.WorkerQueue},
		contract.ScalingSweepWorkflow)
	require.NoError(t, err)
	closed(t, c, "sweep")
	for number, name := range map[int64]string{1: "no-spawner", 2: "up", 3: "down", 4: "never-joined"} {
		save(t, c, contract.ScalingWorkflow, name, contract.ScalingWorkflowID(cluster, number))
	}
	save(t, c, contract.ScalingSweepWorkflow, "sweep", "sweep")
	update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(cluster))
	save(t, c, contract.ClusterWorkflow, "scaled", contract.ClusterWorkflowID(cluster))
	for _, cancel := range y.agents {
		cancel()
	}
}

// TestRecordRollout records a cluster whose agents are replaced because what they are started with has changed. It only
// runs when asked.
func TestRecordRollout(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	recordRollouts(t, "rolled", api.RolloutPolicy{},
		func(configure func(slots int), await func(api.RolloutStatus), _ func(string)) {
			configure(3)
			await(api.RolloutSuccessful)
		})
}

// TestRecordCanaries records a cluster whose canaries are promoted, and taken back. It only runs when asked.
func TestRecordCanaries(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	recordRollouts(t, "canaries", api.RolloutPolicy{Canary: 1},
		func(configure func(slots int), await func(api.RolloutStatus), decide func(string)) {
			for slots, decision := range []string{contract.PromoteRolloutUpdate.Name, contract.RevertRolloutUpdate.Name} {
				configure(3 + slots)
				await(api.RolloutWaiting)
				decide(decision)
				await(api.RolloutSuccessful)
			}
		})
}

// recordRollouts records a cluster of two agents while something is done to it.
func recordRollouts(
	t *testing.T, name string, policy api.RolloutPolicy,
	do func(configure func(slots int), await func(api.RolloutStatus), decide func(update string)),
) {
	t.Helper()
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: name, Config: hub.Config{Timing: plane.QuickTiming()}})
	y := &yard{t: t, node: node, agents: map[string]context.CancelFunc{}}
	host, err := spawner.Start(t.Context(), spawner.HostOptions{Name: "yard", Client: c, Namespace: "default",
		Spawner: y})
	require.NoError(t, err)
	defer host.Stop()
	policy.HealthyTime = api.Duration(time.Second)
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: name, DesiredAgents: 2, Scaling: api.ScalingPolicy{
		Mode: api.ScalingManual, Spawn: api.SpawnPolicy{Spawner: "yard"}, Rollout: &policy}})
	workflow := contract.ClusterWorkflowID(cluster)
	next := awaitView(t, c, cluster, func(v *contract.ClusterView) bool { return v.ServingCount() == 2 }).Config
	do(func(slots int) {
		next.Scaling.Spawn.Slots = slots
		update(t, c, workflow, contract.ConfigureUpdate.Name, contract.ConfigureRequest{ClusterConfig: next})
	}, func(status api.RolloutStatus) {
		awaitView(t, c, cluster, func(v *contract.ClusterView) bool {
			return v.Scaling.Rollout != nil && v.Scaling.Rollout.Status == status
		})
	}, func(decision string) { update(t, c, workflow, decision, contract.RunRequest{By: "ann"}) })
	update(t, c, workflow, contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, workflow)
	save(t, c, contract.ClusterWorkflow, name, workflow)
	for _, cancel := range y.agents {
		cancel()
	}
}
