package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

const (
	// examineLimit bounds one look at the fleet.
	examineLimit = 2 * time.Minute
	// holdsLimit bounds one request to a hub about the attempts that it has.
	holdsLimit = 10 * time.Second
	// actionsPerCycle bounds the actions and records that one cycle starts, of all clusters. Temporal allows a workflow
	// 2,000 children at a time.
	actionsPerCycle = 1000
	// actionsAtOnce and actionBytes bound the actions that one workflow task starts. Temporal allows 4 MiB a task.
	actionsAtOnce = 50
	actionBytes   = 1 << 20
	// askedBytes bounds the questions to hubs that one workflow task asks; each attempt takes at most attemptBytes.
	askedBytes, attemptBytes = 1 << 20, 256
)

// HealingCycle looks once at all clusters and starts an action for each decision. A Temporal Schedule starts it, so
// people pause and trigger it there. While nothing is wrong it is one workflow task with one local activity.
func HealingCycle(ctx workflow.Context, in contract.HealingCycleInput) (api.HealingCycleRecord, error) {
	began := workflow.Now(ctx)
	record := api.HealingCycleRecord{ID: cycleID(began), DryRun: in.DryRun, StartedAt: began.UTC()}
	examined, err := examine(ctx, contract.ExamineInput{Every: in.Every, Cluster: in.Cluster, DryRun: in.DryRun,
		At: began})
	if err != nil {
		return record, fmt.Errorf("the fleet could not be looked at: %w", err)
	}
	record.Clusters, record.Agents, record.Silent = examined.Clusters, examined.Agents, examined.Silent
	left := actionsPerCycle
	for i := range examined.Cases {
		c := &examined.Cases[i]
		findOrphans(ctx, c)
		decisions := healing.BoundHealing(healing.DecideHealing(c, workflow.Now(ctx)), left)
		left -= healing.Recorded(decisions)
		if !in.DryRun {
			startActions(ctx, record.ID, c.Policy, decisions)
		}
		healing.AddToCycle(&record, decisions)
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
func findOrphans(ctx workflow.Context, c *healing.HealingCase) {
	if len(c.Suspects) == 0 {
		return
	}
	question := contract.HoldsAttemptsInput{Cluster: c.Cluster}
	for _, s := range c.Suspects {
		question.Attempts = append(question.Attempts, cluster.HeldAttempt{TaskID: s.TaskID, Attempt: s.Attempt})
	}
	atOnce := max(1, askedBytes/(len(question.Attempts)*attemptBytes))
	held := map[cluster.HeldAttempt]bool{}
	for hubs := range slices.Chunk(c.Hubs, atOnce) {
		var answers []contract.Future[contract.HoldsAttemptsResult]
		for _, hub := range hubs {
			hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				TaskQueue: contract.HubQueue(hub), ScheduleToCloseTimeout: holdsLimit,
				RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "which attempts hub " + hub + " has",
			})
			answers = append(answers, contract.HoldsAttemptsActivity.Execute(hubCtx, question))
		}
		for i, answer := range answers {
			result, err := answer.Get(ctx)
			if err != nil {
				workflow.GetLogger(ctx).Warn(
					"A hub did not say which attempts it has; its cluster's are left to the backstop", "hub", hubs[i], "error", err)
				return
			}
			for _, a := range result.Held {
				held[a] = true
			}
		}
	}
	for _, s := range c.Suspects {
		if !held[cluster.HeldAttempt{TaskID: s.TaskID, Attempt: s.Attempt}] {
			c.Orphans = append(c.Orphans, s)
		}
	}
}

// startActions starts the decided actions, the most urgent first, as children that outlive the cycle. Some skipped
// decisions get a record too; waiting ones are only in the cycle's result.
func startActions(ctx workflow.Context, cycle string, policy api.HealingPolicy, decisions []api.HealingDecision) {
	due := slices.DeleteFunc(slices.Clone(decisions),
		func(d api.HealingDecision) bool { return d.Verdict == api.HealWait })
	for len(due) > 0 {
		n := 0
		for bytes := 0; n < min(len(due), actionsAtOnce) && (bytes < actionBytes || n == 0); n++ {
			d := &due[n]
			bytes += 2<<10 + 6*(2*len(d.Reason)+len(d.Facts.Detail)+len(d.Why)) // JSON may take six for each
		}
		startPart(ctx, cycle, policy, due[:n])
		due = due[n:]
	}
}

