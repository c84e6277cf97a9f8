package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// clusterRun is a Cluster workflow with hubs that take directives.
type clusterRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	loads map[string]int
	// failover is what a Failover workflow does; nil: it succeeds at once.
	failover func(workflow.Context, contract.FailoverInput) (api.FailoverRecord, error)

	mu        sync.Mutex // several hubs are told at once, and failovers run side by side
	sent      []contract.Directive
	failovers []contract.FailoverInput
}

// directives returns the directives that hubs got so far.
func (r *clusterRun) directives() []contract.Directive {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

func newCluster(t *testing.T) *clusterRun {
	t.Helper()
	run := &clusterRun{TestWorkflowEnvironment: workflowtest.NewEnvironment()}
	worker.RegisterWorkflows(run)
	run.RegisterActivityWithOptions(func(_ context.Context, d contract.Directive) error {
		run.mu.Lock()
		defer run.mu.Unlock()
		run.sent = append(run.sent, d)
		return nil
	}, activity.RegisterOptions{Name: contract.DirectActivity.Name})
	run.RegisterActivityWithOptions(func(context.Context, string) (map[string]int, error) { return run.loads, nil },
		activity.RegisterOptions{Name: contract.ReadLoadsActivity.Name})
	run.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.FailoverInput) (api.FailoverRecord, error) {
		run.mu.Lock()
		run.failovers = append(run.failovers, in)
		run.mu.Unlock()
		if run.failover != nil {
			return run.failover(ctx, in)
		}
		return api.FailoverRecord{Status: api.FailoverSucceeded}, nil
	}, workflow.RegisterOptions{Name: contract.FailoverWorkflow, DisableAlreadyRegisteredCheck: true})
	return run
}

func (r *clusterRun) start(config api.ClusterConfig) {
	config.Name = "default"
	r.ExecuteWorkflow(contract.ClusterWorkflow, contract.ClusterInput{Config: config})
}

func (r *clusterRun) at(after time.Duration, do func()) { r.RegisterDelayedCallback(do, after) }

func (r *clusterRun) update(name string, arg any) *workflowtest.Answer {
	a := &workflowtest.Answer{}
	r.UpdateWorkflow(name, "", a, arg)
	return a
}

func (r *clusterRun) view(t *testing.T) contract.ClusterView {
	t.Helper()
	value, err := r.QueryWorkflow(contract.ViewQuery.Name)
	require.NoError(t, err)
	var view contract.ClusterView
	require.NoError(t, value.Get(&view))
	return view
}

func joins(hub string, agents ...string) contract.JoinRequest {
	request := contract.JoinRequest{Hub: hub}
	for _, a := range agents {
		request.Joins = append(request.Joins, cluster.Join{AgentID: a, Instance: a + "-1",
			AgentProfile: api.AgentProfile{MaxTasks: 2}})
	}
	return request
}

func TestClusterMembership(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var joined, early, lane, forced *workflowtest.Answer
	run.at(time.Second, func() { joined = run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() {
		require.Len(t, run.view(t).Members, 2)
		early = run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{})
		lane = run.update(contract.OpenLaneUpdate.Name, contract.OpenLaneRequest{LaneNeeds: api.LaneNeeds{Capabilities: []string{"gpu"}}})
	})
	run.at(3*time.Second, func() {
		run.SignalWorkflow(contract.MembersChangedSignal.Name,
			contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
				{AgentID: "a", Instance: "a-1", Epoch: 1, Status: api.AgentOffline, Reason: "gone", At: run.Now()},
				{AgentID: "b", Instance: "b-0", Epoch: 1, Status: api.AgentOffline, At: run.Now()},
			}})
	})
	run.at(4*time.Second, func() {
		view := run.view(t)
		require.Equal(t, api.AgentOffline, view.Member("a").Status)
		require.Equal(t, api.AgentOnline, view.Member("b").Status, "the transition was about another instance")
	})
	run.at(5*time.Second, func() {
		run.SignalWorkflow(contract.HubLostSignal.Name,
			contract.HubLost{Hub: "h1", At: run.Now()})
	})
	run.at(6*time.Second, func() {
		view := run.view(t)
		require.Zero(t, view.ServingCount())
		forced = run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{})
	})
	run.start(api.ClusterConfig{})

	require.True(t, run.IsWorkflowCompleted())
	require.NoError(t, run.GetWorkflowError())
	response := joined.Value.(contract.JoinResponse)
	require.EqualValues(t, 1, response.Results[0].Epoch)
	require.EqualValues(t, 2, response.Results[1].Epoch)
	require.Equal(t, api.ActiveActive, response.Directive.Mode)
	require.True(t, early.Refused, "a cluster with online agents is not deleted")
	require.False(t, lane.Refused || forced.Refused)
	require.Len(t, run.directives(), 1, "the hub hears of the new lane")
	require.Equal(t, [][]string{{"gpu"}}, run.directives()[0].CapabilitySets)
}

