package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows/workflowtest"
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
		run.update(contract.OpenLaneUpdate.Name, contract.OpenLaneRequest{LaneNeeds: fleet.LaneNeeds{Capabilities: []string{"gpu"}}})
	})
	run.at(20*time.Second, func() {
		require.Len(t, run.directives()[told:], hubs, "each hub has heard of the lane")
		require.Equal(t, hubs/most, turns, "the others waited for the next workflow task, three times")
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(fleet.ClusterConfig{})
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
	run.start(fleet.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
}