func startPart(ctx workflow.Context, cycle string, policy api.HealingPolicy, decisions []api.HealingDecision) {
	var started []workflow.ChildWorkflowFuture
	for _, d := range decisions {
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
func tune(ctx workflow.Context, every api.Duration) {
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

// failoverWatch bounds how long an action waits for the failover that it requested, on top of the failover's own
// timeout.
const failoverWatch = api.DefaultTransferTimeout + 2*evacuateTimeout

// HealingAction carries out one decision of a healing cycle and keeps its record. A decision not to act only has a
// record. Cancelling it cancels the drain that it waits for.
func HealingAction(ctx workflow.Context, in contract.HealingActionInput) (api.HealingRecord, error) {
	d := in.Decision
	a := &healingAction{in: in, record: api.HealingRecord{
		ID:        contract.HealingActionID(d.Cluster, d.Type, d.TargetID, in.DecidedAt),
		Cycle:     in.Cycle,
		Cluster:   d.Cluster,
		Type:      d.Type,
		TargetID:  d.TargetID,
		Priority:  d.Priority,
		Reason:    d.Reason,
		Facts:     d.Facts,
		Status:    api.HealingRunning,
		DecidedAt: in.DecidedAt,
	}}
	if err := contract.HealingQuery.Handle(ctx, func() api.HealingRecord { return a.record }); err != nil {
		return a.record, err
	}
	a.run(ctx)
	completed := workflow.Now(ctx).UTC()
	a.record.CompletedAt = &completed
	a.announce(ctx)
	countHealing(ctx, a.record)
	return a.record, nil
}

// announce publishes the action as an event of the cluster, unless nothing is done.
func (a *healingAction) announce(ctx workflow.Context) {
	r := &a.record
	if r.Cluster == "" || a.in.Decision.Verdict == api.HealPlan || a.in.Decision.Verdict == api.HealSkip {
		return
	}
	data := api.EventData{ID: r.ID, Outcome: string(r.Status), Reason: string(r.Type) + ": " + r.Reason}
	switch orphan := r.Facts.Orphan; {
	case r.Type == api.HealReassign:
		data.TaskID = r.TargetID
		if orphan != nil {
			data.AgentID, data.Attempt = orphan.AgentID, orphan.Attempt
		}
	case r.Type == api.HealReport:
		if lane, ok := strings.CutPrefix(r.TargetID, healing.StuckLane); ok {
			data.Lane = lane
		}
	case r.TargetID != r.Cluster:
		data.AgentID = r.TargetID
	}
	if r.Outcome != "" {
		data.Reason += ": " + r.Outcome
	}
	announce(ctx, r.Cluster, cluster.Event{Type: api.EventHealing, EventData: data})
}

// healingAction is one run of a HealingAction workflow.
type healingAction struct {
	in     contract.HealingActionInput
	record api.HealingRecord
}

func (a *healingAction) run(ctx workflow.Context) {
	d := &a.in.Decision
	switch {
	case d.Verdict == api.HealPlan:
		a.end(api.HealingPlanned, "a dry run: nothing was done")
		return
	case d.Verdict == api.HealSkip:
		a.end(api.HealingSkipped, d.Why)
		return
	case d.Type == api.HealReport:
		a.end(api.HealingReported, "this needs a person")
		return
	}
	a.announce(ctx)
	outcome, err := a.carryOut(ctx)
	switch {
	case ctx.Err() != nil:
		a.end(api.HealingFailed, "cancelled")
	case IsType(err, contract.Refused):
		a.end(api.HealingSkipped, ReasonOf(err))
		a.forget(ctx)
	case IsType(err, nothingToDo):
		a.end(api.HealingSkipped, ReasonOf(err))
	case err != nil:
		a.end(api.HealingFailed, ReasonOf(err))
	default:
		a.end(api.HealingSucceeded, outcome)
	}
}

func (a *healingAction) end(status api.HealingOutcome, outcome string) {
	a.record.Status, a.record.Outcome = status, outcome
}

// forget records that nothing was done, so that the cycle may decide the same again soon.
func (a *healingAction) forget(ctx workflow.Context) {
	d := &a.in.Decision
	err := workflow.UpsertMemo(ctx, map[string]any{contract.MemoHealing: contract.HealingNote{Type: d.Type,
		TargetID: d.TargetID, Verdict: api.HealWait, At: a.in.DecidedAt}})
	if err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "error", err)
	}
}

// carryOut carries out the decision and returns the outcome in words.
func (a *healingAction) carryOut(ctx workflow.Context) (string, error) {
	d := &a.in.Decision
	switch d.Type {
	case api.HealFailover:
		return a.failOver(ctx)
	case api.HealDrain:
		return a.drain(ctx, a.in.Policy.DrainTimeout)
	case api.HealReduce:
		reduced, err := contract.ReduceLoadActivity.Execute(onWorker(ctx, "reduce the load of "+d.TargetID),
			contract.ClusterReduceLoad{
				Cluster: d.Cluster,
				Request: contract.ReduceLoadRequest{AgentID: d.TargetID, UntilHealthy: true,
					For:     api.Duration(cluster.MaxReduceFor), // as long as it takes
					Reason:  "healing: " + d.Reason,
					Healing: a.check()},
			}).Get(ctx)
		return fmt.Sprintf("it runs at most %d of %d tasks at a time until it is healthy", reduced.EffectiveSlots,
			reduced.MaxTasks), err
	case api.HealReassign:
		outcome, err := contract.EndOrphanActivity.Execute(onWorker(ctx, "end an attempt that nobody runs"),
			contract.EndOrphanInput{Cluster: d.Cluster, Orphan: *d.Facts.Orphan}).Get(ctx)
		return outcome, err
	case api.HealRebalance:
		return a.replicate(ctx)
	case api.HealRestore:
		_, err := contract.UncordonActivity.Execute(onWorker(ctx, "give work again to "+d.TargetID),
			contract.ClusterUncordon{
				Cluster: d.Cluster, Request: contract.UncordonRequest{AgentID: d.TargetID,
					Healing: a.check()}}).Get(ctx)
		return "it is given work again", err
	}
	return "", temporal.NewNonRetryableApplicationError("this version does not know the action", contract.Refused, nil)
}

// check has the facts that the cluster checks again before it touches the agent.
func (a *healingAction) check() *healing.HealingCheck {
	return &healing.HealingCheck{Type: a.in.Decision.Type, Epoch: a.in.Decision.Facts.Epoch}
}

// failOver moves the agent's work and roles away, and then takes it out of service, so that it gets no new work while
// it is ill. A cycle restores it when it is healthy again.
func (a *healingAction) failOver(ctx workflow.Context) (string, error) {
	d := &a.in.Decision
	err := contract.ManualFailoverSignal.SendFrom(ctx, contract.ClusterWorkflowID(d.Cluster), "",
		contract.ManualFailover{AgentID: d.TargetID, Reason: "healing: " + d.Reason, Healing: a.check()}).Get(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("the cluster was not asked for the failover: %w", err)
	}
	watchCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: failoverWatch,
		HeartbeatTimeout: 30 * time.Second, Summary: "until the failover has ended"})
	moved, err := contract.AwaitFailoverActivity.Execute(watchCtx, contract.AwaitFailoverInput{
		Cluster: d.Cluster, AgentID: d.TargetID, Epoch: d.Facts.Epoch, After: a.in.DecidedAt,
	}).Get(ctx)
	if IsType(err, contract.Refused) {
		return "", err
	}
	outcome := cluster.MovedBy(&moved) + " moved"
	if moved.TargetAgentID != "" {
		outcome += ", " + moved.TargetAgentID + " took over"
	}
	if err == nil && moved.Status != api.FailoverSucceeded {
		err = endedAs("failover", string(moved.Status), moved.Error)
	}
	if _, out := a.drain(ctx, 0); err == nil && out != nil {
		err = temporal.NewApplicationError("its work was moved, and it could not be taken out of service: "+ReasonOf(
			out), "StillInService")
	}
	if a.record.Ref = ""; moved.ID != "" {
		a.record.Ref = "failover " + moved.ID
	}
	return outcome + "; it is out of service until it is healthy", err
}