func TestClusterConfigure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		config  api.ClusterConfig
		refused bool
	}{
		{"counts", api.ClusterConfig{Name: "default", MinAgents: 2, DesiredAgents: 3, MaxAgents: 5}, false},
		{"another name", api.ClusterConfig{Name: "other"}, true},
		{"sharding", api.ClusterConfig{Name: "default", ReplicationMode: api.Sharded}, true},
		{"shards", api.ClusterConfig{Name: "default", Shards: 32}, true},
		{"nonsense", api.ClusterConfig{Name: "default", ReplicationMode: "both"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			var configured *workflowtest.Answer
			run.at(time.Second, func() {
				configured = run.update(contract.ConfigureUpdate.Name,
					contract.ConfigureRequest{ClusterConfig: tt.config})
			})
			run.at(2*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{}) })
			run.start(api.ClusterConfig{})
			require.True(t, run.IsWorkflowCompleted())
			require.Equal(t, tt.refused, configured.Refused, "%v", configured.Err)
		})
	}
}

// A change or deletion that was meant for other settings is refused.
func TestClusterRevision(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	first := api.ClusterConfig{Name: "default"}.Revision()
	next := api.ClusterConfig{Name: "default", MaxAgents: 9}
	var changed, late, early, gone *workflowtest.Answer
	run.at(time.Second, func() {
		changed = run.update(contract.ConfigureUpdate.Name, contract.ConfigureRequest{ClusterConfig: next,
			IfRevisions: []string{"other", first}})
	})
	run.at(2*time.Second, func() {
		late = run.update(contract.ConfigureUpdate.Name,
			contract.ConfigureRequest{ClusterConfig: api.ClusterConfig{Name: "default"},
				IfRevisions: []string{first}})
		early = run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{IfRevisions: []string{first}})
	})
	run.at(3*time.Second, func() {
		require.Equal(t, 9, run.view(t).Config.MaxAgents)
		gone = run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{IfRevisions: []string{next.Revision()}})
	})
	run.start(api.ClusterConfig{})
	require.True(t, run.IsWorkflowCompleted())
	require.False(t, changed.Refused || gone.Refused)
	require.True(t, late.Refused && early.Refused)
	var outdated *temporal.ApplicationError
	require.ErrorAs(t, late.Err, &outdated)
	require.Equal(t, contract.Outdated, outdated.Type())
}

// State survives continue-as-new: members, epochs and the time of creation.
func TestClusterContinuesAsNew(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	created := run.Now()
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		run.SetCurrentHistoryLength(10_000)
		run.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1"})
	})
	run.start(api.ClusterConfig{MaxAgents: 7})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)

	again := newCluster(t)
	var joined *workflowtest.Answer
	again.at(time.Second, func() {
		view := again.view(t)
		require.WithinDuration(t, created, view.CreatedAt, time.Second)
		require.Equal(t, 7, view.Config.MaxAgents)
		require.Equal(t, "a-1", view.Member("a").Instance)
		joined = again.update(contract.JoinUpdate.Name, joins("h1", "b"))
	})
	again.at(2*time.Second, func() { again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	again.ExecuteWorkflow(contract.ClusterWorkflow, continuedInput(t, next))
	require.NoError(t, again.GetWorkflowError())
	require.EqualValues(t, 2, joined.Value.(contract.JoinResponse).Results[0].Epoch,
		"epochs only grow, across runs too")
}

// Agents that join without end, while failovers begin and hubs are told, do not fill the history: joins wait until the
// cluster has continued as new.
func TestAFullHistoryTakesNoJoins(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*clusterRun){
		"bytes":  func(run *clusterRun) { run.SetCurrentHistorySize(20<<20 + 1) },
		"events": func(run *clusterRun) { run.SetCurrentHistoryLength(12_001) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takesNoJoins(t, fill)
		})
	}
}

func takesNoJoins(t *testing.T, fill func(*clusterRun)) {
	t.Helper()
	run := newCluster(t)
	run.RegisterActivityWithOptions(func(context.Context, contract.ReleaseBrakeRequest) error { return nil },
		activity.RegisterOptions{Name: contract.ReleaseBrakeActivity.Name})
	run.OnActivity(contract.ReleaseBrakeActivity.Name, mock.Anything, mock.Anything).After(time.Second).Return(nil)
	var joined *workflowtest.Answer
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(10*time.Second, func() { // the hub is told for a second
		run.update(contract.ReleaseBrakeUpdate.Name, contract.ReleaseBrakeRequest{})
	})
	run.at(10*time.Second+500*time.Millisecond, func() {
		fill(run)
		joined = run.update(contract.JoinUpdate.Name, joins("h1", "b"))
	})
	run.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)
	var busy *temporal.ApplicationError
	require.ErrorAs(t, joined.Err, &busy)
	require.True(t, joined.Refused)
	require.Equal(t, contract.Busy, busy.Type())
	state := continuedInput(t, next).State
	require.NotNil(t, state.Member("a"))
	require.Nil(t, state.Member("b"))
}

