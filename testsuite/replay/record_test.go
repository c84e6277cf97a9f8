package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

var record = flag.Bool("record", false, "run the scenarios and write their histories")

func TestMain(m *testing.M) {
	flag.Parse()
	plane.Main(m)
}

// TestRecord runs real scenarios and writes a history of each. It only runs when asked.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	// The agents' short leases keep the recording quick.
	node := plane.NewNode(t, plane.NodeOptions{HubID: "recorder", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "recorded", MinAgents: 1})
	var calls atomic.Int64
	handlers := map[string]agent.Handler{
		"echo":  func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"flaky": func(context.Context, *agent.Task) (any, error) { return nil, failTwice(calls.Add(1)) },
		"fail":  func(context.Context, *agent.Task) (any, error) { return nil, errors.New("disk full") },
		"final": func(context.Context, *agent.Task) (any, error) {
			return nil, agent.NonRetryable(errors.New("bad input"))
		},
		"wait": func(ctx context.Context, _ *agent.Task) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
		"hang": func(ctx context.Context, task *agent.Task) (any, error) {
			if task.Attempt == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return "done", nil
		},
	}
	stop := runAgent(t, node, cluster, "a-1", handlers)

	quick := api.RetryPolicy{InitialInterval: api.Duration(10 * time.Millisecond)}
	start(t, c, "completed", api.TaskSpec{Type: "echo", Cluster: cluster, Payload: []byte(`{"n":1}`)})
	start(t, c, "retried", api.TaskSpec{Type: "flaky", Cluster: cluster, Retry: quick})
	start(t, c, "failed", api.TaskSpec{Type: "final", Cluster: cluster})
	start(t, c, "dead-letter", api.TaskSpec{Type: "fail", Cluster: cluster, Retry: api.RetryPolicy{MaxAttempts: 1}})
	start(t, c, "cancelled", api.TaskSpec{Type: "wait", Cluster: cluster})
	start(t, c, "expired", api.TaskSpec{Type: "echo", Cluster: cluster, Agent: "nobody",
		ExpiresIn: api.Duration(time.Second)})
	start(t, c, "timed-out", api.TaskSpec{Type: "hang", Cluster: cluster, BeaconTimeout: api.Duration(time.Second),
		Retry: quick})
	start(t, c, "unhandled", api.TaskSpec{Type: "nobodys", Cluster: cluster, Agent: "a-1",
		ExpiresIn: api.Duration(3 * time.Second)})
	start(t, c, "placed-again", api.TaskSpec{Type: "nobodys", Cluster: cluster,
		ExpiresIn: api.Duration(3 * time.Second)})
	await(t, c, "dead-letter", api.TaskDeadLetter)
	update(t, c, contract.TaskWorkflowID("dead-letter"), contract.RetryUpdate.Name, contract.RetryRequest{})
	await(t, c, "dead-letter", api.TaskDeadLetter)
	recordTaskLife(t, c, cluster)
	started(t, c, "cancelled")
	update(t, c, contract.TaskWorkflowID("cancelled"), contract.CancelUpdate.Name,
		contract.CancelRequest{Reason: "not needed"})

	t.Log("an agent stops with work under way: it moves, waits for review, or waits out the lease")
	start(t, c, "reviewed", api.TaskSpec{Type: "wait", Cluster: cluster, RetrySafety: api.AtMostOnce})
	start(t, c, "moved", api.TaskSpec{Type: "wait", Cluster: cluster})
	started(t, c, "reviewed")
	started(t, c, "moved")
	stop()
	handlers["wait"] = func(context.Context, *agent.Task) (any, error) { return "done", nil }
	stop = runAgent(t, node, cluster, "a-2", handlers)
	await(t, c, "reviewed", api.TaskReview)
	update(t, c, contract.TaskWorkflowID("reviewed"), contract.ReviewUpdate.Name,
		contract.ReviewRequest{Decision: api.ReviewRerun})
	update(t, c, contract.ClusterWorkflowID(cluster), contract.OpenLaneUpdate.Name,
		contract.OpenLaneRequest{LaneNeeds: api.LaneNeeds{Capabilities: []string{"gpu"}}})
	update(t, c, contract.ClusterWorkflowID(cluster), contract.ConfigureUpdate.Name,
		api.ClusterConfig{Name: cluster, MinAgents: 2, DesiredAgents: 3})

	for _, lane := range []string{"cap/gpu", ""} {
		update(t, c, contract.ClusterWorkflowID(cluster), contract.PauseUpdate.Name,
			contract.PauseRequest{Lane: lane, Reason: "new disks"})
		update(t, c, contract.ClusterWorkflowID(cluster), contract.ResumeUpdate.Name, contract.PauseRequest{Lane: lane})
	}

	t.Log("a join token is revoked, and then its sessions end")
	update(t, c, contract.ClusterWorkflowID(cluster), contract.RevokeJoinTokenUpdate.Name,
		contract.RevokeJoinTokenRequest{ID: "0123456789ab"})
	update(t, c, contract.ClusterWorkflowID(cluster), contract.RevokeJoinTokenUpdate.Name,
		contract.RevokeJoinTokenRequest{ID: "0123456789ab", EndSessions: true})

	for _, id := range []string{"completed", "retried", "failed", "dead-letter", "cancelled", "expired", "timed-out",
		"unhandled", "placed-again", "moved", "reviewed"} {
		if id != "dead-letter" {
			closed(t, c, contract.TaskWorkflowID(id))
		}
		save(t, c, contract.TaskWorkflow, id, contract.TaskWorkflowID(id))
	}
	stop()
	recordFailovers(t, c, node)
	recordDrains(t, c, node)
	recordHealing(t, c, node)
	recordFiring(t, c, node)
	recordBulk(t, c, node)
	recordSync(t, c, node)
	recordScaling(t, c, node)
	node.Stop()
	t.Log("the hub is silent and does not answer: it is lost, and the cluster hears")
	closed(t, c, contract.HubWorkflowID("recorder"))
	update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	closed(t, c, contract.ClusterWorkflowID(cluster))
	save(t, c, contract.HubWorkflow, "lost", contract.HubWorkflowID("recorder"))
	save(t, c, contract.ClusterWorkflow, "active-active", contract.ClusterWorkflowID(cluster))
}