// drain takes the agent out of service; its running work may finish until the timeout.
func (a *healingAction) drain(ctx workflow.Context, timeout api.Duration) (string, error) {
	d := &a.in.Decision
	id := contract.HealingDrainID(d.Cluster, d.TargetID, a.in.DecidedAt)
	a.record.Ref = "drain " + id
	workflowID, _ := contract.DrainWorkflowID(id)
	childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: workflowID, ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON, WaitForCancellation: true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(d.Cluster)),
		StaticSummary:         "drain " + d.TargetID + ": healing",
	})
	var record api.DrainRecord
	err := workflow.ExecuteChildWorkflow(childCtx, contract.DrainWorkflow, contract.DrainInput{
		ID:          id,
		Cluster:     d.Cluster,
		Agents:      []string{d.TargetID},
		Reason:      "healing: " + d.Reason,
		Timeout:     timeout,
		MaxParallel: 1,
		Healing:     a.check(),
	}).Get(ctx, &record)
	if err != nil {
		return "", fmt.Errorf("the drain did not run: %w", err)
	}
	if record.Status == api.DrainFailed && record.Agents[0].Refused {
		return "", temporal.NewNonRetryableApplicationError(record.Agents[0].Error, contract.Refused, nil)
	}
	if record.Status != api.DrainCompleted {
		return "", endedAs("drain", string(record.Status), record.Error)
	}
	done := record.Agents[0]
	return fmt.Sprintf("%d of its tasks finished, %d were moved; it is out of service until it is healthy",
		done.Finished, done.Moved), nil
}

