package activities

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

// AwaitFailover watches a failover that was asked for until it has ended, and returns its record. It changes nothing.
func (a *Control) AwaitFailover(ctx context.Context, in contract.AwaitFailoverInput) (fleet.FailoverRecord, error) {
	id := contract.FailoverWorkflowID(in.Cluster, in.AgentID, in.Epoch)
	var record fleet.FailoverRecord
	err := watchUntil(ctx, watchMost, func() (ended bool, err error) {
		record, ended, err = a.failover(ctx, id, in)
		return ended, err
	})
	return record, err
}

func (a *Control) failover(
	ctx context.Context, id string, in contract.AwaitFailoverInput,
) (record fleet.FailoverRecord, ended bool, err error) {
	info, err := a.store().Describe(ctx, id)
	switch {
	case err != nil && store.KindOf(err) != store.NotFound:
		return record, false, fmt.Errorf("look at the failover: %w", err)
	case err != nil, info.GetStartTime().AsTime().Before(in.After):
		return record, false, a.stillThere(ctx, in)
	case info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return record, false, nil
	}
	record, why := store.EndRecord[fleet.FailoverRecord](ctx, a.store(), id, info.GetExecution().GetRunId())
	if why != "" {
		return record, false, fmt.Errorf("read the failover: %s", why)
	}
	return record, true, nil
}

// stillThere fails when the cluster refuses the failover, as when the agent's session is not what it was: it does not
// come then.
func (a *Control) stillThere(ctx context.Context, in contract.AwaitFailoverInput) error {
	view, err := a.view(ctx, in.Cluster)
	if err != nil {
		return err
	}
	if err := view.CheckHealing(in.AgentID, "", fleet.HealingCheck{Type: fleet.HealFailover,
		Epoch: in.Epoch}); err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), contract.Refused, nil)
	}
	return nil
}

// EndOrphan ends an attempt that no agent runs, unless it has given a sign of life since: its task goes through the one
// gate of every redelivery then. It says what came of it.
func (a *Control) EndOrphan(ctx context.Context, in contract.EndOrphanInput) (string, error) {
	o := in.Orphan
	id, _ := contract.Locate(o.TaskID)
	tasks, err := a.tasks().DeliveringIn(ctx, id, o.RunID)
	if store.KindOf(err) == store.NotFound {
		return "the task has ended meanwhile", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at task %s: %w", o.TaskID, err)
	}
	var now *fleet.Orphan
	for i := range tasks {
		if tasks[i].ID == o.TaskID {
			now = runningAlone(&tasks[i], time.Now())
		}
	}
	if now == nil || now.Attempt != o.Attempt || !now.Since.Equal(o.Since) {
		return "the attempt has ended or gave a sign of life meanwhile", nil
	}
	ended := time.Now().UTC()
	report := contract.AttemptReport{AgentID: o.AgentID, Hub: o.Hub, Outcome: fleet.AttemptLost, Begun: true,
		EndedAt: &ended,
		Reason:  "healing found that no agent runs it, since " + o.Since.Format(time.RFC3339)}
	switch here, err := a.tasks().EndAttempt(ctx, o.TaskID, o.RunID, o.Attempt, "healing", report); {
	case err != nil:
		return "", err
	case !here:
		return "the attempt has ended meanwhile", nil
	}
	return "the attempt was ended; the task goes on as its retry_safety says", nil
}

// AskScale has a cluster look at the number of its agents, and act if it is not what is wanted.
func (a *Control) AskScale(ctx context.Context, cluster string) (fleet.ScalingDecision, error) {
	return askCluster(ctx, a.Client, cluster, contract.ScaleUpdate, contract.ScaleRequest{})
}