// recordTaskLife records a task that waits for its start, one whose priority changes while it waits, and a dead letter
// that is discarded.
func recordTaskLife(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	start(t, c, "scheduled", api.TaskSpec{Type: "echo", Cluster: cluster, StartAt: time.Now().Add(time.Second)})
	start(t, c, "discarded", api.TaskSpec{Type: "fail", Cluster: cluster, Retry: api.RetryPolicy{MaxAttempts: 1}})
	start(t, c, "reprioritized", api.TaskSpec{Type: "echo", Cluster: cluster, Agent: "nobody",
		ExpiresIn: api.Duration(3 * time.Second)})
	await(t, c, "reprioritized", api.TaskQueued)
	update(t, c, contract.TaskWorkflowID("reprioritized"), contract.ReprioritizeUpdate.Name,
		contract.ReprioritizeRequest{Priority: api.PriorityHigh})
	await(t, c, "discarded", api.TaskDeadLetter)
	update(t, c, contract.TaskWorkflowID("discarded"), contract.DiscardUpdate.Name,
		contract.DiscardRequest{Reason: "not needed"})
	for _, id := range []string{"scheduled", "discarded", "reprioritized"} {
		closed(t, c, contract.TaskWorkflowID(id))
		save(t, c, contract.TaskWorkflow, id, contract.TaskWorkflowID(id))
	}
}

