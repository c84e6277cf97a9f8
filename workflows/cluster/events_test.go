package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// told returns the cluster's events, in short.
func (r *clusterRun) told(t *testing.T, since contract.EventsSince) ([]string, contract.ClusterEvents) {
	t.Helper()
	value, err := r.QueryWorkflow(contract.EventsQuery.Name, since)
	require.NoError(t, err)
	var answer contract.ClusterEvents
	require.NoError(t, value.Get(&answer))
	var lines []string
	for _, e := range answer.Events {
		line := strings.TrimPrefix(string(e.Type), api.EventPrefix) + " " + e.AgentID
		if e.Outcome != "" {
			line += " " + e.Outcome
		}
		require.Equal(t, "default", e.Cluster)
		require.False(t, e.Time.IsZero())
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, answer
}

func TestClusterTellsWhatHappens(t *testing.T) {
	t.Parallel()
	r := newCluster(t)
	joins := contract.JoinRequest{Hub: "h1", HubProcess: "p",
		Joins: []cluster.Join{{AgentID: "a", Instance: "i",
			AgentProfile: api.AgentProfile{MaxTasks: 1}},
			{AgentID: "b", Instance: "i", AgentProfile: api.AgentProfile{MaxTasks: 1}}}}
	r.at(time.Second, func() { r.update(contract.JoinUpdate.Name, joins) })
	r.at(2*time.Second, func() {
		lines, _ := r.told(t, contract.EventsSince{})
		require.Equal(t, []string{"cluster.created", "agent.joined a", "agent.joined b", "leader.elected a"}, lines)
	})
	r.at(3*time.Second, func() {
		r.SignalWorkflow(contract.MembersChangedSignal.Name,
			contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
				{AgentID: "a", Instance: "i", Epoch: 1, Status: api.AgentOffline, Reason: "gone", At: r.Now()}}})
	})
	r.at(15*time.Second, func() {
		require.Len(t, r.failovers, 1)
		end := api.FailoverRecord{FailedAgentID: "a", Status: api.FailoverSucceeded}
		r.SignalWorkflow(contract.AnnounceSignal.Name,
			contract.Announcement{Events: []cluster.Event{cluster.EndOfFailover(&end)}})
	})
	r.at(20*time.Second, func() {
		lines, answer := r.told(t, contract.EventsSince{After: 4})
		require.Equal(t, []string{"agent.lost a", "leader.vacated a"}, lines[:2])
		require.ElementsMatch(t, []string{"failover.started a", "failover.ended a succeeded", "leader.elected b"},
			lines[2:])
		require.EqualValues(t, 9, answer.Seq)
		r.SignalWorkflow(contract.AnnounceSignal.Name,
			contract.Announcement{Events: []cluster.Event{{Type: api.EventDrainStarted,
				EventData: api.EventData{ID: "default:d", Cluster: "another"}}}})
	})
	r.at(21*time.Second, func() {
		lines, _ := r.told(t, contract.EventsSince{From: r.Now().Add(-2 * time.Second)})
		require.Equal(t, []string{"drain.started"}, lines)
		r.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	r.start(api.ClusterConfig{ReplicationMode: api.ActivePassive, RoleLease: api.Duration(time.Second)})
	require.NoError(t, r.GetWorkflowError())
	lines, _ := r.told(t, contract.EventsSince{After: 10})
	require.Equal(t, []string{"cluster.deleted"}, lines, "the last word can still be asked for")
}

func TestClusterKeepsItsEventsOverContinueAsNew(t *testing.T) {
	t.Parallel()
	r := newCluster(t)
	r.at(time.Second, func() {
		r.update(contract.JoinUpdate.Name, contract.JoinRequest{Hub: "h1", HubProcess: "p",
			Joins: []cluster.Join{{AgentID: "a", Instance: "i", AgentProfile: api.AgentProfile{MaxTasks: 1}}}})
	})
	r.at(2*time.Second, func() {
		r.SetContinueAsNewSuggested(true)
		r.SignalWorkflow(contract.AnnounceSignal.Name, contract.Announcement{})
	})
	r.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.True(t, errors.As(r.GetWorkflowError(), &next))
	input := continuedInput(t, next)
	require.EqualValues(t, 2, input.Events.Seq)

	again := newCluster(t)
	again.at(time.Second, func() {
		lines, answer := again.told(t, contract.EventsSince{After: 1})
		require.Equal(t, []string{"agent.joined a"}, lines, "and nothing is told twice")
		require.True(t, answer.CreatedAt.Equal(input.CreatedAt), "it is the same cluster")
		again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	again.ExecuteWorkflow(contract.ClusterWorkflow, input)
	require.NoError(t, again.GetWorkflowError())
}

// A failover goes on when its cluster continues as new. The next run hears of its end.
func TestFailoverThatOutlivesARunIsHeardToEnd(t *testing.T) {
	t.Parallel()
	r := newCluster(t)
	r.failover = func(ctx workflow.Context, in contract.FailoverInput) (api.FailoverRecord, error) {
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return api.FailoverRecord{}, err
		}
		return workflows.Failover(ctx, in)
	}
	r.RegisterActivityWithOptions(func(context.Context, api.FailoverRecord) error { return nil },
		activity.RegisterOptions{Name: contract.CountFailoverActivity.Name})
	var announced []any
	r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("default"), "", contract.AnnounceSignal.Name,
		mock.Anything).Return(func(_, _, _, _ string, arg any) error {
		require.True(t, r.IsWorkflowCompleted(), "the run has ended before")
		announced = append(announced, arg)
		return nil
	})
	r.at(time.Second, func() { r.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	r.at(2*time.Second, func() {
		r.SignalWorkflow(contract.MembersChangedSignal.Name,
			contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
				{AgentID: "a", Instance: "a-1", Epoch: 1, Status: api.AgentOffline, Reason: "gone", At: r.Now()}}})
	})
	r.at(3*time.Second, func() {
		r.SetContinueAsNewSuggested(true)
		r.SignalWorkflow(contract.AnnounceSignal.Name, contract.Announcement{})
	})
	r.start(api.ClusterConfig{})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, r.GetWorkflowError(), &next)
	require.Len(t, announced, 1)

	again := newCluster(t)
	again.at(time.Second, func() { again.SignalWorkflow(contract.AnnounceSignal.Name, announced[0]) })
	again.at(2*time.Second, func() {
		lines, answer := again.told(t, contract.EventsSince{})
		require.Equal(t, []string{"failover.started a", "failover.ended a succeeded"}, lines[len(lines)-2:])
		require.Zero(t, answer.Missing)
		again.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	again.ExecuteWorkflow(contract.ClusterWorkflow, continuedInput(t, next))
	require.NoError(t, again.GetWorkflowError())
}
