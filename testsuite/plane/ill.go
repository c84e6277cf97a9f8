package plane

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// HealIll runs a healing cycle, with this workflow id, of a cluster with so many ill agents, which say why, while the
// brake is engaged. The agents are made up: a worker of the test's own answers what was found.
func HealIll(t *testing.T, id string, agents int, why string) api.HealingCycleRecord {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one := healing.HealingCase{Cluster: id, Policy: api.HealingPolicy{}.WithDefaults(), Members: agents,
		Serving: agents, Braked: true}
	for i := range agents {
		one.Agents = append(one.Agents, healing.HealingAgent{AgentID: fmt.Sprintf("a-%04d", i), Status: api.AgentOnline,
			Health: cluster.MemberHealth{Level: api.HealthCritical, Why: why, Since: time.Now().Add(-time.Hour)}})
	}
	w := sdkworker.New(Temporal(t), id, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(workflows.HealingCycle, workflow.RegisterOptions{Name: contract.HealingCycleWorkflow})
	w.RegisterWorkflowWithOptions(workflows.HealingAction,
		workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
	contract.ExamineFleetActivity.Register(w, func(context.Context, contract.ExamineInput) (contract.Examined, error) {
		return contract.Examined{Clusters: 1, Agents: agents, Cases: []healing.HealingCase{one}}, nil
	})
	contract.CountHealingActivity.Register(w, contract.NoAnswer(
		func(context.Context, api.HealingRecord) error { return nil }))
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := Temporal(t).ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: id,
		WorkflowExecutionTimeout: time.Minute}, contract.HealingCycleWorkflow, contract.HealingCycleInput{})
	require.NoError(t, err)
	var cycle api.HealingCycleRecord
	require.NoError(t, run.Get(ctx, &cycle))
	return cycle
}
