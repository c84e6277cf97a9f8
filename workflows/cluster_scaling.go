package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// scalingFactsTimeout bounds reading what the members do, when that decides which of them to stop.
const scalingFactsTimeout = 10 * time.Second

// clusterScaling is how a cluster's run keeps the number of agents. What is carried on is in the state.
type clusterScaling struct {
	queue []contract.ScalingInput // decided, not begun
	wake  time.Time               // when what is blocked is tried again; zero: nothing waits
	// look says that what the members do is worth reading, once, if it decides which of them to stop.
	look   bool
	scaled contract.Inbox[fleet.ScalingResult]
	starts contract.Inbox[contract.SpawnerStarts]
}

func newClusterScaling(ctx workflow.Context) clusterScaling {
	return clusterScaling{
		look:   true,
		scaled: contract.ScaledSignal.Inbox(ctx),
		starts: contract.SpawnerStartsSignal.Inbox(ctx),
	}
}

func (s *clusterScaling) signalled() bool { return s.scaled.Len() > 0 || s.starts.Len() > 0 }

// setScalingHandlers takes the sweep's word, and that of actions that have stopped agents.
func (r *clusterRun) setScalingHandlers(ctx workflow.Context) error {
	err := contract.ScaleUpdate.Handle(ctx, func(ctx workflow.Context, req contract.ScaleRequest) (fleet.ScalingDecision, error) {
		if req.To != nil {
			r.state.ScaleTo(*req.To)
			r.scaling.look, r.joined = true, true
		}
		return r.decideScaling(ctx, req.Facts), nil
	}, func(contract.ScaleRequest) error { return r.refuseDeleted() })
	if err != nil {
		return err
	}
	return contract.RetireUpdate.Handle(ctx, contract.NoAnswer(func(_ workflow.Context, req contract.RetireRequest) error {
		if r.state.Retire(req.AgentID) {
			r.state.Version++
			r.joined = true
		}
		return nil
	}), func(req contract.RetireRequest) error {
		if m := r.state.Member(req.AgentID); m != nil && m.Connected() {
			return refuse("the agent is still connected")
		}
		return r.refuseDeleted()
	})
}

// takeScalingSignals notes how actions ended, and that spawners came up.
func (r *clusterRun) takeScalingSignals(ctx workflow.Context) {
	r.scaling.scaled.Take(func(result fleet.ScalingResult) { r.state.EndScaling(result, workflow.Now(ctx)) })
	r.scaling.starts.Take(func(started contract.SpawnerStarts) { r.state.SpawnerBack(started.Spawner) })
}

// settleScaling looks at the number of agents whenever something has changed: too few are made up for at once. What
// depends on queue and load is the sweep's to bring.
func (r *clusterRun) settleScaling(ctx workflow.Context) {
	r.scaling.wake = time.Time{}
	if r.deleted {
		r.scaling.queue = nil
		return
	}
	if !r.state.Config.Scaling.On() && len(r.scaling.queue) == 0 {
		return
	}
	decision := r.decideScaling(ctx, nil)
	if decision.NeedFacts && r.scaling.look {
		r.scaling.look = false
		facts, err := r.readScaling(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Warn("What the agents do is not known; the next sweep brings it", "error", err)
		} else {
			decision = r.decideScaling(ctx, &facts)
		}
	}
	if decision.Blocked {
		r.scaling.wake = decision.NextAt
	}
	r.beginScaling(ctx)
}

// decideScaling decides, and notes what is to be begun. It changes the state in one step.
func (r *clusterRun) decideScaling(ctx workflow.Context, facts *fleet.ScalingFacts) fleet.ScalingDecision {
	now := workflow.Now(ctx)
	r.state.Scaling.Settle(now)
	decision := r.state.DecideScaling(facts, now)
	if decision.Change == fleet.ScaleNone {
		return decision
	}
	action := r.state.BeginScaling(decision, r.created, now)
	in := contract.ScalingInput{Cluster: r.state.Config.Name, Number: action.Number, Decision: decision, Spawn: r.state.Config.Scaling.Spawn}
	if decision.Change == fleet.ScaleUp {
		in.Starts = action.Agents
	} else {
		for _, agent := range action.Agents {
			spawner, _ := r.state.Member(agent).SpawnedBy()
			in.Stops = append(in.Stops, contract.StopAgent{AgentID: agent, Spawner: spawner})
		}
	}
	r.scaling.queue = append(r.scaling.queue, in)
	return decision
}

func (r *clusterRun) readScaling(ctx workflow.Context) (fleet.ScalingFacts, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: scalingFactsTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "read what the agents do"})
	facts, err := contract.ReadScalingActivity.Execute(ctx, r.state.Config.Name).Get(ctx)
	return facts, err
}

// beginScaling starts the actions as children that outlive this run.
func (r *clusterRun) beginScaling(ctx workflow.Context) {
	queue := r.scaling.queue
	r.scaling.queue = nil
	for _, in := range queue {
		childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            contract.ScalingWorkflowID(in.Cluster, in.Number),
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
			TypedSearchAttributes: temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(in.Cluster)),
			StaticSummary:         "scale " + string(in.Decision.Change) + ": " + in.Decision.Reason,
		})
		err := workflow.ExecuteChildWorkflow(childCtx, contract.ScalingWorkflow, in).GetChildWorkflowExecution().Get(ctx, nil)
		if err != nil {
			workflow.GetLogger(ctx).Warn("A scaling action was not begun", "error", err)
			r.state.EndScaling(fleet.ScalingResult{Number: in.Number, Failed: "the action was not begun: " + reasonOf(err)}, workflow.Now(ctx))
		}
	}
}
