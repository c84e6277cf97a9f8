package workflows

import (
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// examineLimit bounds one look at the fleet.
	examineLimit = 2 * time.Minute
	// holdsLimit bounds one request to a hub about the attempts that it has.
	holdsLimit = 10 * time.Second
)

// HealingCycle looks once at all clusters and starts an action for each decision. A Temporal Schedule starts it, so
// people pause and trigger it there. While nothing is wrong it is one workflow task with one local activity.
func HealingCycle(ctx workflow.Context, in contract.HealingCycleInput) (fleet.HealingCycleRecord, error) {
	began := workflow.Now(ctx)
	record := fleet.HealingCycleRecord{ID: cycleID(began), DryRun: in.DryRun, StartedAt: began.UTC()}
	examined, err := examine(ctx, contract.ExamineInput{Every: in.Every, Cluster: in.Cluster, DryRun: in.DryRun,
		At: began})
	if err != nil {
		return record, fmt.Errorf("the fleet could not be looked at: %w", err)
	}
	record.Clusters, record.Agents, record.Silent = examined.Clusters, examined.Agents, examined.Silent
	for i := range examined.Cases {
		c := &examined.Cases[i]
		findOrphans(ctx, c)
		decisions := fleet.DecideHealing(c, workflow.Now(ctx))
		if !in.DryRun {
			startActions(ctx, record.ID, c.Policy, decisions)
		}
		record.Decisions = append(record.Decisions, decisions...)
	}
	if examined.Every != 0 {
		tune(ctx, examined.Every)
	}
	completed := workflow.Now(ctx).UTC()
	record.CompletedAt = &completed
	return record, nil
}

// cycleID names a cycle by its time. It is not the workflow's id, which is not in history.
func cycleID(at time.Time) string {
	return strings.ToLower(at.UTC().Format("20060102T150405Z"))
}

func examine(ctx workflow.Context, in contract.ExamineInput) (contract.Examined, error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: examineLimit, StartToCloseTimeout: examineLimit / 2,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 3},
		Summary:     "look at all clusters",
	})
	found, err := contract.ExamineFleetActivity.ExecuteLocal(ctx, in).Get(ctx)
	return found, err
}

// findOrphans asks the cluster's hubs which of the suspect attempts they have; the others are orphans. If a hub does
// not answer there are none, and the backstop decides.
func findOrphans(ctx workflow.Context, c *fleet.HealingCase) {
	if len(c.Suspects) == 0 {
		return
	}
	question := contract.HoldsAttemptsInput{Cluster: c.Cluster}
	for _, s := range c.Suspects {
		question.Attempts = append(question.Attempts, fleet.HeldAttempt{TaskID: s.TaskID, Attempt: s.Attempt})
	}
	var answers []contract.Future[contract.HoldsAttemptsResult]
	for _, hub := range c.Hubs {
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: contract.HubQueue(hub), ScheduleToCloseTimeout: holdsLimit,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "which attempts hub " + hub + " has",
		})
		answers = append(answers, contract.HoldsAttemptsActivity.Execute(hubCtx, question))
	}
	held := map[fleet.HeldAttempt]bool{}
	for i, answer := range answers {
		result, err := answer.Get(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Warn(
				"A hub did not say which attempts it has; its cluster's are left to the backstop", "hub", c.Hubs[i], "error", err)
			return
		}
		for _, a := range result.Held {
			held[a] = true
		}
	}
	for _, s := range c.Suspects {
		if !held[fleet.HeldAttempt{TaskID: s.TaskID, Attempt: s.Attempt}] {
			c.Orphans = append(c.Orphans, s)
		}
	}
}

// startActions starts the decided actions, the most urgent first, as children that outlive the cycle. Some skipped
// decisions get a record too; waiting ones are only in the cycle's result.
func startActions(ctx workflow.Context, cycle string, policy fleet.HealingPolicy, decisions []fleet.HealingDecision) {
	var started []workflow.ChildWorkflowFuture
	for _, d := range decisions {
		if d.Verdict == fleet.HealWait {
			continue
		}
		now := workflow.Now(ctx)
		attributes := []temporal.SearchAttributeUpdate{contract.AttrCluster.ValueSet(d.Cluster),
			contract.AttrTaskType.ValueSet(string(d.Type))}
		if d.Facts.Level != "" {
			attributes = append(attributes, contract.AttrAgent.ValueSet(d.TargetID))
		}
		childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            contract.HealingActionWorkflowID(d.Cluster, d.Type, d.TargetID),
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
			TypedSearchAttributes: temporal.NewSearchAttributes(attributes...),
			Memo: map[string]any{contract.MemoHealing: contract.HealingNote{Type: d.Type,
				TargetID: d.TargetID, Verdict: d.Verdict, At: now.UTC()}},
			StaticSummary: string(d.Type) + " " + d.TargetID + ": " + d.Reason,
		})
		started = append(started, workflow.ExecuteChildWorkflow(childCtx, contract.HealingActionWorkflow,
			contract.HealingActionInput{Cycle: cycle, Decision: d, Policy: policy, DecidedAt: now.UTC()}))
	}
	for _, child := range started {
		if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Warn("A healing action was not started; the same one is under way", "error", err)
		}
	}
}

// tune sets the schedule to the shortest interval of any cluster. If that fails, the next cycle tries again.
func tune(ctx workflow.Context, every fleet.Duration) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		StartToCloseTimeout:    10 * time.Second,
		ScheduleToCloseTimeout: 30 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "cycle every " + every.String(),
	})
	if _, err := contract.TuneHealingActivity.Execute(ctx, every).Get(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("The interval of the healing schedule was not changed", "error", err)
	}
}