// recordFailovers records a leader that is replaced, a shard owner that leaves, and the failovers of both kinds.
func recordFailovers(t *testing.T, c client.Client, node *plane.Node) {
	t.Helper()
	lease := api.Duration(1250 * time.Millisecond)
	led := node.EnsureCluster(t, api.ClusterConfig{Name: "led", ReplicationMode: api.ActivePassive,
		RoleLease: lease})
	sharded := node.EnsureCluster(t, api.ClusterConfig{Name: "parted", ReplicationMode: api.Sharded, Shards: 4,
		RoleLease: lease})
	hold := map[string]agent.Handler{"wait": func(ctx context.Context, _ *agent.Task) (any,
		error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	stopLeader := runAgent(t, node, led, "l-1", hold)
	awaitView(t, c, led, func(v *contract.ClusterView) bool { return v.Leader == "l-1" })
	stopStandby := runAgent(t, node, led, "l-2", hold)
	awaitView(t, c, led, func(v *contract.ClusterView) bool { return len(v.Standbys) == 1 })
	start(t, c, "by-hand", api.TaskSpec{Type: "wait", Cluster: led})
	started(t, c, "by-hand")
	signal(t, c, led, contract.ManualFailoverSignal.Name, contract.ManualFailover{AgentID: "l-1", TargetAgentID: "l-2",
		Reason: "disk is failing"})
	awaitView(t, c, led, func(v *contract.ClusterView) bool { return v.Leader == "l-2" })
	closed(t, c, contract.FailoverWorkflowID(contract.FailoverID(led, "l-1", 1)))
	signal(t, c, led, contract.ManualFailoverSignal.Name, contract.ManualFailover{AgentID: "nobody"})
	closed(t, c, contract.FailoverWorkflowID(contract.FailoverID(led, "nobody", 0)))
	t.Log("the leader goes with work under way, which counts as a failover")
	view := awaitView(t, c, led, func(*contract.ClusterView) bool { return true })
	epoch := view.Member("l-2").Epoch
	signal(t, c, led, contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "recorder",
		Changes: []cluster.Transition{{
			AgentID: "l-2", Instance: view.Member(
				"l-2").Instance, Epoch: epoch, Status: api.AgentOffline, Reason: "its connection closed", At: time.Now()}}})
	closed(t, c, contract.FailoverWorkflowID(contract.FailoverID(led, "l-2", epoch)))
	awaitView(t, c, led, func(v *contract.ClusterView) bool { return v.Leader == "l-1" })

	stopFirst := runAgent(t, node, sharded, "s-1", hold)
	awaitView(t, c, sharded, func(v *contract.ClusterView) bool { return len(v.ShardsOf("s-1")) == 4 })
	stopSecond := runAgent(t, node, sharded, "s-2", hold)
	awaitView(t, c, sharded, func(v *contract.ClusterView) bool { return len(v.ShardsOf("s-2")) == 2 })
	stopSecond()
	awaitView(t, c, sharded, func(v *contract.ClusterView) bool { return len(v.ShardsOf("s-1")) == 4 })
	update(t, c, contract.ClusterWorkflowID(led), contract.ReleaseBrakeUpdate.Name, contract.ReleaseBrakeRequest{})
	for _, stop := range []func(){stopLeader, stopStandby, stopFirst} {
		stop()
	}
	for name, id := range map[string]string{"manual": contract.FailoverWorkflowID(contract.FailoverID(led, "l-1", 1)),
		"not-in-cluster": contract.FailoverWorkflowID(contract.FailoverID(led, "nobody", 0)),
		"leader-lost": contract.FailoverWorkflowID(contract.FailoverID(led,
			"l-2", epoch))} {
		save(t, c, contract.FailoverWorkflow, name, id)
	}
	for name, cluster := range map[string]string{"active-passive": led, "sharded": sharded} {
		update(t, c, contract.ClusterWorkflowID(cluster), contract.DeleteUpdate.Name,
			contract.DeleteRequest{Force: true})
		closed(t, c, contract.ClusterWorkflowID(cluster))
		save(t, c, contract.ClusterWorkflow, name, contract.ClusterWorkflowID(cluster))
	}
}

func signal(t *testing.T, c client.Client, cluster, name string, argument any) {
	t.Helper()
	require.NoError(t, c.SignalWorkflow(t.Context(), contract.ClusterWorkflowID(cluster), "", name, argument))
}

func awaitView(
	t *testing.T, c client.Client, cluster string, condition func(*contract.ClusterView) bool,
) *contract.ClusterView {
	t.Helper()
	var view contract.ClusterView
	require.Eventually(t, func() bool {
		value, err := c.QueryWorkflow(t.Context(), contract.ClusterWorkflowID(cluster), "", contract.ViewQuery.Name)
		view = contract.ClusterView{}
		return err == nil && value.Get(&view) == nil && condition(&view)
	}, 30*time.Second, 20*time.Millisecond, "cluster %s", cluster)
	return &view
}

func failTwice(call int64) error {
	if call < 3 {
		return errors.New("not yet")
	}
	return nil
}

func runAgent(
	t *testing.T, node *plane.Node, cluster, id string, handlers map[string]agent.Handler, capabilities ...string,
) (stop func()) {
	t.Helper()
	a, err := agent.New(agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id, Slots: 8,
		Capabilities: capabilities, StopTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for name, handler := range handlers {
		a.Handle(name, handler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func start(t *testing.T, c client.Client, id string, spec api.TaskSpec) {
	t.Helper()
	_,
		err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.TaskWorkflowID(id),
		TaskQueue: contract.WorkerQueue},
		contract.TaskWorkflow, contract.TaskInput{TaskID: id, Spec: spec, Lane: contract.Lane(&spec, 0, false)})
	require.NoError(t, err)
}

func update(t *testing.T, c client.Client, workflowID, name string, argument any) {
	t.Helper()
	require.EventuallyWithT(t, func(r *assert.CollectT) {
		handle, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{WorkflowID: workflowID,
			UpdateName: name, Args: []any{argument}, WaitForStage: client.WorkflowUpdateStageCompleted})
		var again *serviceerror.WorkflowNotReady // the workflow task failed, as something else came meanwhile
		if errors.As(err, &again) {
			r.Errorf("%s: %v", name, err)
			return
		}
		require.NoError(t, err)
		require.NoError(t, handle.Get(t.Context(), nil))
	}, 10*time.Second, 50*time.Millisecond)
}

func await(t *testing.T, c client.Client, id string, status api.TaskStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		value, err := c.QueryWorkflow(t.Context(), contract.TaskWorkflowID(id), "", contract.StatusQuery.Name)
		var state contract.TaskState
		return err == nil && value.Get(&state) == nil && state.Status == status
	}, 30*time.Second, 20*time.Millisecond, "task %s", id)
}

