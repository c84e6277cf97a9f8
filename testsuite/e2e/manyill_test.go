package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/mainstay/workflows"
)

// A cycle of thousands of ill agents with long notes keeps to what Temporal takes, and ends. The agents are made up: a
// worker of the test's own answers what was found.
func TestACycleOfManyIllAgents(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	name, long := plane.UniqueID("many"), time.Now().Add(-time.Hour)
	w := sdkworker.New(plane.Temporal(t), name, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(workflows.HealingCycle, workflow.RegisterOptions{Name: contract.HealingCycleWorkflow})
	w.RegisterWorkflowWithOptions(workflows.HealingAction,
		workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
	one := fleet.HealingCase{Cluster: name, Policy: fleet.HealingPolicy{}.WithDefaults(), Members: 2500, Serving: 2500,
		Braked: true}
	for i := range one.Members {
		one.Agents = append(one.Agents, fleet.HealingAgent{AgentID: fmt.Sprintf("agent-%04d", i), Status: fleet.AgentOnline,
			Health: fleet.MemberHealth{Level: fleet.HealthCritical, Why: strings.Repeat("\x01", 256), Since: long}})
	}
	w.RegisterActivityWithOptions(func(context.Context, contract.ExamineInput) (contract.Examined, error) {
		return contract.Examined{Clusters: 1, Agents: one.Members, Cases: []fleet.HealingCase{one}}, nil
	}, activity.RegisterOptions{Name: contract.ExamineFleetActivity.Name})
	w.RegisterActivityWithOptions(func(context.Context, fleet.HealingRecord) error { return nil },
		activity.RegisterOptions{Name: contract.CountHealingActivity.Name})
	require.NoError(t, w.Start())
	defer w.Stop()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run, err := plane.Temporal(t).ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name, TaskQueue: name,
		WorkflowExecutionTimeout: patience}, contract.HealingCycleWorkflow, contract.HealingCycleInput{})
	require.NoError(t, err)
	var cycle contract.HealingCycle
	require.NoError(t, run.Get(ctx, &cycle))
	require.Equal(t, one.Members, len(cycle.Decisions)+cycle.LeftOut)
	parts := map[int64]int{} // children by the workflow task that began them
	events := plane.Temporal(t).GetWorkflowHistory(ctx, name, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if child := event.GetStartChildWorkflowExecutionInitiatedEventAttributes(); child != nil {
			parts[child.GetWorkflowTaskCompletedEventId()]++
		}
	}
	begun, most := 0, 0
	for _, n := range parts {
		begun, most = begun+n, max(most, n)
	}
	require.Equal(t, 100, begun)
	require.LessOrEqual(t, most, 50)
}