// loseMany has agents join and be lost at once; the last of them had work.
func (r *clusterRun) loseMany(agents, working int) {
	changed := contract.MembersChanged{Hub: "h1"}
	r.at(time.Second, func() {
		var ids []string
		for n := range agents {
			ids = append(ids, "a"+strconv.Itoa(n))
		}
		r.update(contract.JoinUpdate.Name, joins("h1", ids...))
		for n, id := range ids {
			lost := cluster.Transition{AgentID: id, Instance: id + "-1", Epoch: int64(n + 1), Status: api.AgentOffline, At: r.Now()}
			if n >= agents-working {
				lost.Attempts = []cluster.HeldAttempt{{TaskID: "t"}}
			}
			changed.Changes = append(changed.Changes, lost)
		}
	})
	r.at(2*time.Second, func() { r.SignalWorkflow(contract.MembersChangedSignal.Name, changed) })
	r.at(10*time.Minute, func() { r.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	r.start(api.ClusterConfig{MaxAgents: agents})
}

// When many agents are lost at once, their failovers begin in parts: Temporal takes 4 MiB of commands at a time.
func TestManyFailoversBeginInParts(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	turns := 0
	run.RegisterActivityWithOptions(func(context.Context, string) (map[string]int, error) {
		turns++
		return nil, nil
	}, activity.RegisterOptions{Name: contract.ReadLoadsActivity.Name, DisableAlreadyRegisteredCheck: true})
	run.loseMany(450, 450)
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 450)
	require.Equal(t, 3, turns)
}

// When many idle agents are lost at once, a few of their failovers are under way at a time, after those with work.
func TestFailoversOfIdleAgentsWait(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	under, most := 0, 0
	run.failover = func(ctx workflow.Context, in contract.FailoverInput) (api.FailoverRecord, error) {
		if in.Idle() {
			under++
			most = max(most, under)
			defer func() { under-- }()
		}
		return api.FailoverRecord{Status: api.FailoverSucceeded}, workflow.Sleep(ctx, time.Second)
	}
	run.loseMany(200, 30)
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, run.failovers, 200)
	require.Equal(t, 4, most)
	for n, in := range run.failovers[30+4:] {
		require.True(t, in.Idle(), n)
	}
}

// While idle agents vanish without end, some failovers always wait. A run with a long history leaves them to the next.
func TestFailoversOfIdleAgentsAreLeftToTheNextRun(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.failover = func(ctx workflow.Context, _ contract.FailoverInput) (api.FailoverRecord, error) {
		run.SetCurrentHistoryLength(10_000)
		return api.FailoverRecord{Status: api.FailoverSucceeded}, workflow.Sleep(ctx, time.Second)
	}
	run.loseMany(1200, 5)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, run.GetWorkflowError(), &next)
	left := continuedInput(t, next).IdleFailovers
	require.NotEmpty(t, left)
	require.Len(t, run.failovers, 5+contract.MaxIdleFailovers-len(left), "those beyond have none")

	again := newCluster(t)
	again.at(time.Hour, func() { again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	again.ExecuteWorkflow(contract.ClusterWorkflow, continuedInput(t, next))
	require.NoError(t, again.GetWorkflowError())
	agents := map[string]bool{}
	for _, in := range append(run.failovers, again.failovers...) {
		agents[in.FailedAgent] = true
	}
	require.Len(t, agents, 5+contract.MaxIdleFailovers, "each agent that waited has its failover")
	require.Len(t, again.failovers, len(left), "once")
}

// An update that waits when a run begins is handled as soon as its handler is registered.
func TestClusterTakesAnUpdateThatWaits(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var joined *workflowtest.Answer
	run.at(0, func() { joined = run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.EqualValues(t, 1, joined.Value.(contract.JoinResponse).Results[0].Epoch)
}

// Thousands of transitions do not fail a run.
func TestClusterManyTransitions(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	for i := range 300 {
		status := api.AgentOffline
		if i%2 == 1 {
			status = api.AgentOnline
		}
		run.at(2*time.Second+time.Duration(i)*time.Millisecond, func() {
			run.SignalWorkflow(contract.MembersChangedSignal.Name,
				contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
					{AgentID: "a", Instance: "a-1", Epoch: 1, Status: status, Reason: fmt.Sprint(i), At: run.Now()}}})
		})
	}
	run.at(10*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// continuedInput is the input of the run that a continue-as-new asked for.
func continuedInput(t *testing.T, next *workflow.ContinueAsNewError) contract.ClusterInput {
	t.Helper()
	var input contract.ClusterInput
	require.NoError(t, contract.Payloads.FromPayloads(next.Input, &input))
	return input
}