// started waits until an agent has the task.
func started(t *testing.T, c client.Client, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := c.DescribeWorkflowExecution(t.Context(), contract.TaskWorkflowID(id), "")
		return err == nil && len(d.GetPendingActivities()) == 1 &&
			d.GetPendingActivities()[0].GetHeartbeatDetails() != nil
	}, 30*time.Second, 20*time.Millisecond, "task %s", id)
}

func closed(t *testing.T, c client.Client, workflowID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := c.DescribeWorkflowExecution(t.Context(), workflowID, "")
		return err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}, 60*time.Second, 50*time.Millisecond, workflowID)
}

func save(t *testing.T, c client.Client, workflow, name, workflowID string) {
	t.Helper()
	saveRun(t, c, workflow, name, workflowID, "")
}

// saveRun writes the history of one run of a workflow, compressed if it is long.
func saveRun(t *testing.T, c client.Client, workflow, name, workflowID, runID string) {
	t.Helper()
	var history historypb.History
	events := c.GetWorkflowHistory(t.Context(), workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&history)
	require.NoError(t, err)
	folder := filepath.Join("histories", workflow)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	file := filepath.Join(folder, name+".json")
	text = append(text, '\n')
	if len(text) > 1<<20 {
		var packed bytes.Buffer
		packer := gzip.NewWriter(&packed)
		_, err = packer.Write(text)
		require.NoError(t, errors.Join(err, packer.Close()))
		file, text = file+".gz", packed.Bytes()
	}
	require.NoError(t, os.WriteFile(file, text, 0o644))
}
