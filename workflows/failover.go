package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// evacuateTimeout bounds how long an agent has to stop work that a failover by hand takes off it.
const evacuateTimeout = time.Minute

// Failover finishes and records one failover. It moves nothing itself: the lost agent's hub ended its attempts, its
// tasks deliver themselves again, and the cluster moves its roles. A failover by hand first takes the work off the
// living agent.
func Failover(ctx workflow.Context, in contract.FailoverInput) (api.FailoverRecord, error) {
	record := api.FailoverRecord{
		ID:            in.ID(),
		Cluster:       in.Cluster,
		FailedAgentID: in.FailedAgent,
		Epoch:         in.Epoch,
		TargetAgentID: in.Target,
		Trigger:       in.Trigger,
		Reason:        in.Reason,
		Status:        api.FailoverRunning,
		Targets:       in.Targets,
		Tasks:         len(in.Attempts) + in.Unlisted,
		Evidence:      in.Evidence,
		NoticedAfter:  in.NoticedAfter,
		NoticedAt:     in.NoticedAt, StartedAt: workflow.Now(ctx),
	}
	if err := contract.FailoverQuery.Handle(ctx, func() api.FailoverRecord { return record }); err != nil {
		return record, err
	}
	record.Status, record.Error = failOver(ctx, in, &record)
	completed := workflow.Now(ctx)
	record.CompletedAt = &completed
	publish(ctx, record)
	syncAfter(ctx, in, &record)
	announce(ctx, in.Cluster, cluster.EndOfFailover(&record))
	if record.Status == api.FailoverNoTarget && len(in.Attempts) > 0 {
		followLeft(ctx, in, &record)
	}
	return record, nil
}

// followLeft records the outcome of the tasks in a failover without a target. Nobody who is notified of its end waits
// for that.
func followLeft(ctx workflow.Context, in contract.FailoverInput, record *api.FailoverRecord) {
	in.WasLeader, in.Shards = false, nil
	moved, err := awaitTransfers(ctx, in)
	if moved.Transfers != nil {
		cluster.TakeTransfers(record, moved.Transfers, in.Unlisted)
	}
	record.ResumedAt = moved.ResumedAt
	record.Error = "no other agent could take over at first; by now all tasks have gone on, ended, or wait for a person"
	if err != nil {
		record.Error = "no other agent could take over, and not all tasks were seen to go on since: " + err.Error()
	}
	record.CompletedAt = new(workflow.Now(ctx))
}

// left are the tasks of a failover without a target, at its beginning.
func left(in *contract.FailoverInput) (listed []api.Transfer) {
	for _, held := range in.Attempts {
		listed = append(listed, api.Transfer{TaskID: held.TaskID, From: in.FailedAgent, RetryCount: held.Attempt,
			Status: api.TaskQueued, Why: in.Reason})
	}
	return listed
}

// publish counts the failover in the worker's metrics. Losing the count changes nothing.
func publish(ctx workflow.Context, record api.FailoverRecord) {
	record.Transfers = nil
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, StartToCloseTimeout: 10 * time.Second,
		ScheduleToCloseTimeout: time.Minute, Summary: "count the failover"})
	if _, err := contract.CountFailoverActivity.Execute(ctx, record).Get(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("A failover was not counted", "error", err)
	}
}

const noTarget = "no other agent can take over; the work waits in its lanes"

// failOver carries out the failover and returns its outcome.
func failOver(
	ctx workflow.Context, in contract.FailoverInput, record *api.FailoverRecord,
) (api.FailoverStatus, string) {
	if in.NotInCluster {
		return api.FailoverNotInCluster, "the agent is no member of the cluster"
	}
	if in.Target == "" && !in.AnyTarget {
		cluster.TakeTransfers(record, left(&in), in.Unlisted)
		return api.FailoverNoTarget, noTarget
	}
	if in.Trigger == api.TriggerManual {
		evacuated, err := evacuate(ctx, in)
		if err != nil {
			return api.FailoverFailed, "the agent's work could not be taken off it: " + err.Error()
		}
		in.Attempts = evacuated.Attempts[:min(len(evacuated.Attempts), api.MaxTransfers)]
		in.Unlisted = len(evacuated.Attempts) - len(in.Attempts)
	}
	moved, err := awaitTransfers(ctx, in)
	record.Promoted, record.LeaderEpoch, record.Shards = moved.Promoted, moved.Epoch, moved.Shards
	record.ResumedAt = moved.ResumedAt
	back := cluster.TakeTransfers(record, moved.Transfers, in.Unlisted)
	if err != nil {
		return api.FailoverFailed, "not all work was seen to move in time: " + err.Error()
	}
	if moved.NoTarget {
		return api.FailoverNoTarget, noTarget
	}
	if back > 0 && in.Trigger == api.TriggerManual {
		return api.FailoverFailed, fmt.Sprintf("no other agent took %d of %s in time: %s has them again", back,
			api.Count(len(moved.Transfers), "task"), in.FailedAgent)
	}
	return api.FailoverSucceeded, ""
}

// evacuate makes the hub stop the agent's work, and then frees its roles.
func evacuate(ctx workflow.Context, in contract.FailoverInput) (contract.EvacuateResult, error) {
	hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.HubQueue(in.Hub),
		ScheduleToStartTimeout: directTimeout,
		StartToCloseTimeout:    evacuateTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 2},
		Summary:                "take the work off " + in.FailedAgent,
	})
	result, err := contract.EvacuateActivity.Execute(hubCtx,
		contract.EvacuateInput{AgentID: in.FailedAgent, Instance: in.Instance, Epoch: in.Epoch, Target: in.Target,
			Reason: in.Reason, Roles: true}).Get(ctx)
	if err != nil {
		return result, err
	}
	return result, contract.EvacuatedSignal.SendFrom(ctx, contract.ClusterWorkflowID(in.Cluster), "",
		contract.Evacuated{AgentID: in.FailedAgent, Hub: in.Hub, Epoch: in.Epoch, Target: in.Target}).Get(ctx, nil)
}

// awaitTransfers waits until other agents have the tasks and roles.
func awaitTransfers(ctx workflow.Context, in contract.FailoverInput) (contract.AwaitTransfersResult, error) {
	if len(in.Attempts) == 0 && !in.WasLeader && len(in.Shards) == 0 {
		return contract.AwaitTransfersResult{}, nil
	}
	watchCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		ScheduleToCloseTimeout: in.Timeout.Or(api.DefaultTransferTimeout) + time.Minute,
		HeartbeatTimeout:       30 * time.Second,
		Summary:                "watch the work of " + in.FailedAgent + " move",
	})
	moved, err := contract.AwaitTransfersActivity.Execute(watchCtx, contract.AwaitTransfersInput{
		Cluster: in.Cluster, FailedAgent: in.FailedAgent, Epoch: in.Epoch, WasLeader: in.WasLeader, Shards: in.Shards,
		Attempts: in.Attempts, Reason: in.Reason, Timeout: in.Timeout,
	}).Get(ctx)
	if err == nil && moved.Incomplete != "" {
		return moved, errors.New(moved.Incomplete)
	}
	return moved, err
}
