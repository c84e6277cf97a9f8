package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// A failover announces its end, with counts, to the cluster, which may have continued as new meanwhile.
func TestFailoverAnnouncesItsEnd(t *testing.T) {
	t.Parallel()
	resumed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	held := []cluster.HeldAttempt{{TaskID: "t-1", Attempt: 1}, {TaskID: "t-2", Attempt: 1}}
	for name, tc := range map[string]struct {
		in   contract.FailoverInput
		late string // what has not moved when its time is over
		want api.EventData
	}{
		"any agent": {contract.FailoverInput{AnyTarget: true, Attempts: held}, "",
			api.EventData{Outcome: "succeeded", Count: 1, Of: 2}},
		"late": {contract.FailoverInput{AnyTarget: true, Attempts: held}, "1 of 2 tasks wait for an agent",
			api.EventData{Outcome: "failed", Count: 1, Of: 2, Reason: "not all work was seen to move in time: " +
				"1 of 2 tasks wait for an agent"}},
		"back at the agent": {contract.FailoverInput{AnyTarget: true, Attempts: held, Trigger: api.TriggerManual}, "",
			api.EventData{Outcome: "failed", Count: 1, Of: 2,
				Reason: "no other agent took 1 of 2 tasks in time: a has them again"}},
		"many": {contract.FailoverInput{AnyTarget: true, Attempts: held, Unlisted: 10}, "",
			api.EventData{Outcome: "succeeded", Count: 6, Of: 12}},
		"no agent": {contract.FailoverInput{Attempts: held}, "",
			api.EventData{Outcome: "no_target_available", Of: 2,
				Reason: "no other agent can take over; the work waits in its lanes"}},
		"no agent any more": {contract.FailoverInput{AnyTarget: true, Shards: []int{3}}, "",
			api.EventData{Outcome: "no_target_available",
				Reason: "no other agent can take over; the work waits in its lanes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, back := workflowtest.NewEnvironment(), ""
			if tc.in.Trigger == api.TriggerManual {
				back = "a"
			}
			env.RegisterWorkflowWithOptions(workflows.Failover,
				workflow.RegisterOptions{Name: contract.FailoverWorkflow})
			env.RegisterActivityWithOptions(func(context.Context, api.FailoverRecord) error { return nil },
				activity.RegisterOptions{Name: contract.CountFailoverActivity.Name})
			env.RegisterActivityWithOptions(
				func(_ context.Context, in contract.AwaitTransfersInput) (contract.AwaitTransfersResult, error) {
					require.Equal(t, api.Duration(42*time.Second), in.Timeout)
					if len(in.Shards) > 0 {
						return contract.AwaitTransfersResult{NoTarget: true, ResumedAt: &resumed}, nil
					}
					require.Equal(t, held, in.Attempts)
					return contract.AwaitTransfersResult{ResumedAt: &resumed, Incomplete: tc.late,
						Transfers: []api.Transfer{{TaskID: "t-1", To: "b"}, {TaskID: "t-2", To: back}}}, nil
				}, activity.RegisterOptions{Name: contract.AwaitTransfersActivity.Name})
			env.RegisterActivityWithOptions(func(context.Context, contract.EvacuateInput) (contract.EvacuateResult, error) {
				return contract.EvacuateResult{Attempts: held}, nil
			}, activity.RegisterOptions{Name: contract.EvacuateActivity.Name})
			env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, "", contract.EvacuatedSignal.Name,
				mock.Anything).Return(nil)
			var told []cluster.Event
			env.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "",
				contract.AnnounceSignal.Name, mock.Anything).Return(
				func(_, _, _, _ string, arg any) error {
					told = append(told, arg.(contract.Announcement).Events...)
					return nil
				})
			tc.in.Cluster, tc.in.FailedAgent, tc.in.Epoch = "c", "a", 7
			tc.in.Timeout = api.Duration(42 * time.Second)
			env.ExecuteWorkflow(contract.FailoverWorkflow, tc.in)
			require.NoError(t, env.GetWorkflowError())
			tc.want.Cluster, tc.want.AgentID, tc.want.Epoch, tc.want.ID = "c", "a", 7, "c:a:7"
			require.Len(t, told, 1)
			require.Equal(t, api.EventFailoverEnded, told[0].Type)
			require.Equal(t, tc.want, told[0].EventData)
			var record api.FailoverRecord
			require.NoError(t, env.GetWorkflowResult(&record))
			if tc.in.AnyTarget {
				require.Equal(t, &resumed, record.ResumedAt)
			}
			if name == "no agent" {
				require.Equal(t, []string{"b", ""}, []string{record.Transfers[0].To, record.Transfers[1].To})
				require.Contains(t, record.Error, "by now all tasks have gone on")
			}
		})
	}
}