// endedAs is the error for a drain or failover with the wrong outcome.
func endedAs(what, status, why string) error {
	if why != "" {
		why = ": " + why
	}
	return temporal.NewApplicationError("the "+what+" is "+status+why, status)
}

// nothingToDo is the type of the error of an action that has done nothing.
const nothingToDo = "NothingToDo"

// replicate spreads shards and targets over the present agents, and makes scaling start the missing ones.
func (a *healingAction) replicate(ctx workflow.Context) (string, error) {
	d := &a.in.Decision
	spread, err := contract.RebalanceActivity.Execute(onWorker(ctx, "rebalance "+d.Cluster), contract.ClusterRebalance{
		Cluster: d.Cluster, Request: contract.RebalanceRequest{Reason: "healing: " + d.Reason}}).Get(ctx)
	if err != nil {
		return "", err
	}
	moved := "no shard or target had to move; "
	if n := len(spread.Moves); n > 0 {
		moved = fmt.Sprintf("%d shards and targets were moved; ", n)
	}
	ended := func(how string) (string, error) {
		if len(spread.Moves) == 0 {
			return "", temporal.NewNonRetryableApplicationError(moved+how, nothingToDo, nil)
		}
		return moved + how, nil
	}
	if !d.Facts.Scaled {
		return ended("nobody starts agents here: start them, or turn scaling on")
	}
	scaled, err := contract.AskScaleActivity.Execute(onWorker(ctx, "ask for agents"), d.Cluster).Get(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case scaled.Change == api.ScaleUp:
		return moved + fmt.Sprintf("scaling starts %d agents: %s", scaled.Count, scaled.Reason), nil
	case scaled.Blocked:
		return "", temporal.NewNonRetryableApplicationError(moved+"scaling cannot start agents now: "+scaled.Reason,
			"Blocked", nil)
	}
	return ended("scaling does what is needed: " + scaled.Reason)
}

// countHealing counts the action in the worker's metrics. Losing the count changes nothing.
func countHealing(ctx workflow.Context, record api.HealingRecord) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	record.Facts = api.HealingFacts{}
	ctx = workflow.WithLocalActivityOptions(ctx,
		workflow.LocalActivityOptions{ScheduleToCloseTimeout: 10 * time.Second})
	if _, err := contract.CountHealingActivity.ExecuteLocal(ctx, record).Get(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("A healing action was not counted", "error", err)
	}
}
