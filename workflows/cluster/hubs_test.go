package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// timed is an answer that notes when it came.
type timed struct {
	workflowtest.Answer
	run *clusterRun
	at  time.Time
}

func (a *timed) Complete(value any, err error) {
	a.at = a.run.Now()
	a.Answer.Complete(value, err)
}

// Temporal takes 4 MiB of a workflow task, so a large directive does not go to all hubs of a cluster at once, nor to
// all that have agents join.
func TestDirectivesGoToHubsInTurns(t *testing.T) {
	t.Parallel()
	const hubs, most = 10, 3
	run := newCluster(t)
	turns := 0
	run.SetOnTimerScheduledListener(func(_ string, wait time.Duration) {
		if wait == time.Millisecond {
			turns++
		}
	})
	told := len(run.directives())
	var answers []*timed
	run.at(time.Second, func() {
		for i := range hubs {
			answers = append(answers, &timed{run: run})
			run.UpdateWorkflow(contract.JoinUpdate.Name, "", answers[i], joins(fmt.Sprint("h", i), fmt.Sprint("a", i)))
		}
	})
	run.at(10*time.Second, func() {
		answered := map[time.Time]int{}
		for _, a := range answers {
			require.NotNil(t, a.Value.(contract.JoinResponse).Directive)
			answered[a.at]++
		}
		require.Greater(t, len(answered), hubs/most)
		for at, n := range answered {
			require.LessOrEqual(t, n, most, at)
		}
		told, turns = len(run.directives()), 0
		run.update(contract.OpenLaneUpdate.Name, contract.OpenLaneRequest{LaneNeeds: api.LaneNeeds{Capabilities: []string{"gpu"}}})
	})
	run.at(20*time.Second, func() {
		require.Len(t, run.directives()[told:], hubs, "each hub has heard of the lane")
		require.Equal(t, hubs/most, turns, "the others waited for the next workflow task, three times")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// A hub that knows the directive does not get it with each join again.
func TestAJoinLeavesOutADirectiveThatTheHubKnows(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var first, second, third *workflowtest.Answer
	run.at(time.Second, func() { first = run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() {
		known := first.Value.(contract.JoinResponse).Directive
		again := joins("h1", "b")
		again.Knows = contract.DirectiveVersion{CreatedAt: known.CreatedAt, Version: known.Version}
		second = run.update(contract.JoinUpdate.Name, again)
		other := joins("h1", "c")
		other.Knows = contract.DirectiveVersion{CreatedAt: known.CreatedAt.Add(-time.Hour), Version: known.Version}
		third = run.update(contract.JoinUpdate.Name, other)
	})
	run.at(3*time.Second, func() {
		require.Nil(t, second.Value.(contract.JoinResponse).Directive)
		require.NotNil(t, third.Value.(contract.JoinResponse).Directive, "it knows that of an earlier cluster of the name")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}

// cutOff has directives not reach a hub for a while, and notes whom the others were for and when.
func (r *clusterRun) cutOff(cut string, from, until, waits time.Duration, took func(hub string, d contract.Directive)) {
	began := r.Now()
	is := func(ctx context.Context) bool {
		at := r.Now().Sub(began)
		return activity.GetInfo(ctx).TaskQueue == contract.HubQueue(cut) && at >= from && at < until
	}
	r.OnActivity(contract.DirectActivity.Name, mock.MatchedBy(is), mock.Anything).After(waits).Return(errors.New("no hub took it"))
	r.OnActivity(contract.DirectActivity.Name, mock.Anything, mock.Anything).Return(
		func(ctx context.Context, d contract.Directive) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			took(strings.TrimPrefix(activity.GetInfo(ctx).TaskQueue, contract.HubQueue("")), d)
			return nil
		})
}

// A hub whose only agent has a newer process elsewhere gets the fence once it can be reached, unless it is lost.
func TestAFenceIsSentUntilTheHubHasItOrIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"reached": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			fenced := 0
			run.cutOff("h1", 20*time.Second, time.Minute, 0, func(hub string, d contract.Directive) {
				if hub == "h1" && len(d.Fences) > 0 {
					fenced++
				}
			})
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
			run.at(20*time.Second, func() {
				again := joins("h2", "a")
				again.Joins[0].Instance = "a-2"
				run.update(contract.JoinUpdate.Name, again)
			})
			run.at(40*time.Second, func() {
				if lost {
					run.SignalWorkflow(contract.HubLostSignal.Name, contract.HubLost{Hub: "h1", At: run.Now()})
				}
			})
			run.deleteAt(10 * time.Minute)
			run.start(api.ClusterConfig{})
			require.NoError(t, run.GetWorkflowError())
			require.Equal(t, !lost, fenced == 1, fenced)
		})
	}
}

// A hub that does not answer holds up neither failovers nor elections at others.
func TestADeadHubHoldsUpNothing(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var led, begun, gone time.Time
	run.cutOff("h2", 25*time.Second, time.Hour, 10*time.Second, func(_ string, d contract.Directive) {
		if d.Leader == "b" && led.IsZero() {
			led = run.Now()
		}
	})
	run.failover = func(ctx workflow.Context, _ contract.FailoverInput) (api.FailoverRecord, error) {
		begun = workflow.Now(ctx)
		return api.FailoverRecord{Status: api.FailoverSucceeded}, nil
	}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "c")) })
	run.at(30*time.Second, func() { run.update(contract.PauseUpdate.Name, contract.PauseRequest{}) })
	run.at(31*time.Second, func() {
		require.Equal(t, "a", run.view(t).Leader)
		gone = run.Now()
		run.gone("a", 1, 0, false, cluster.HeldAttempt{TaskID: "t", Attempt: 1})
	})
	run.deleteAt(5 * time.Minute)
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.Less(t, begun.Sub(gone), time.Second)
	require.Less(t, led.Sub(gone), time.Second)
}

// The next leader waits until the hub with the last one's session knows, or has renewed no lease for long enough.
func TestALeaderWaitsForTheFormerLeadersHub(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ cutOff, leaderless time.Duration }{
		"it knows at once": {0, 3 * time.Second},
		"it knows late":    {5 * time.Second, 6 * time.Second},
		"it is cut off":    {time.Hour, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newCluster(t)
			run.cutOff("h1", 20*time.Second, 20*time.Second+tt.cutOff, 5*time.Second, func(string, contract.Directive) {})
			run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
			run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "b")) })
			run.at(20*time.Second, func() {
				again := joins("h2", "a")
				again.Joins[0].Instance = "a-2"
				run.update(contract.JoinUpdate.Name, again)
			})
			run.at(20*time.Second+tt.leaderless-100*time.Millisecond, func() { require.Empty(t, run.view(t).Leader) })
			run.at(20*time.Second+tt.leaderless+100*time.Millisecond, func() { require.Equal(t, "b", run.view(t).Leader) })
			run.deleteAt(5 * time.Minute)
			run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
			require.NoError(t, run.GetWorkflowError())
		})
	}
}
