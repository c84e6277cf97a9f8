package cluster

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// scalingFactsTimeout bounds reading the members' loads, when these decide which members to stop.
const scalingFactsTimeout = 10 * time.Second

// scaler keeps the number of agents. The state has what is carried on.
type scaler struct {
	run   *run
	queue []contract.ScalingInput // decided, not begun
	retry time.Time               // when to try again what is blocked; zero: nothing is
	// look: read the members' loads once, if they decide which members to stop.
	look   bool
	scaled contract.Inbox[scaling.ScalingResult]
	starts contract.Inbox[contract.SpawnerStarts]
}

func (s *scaler) open(ctx workflow.Context, _ contract.ClusterInput) {
	s.look, s.scaled, s.starts = true, contract.ScaledSignal.Inbox(ctx), contract.SpawnerStartsSignal.Inbox(ctx)
}

// handle registers the updates of the sweep, and of actions that have stopped agents.
func (s *scaler) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, s.run, contract.ScaleUpdate, s.scale, nil),
		handle(ctx, s.run, contract.SpawnUpdate, s.spawn, s.refusal(scaling.MaySpawn)),
		handle(ctx, s.run, contract.TerminateUpdate, s.terminate, s.mayTerminate),
		handle(ctx, s.run, contract.RetireUpdate, contract.NoAnswer(s.retire), s.mayRetire),
		handle(ctx, s.run, contract.PromoteRolloutUpdate, contract.NoAnswer(s.promote),
			s.refusal(scaling.MayPromoteRollout)),
		handle(ctx, s.run, contract.RevertRolloutUpdate, contract.NoAnswer(s.revert),
			s.refusal(scaling.MayRevertRollout)))
}

func (s *scaler) refusal(why func(*cluster.Cluster) string) func(contract.RunRequest) error {
	return func(contract.RunRequest) error {
		if reason := why(&s.run.state); reason != "" {
			return workflows.Refuse("%s", reason)
		}
		return nil
	}
}

func (s *scaler) promote(ctx workflow.Context, req contract.RunRequest) error {
	scaling.PromoteRollout(&s.run.state, req.By, req.Reason, workflow.Now(ctx))
	s.look = true
	return nil
}

func (s *scaler) revert(ctx workflow.Context, req contract.RunRequest) error {
	scaling.RevertRollout(&s.run.state, req.By, req.Reason, workflow.Now(ctx))
	s.look = true
	s.run.note(ctx)
	return nil
}

func (s *scaler) scale(ctx workflow.Context, req contract.ScaleRequest) (cluster.ScalingDecision, error) {
	if req.To != nil {
		scaling.ScaleTo(&s.run.state, *req.To)
		s.look = true
	}
	return s.choose(ctx, req.Facts), nil
}

func (s *scaler) spawn(ctx workflow.Context, req contract.RunRequest) (contract.ScalingAsked, error) {
	return s.asked(ctx, scaling.SpawnOne(&s.run.state, req.By, req.Reason, workflow.Now(ctx))), nil
}

func (s *scaler) terminate(ctx workflow.Context, req contract.TerminateRequest) (contract.ScalingAsked, error) {
	return s.asked(ctx, scaling.TerminateOne(&s.run.state, req.AgentID, req.By, req.Reason, workflow.Now(ctx))), nil
}

func (s *scaler) mayTerminate(req contract.TerminateRequest) error {
	if reason := scaling.MayTerminate(&s.run.state, req.AgentID); reason != "" {
		return workflows.Refuse("%s", reason)
	}
	return nil
}

func (s *scaler) asked(ctx workflow.Context, decision cluster.ScalingDecision) contract.ScalingAsked {
	action := s.act(decision, workflow.Now(ctx))
	return contract.ScalingAsked{Number: action.Number, AgentID: action.Agents[0]}
}

func (s *scaler) retire(_ workflow.Context, req contract.RetireRequest) error {
	scaling.Retire(&s.run.state, req.AgentID)
	return nil
}

func (s *scaler) mayRetire(req contract.RetireRequest) error {
	if m := s.run.state.Member(req.AgentID); m != nil && m.Connected() {
		return workflows.Refuse("the agent is still connected")
	}
	return nil
}

func (s *scaler) signalled() bool { return s.scaled.Len() > 0 || s.starts.Len() > 0 }

func (s *scaler) wake() (time.Time, string) { return s.retry, "until agents are tried again" }

// settle applies the ends of actions and the starts of spawners.
func (s *scaler) settle(ctx workflow.Context) {
	s.scaled.Take(func(result scaling.ScalingResult) {
		scaling.EndScaling(&s.run.state, result, workflow.Now(ctx))
		s.look = s.look || scaling.RollsOut(&s.run.state)
	})
	s.starts.Take(func(started contract.SpawnerStarts) { scaling.SpawnerBack(&s.run.state, started.Spawner) })
}

// decide checks the number of agents after every change and replaces missing ones at once. The sweep adds the decisions
// that depend on queue and load.
func (s *scaler) decide(ctx workflow.Context) {
	s.retry = time.Time{}
	if s.run.deleted {
		s.queue = nil
		return
	}
	if scaling.AdvanceRollout(&s.run.state, workflow.Now(ctx)) {
		s.look = true
		s.run.note(ctx)
	}
	s.run.events.record(ctx)
	if !s.run.state.Config.Scaling.On() && len(s.queue) == 0 {
		return
	}
	decision := s.choose(ctx, nil)
	if decision.NeedFacts && s.look {
		s.look = false
		facts, err := s.read(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Warn("What the agents do is not known; the next sweep brings it", "error", err)
		} else {
			decision = s.choose(ctx, &facts)
		}
	}
	if decision.Blocked {
		s.retry = decision.NextAt
	}
	at := scaling.NextRollout(&s.run.state, workflow.Now(ctx))
	if s.retry.IsZero() || !at.IsZero() && at.Before(s.retry) {
		s.retry = at
	}
	s.begin(ctx)
}

// choose decides, and queues the actions. It changes the state in one step.
func (s *scaler) choose(ctx workflow.Context, facts *scaling.ScalingFacts) cluster.ScalingDecision {
	now := workflow.Now(ctx)
	s.run.state.Scaling.Settle(now)
	decision := scaling.DecideScaling(&s.run.state, facts, now)
	if decision.Change != api.ScaleNone {
		s.act(decision, now)
	}
	return decision
}

// act records the action of a decision, and queues it.
func (s *scaler) act(decision cluster.ScalingDecision, now time.Time) cluster.ScalingAction {
	action := scaling.BeginScaling(&s.run.state, decision, s.run.created, now)
	in := contract.ScalingInput{Cluster: s.run.state.Config.Name, Number: action.Number, Decision: decision,
		Spawn: *scaling.SpawnBy(&s.run.state, decision.Rule)}
	if decision.Change == api.ScaleUp {
		in.Starts = action.Agents
	} else {
		for _, agent := range action.Agents {
			spawner, _ := s.run.state.Member(agent).SpawnedBy()
			in.Stops = append(in.Stops, contract.StopAgent{AgentID: agent, Spawner: spawner})
		}
	}
	s.queue = append(s.queue, in)
	return action
}

func (s *scaler) read(ctx workflow.Context) (scaling.ScalingFacts, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: scalingFactsTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "read what the agents do"})
	facts, err := contract.ReadScalingActivity.Execute(ctx, s.run.state.Config.Name).Get(ctx)
	return facts, err
}

// begin starts the actions as children that outlive this run.
func (s *scaler) begin(ctx workflow.Context) {
	queue := s.queue
	s.queue = nil
	for _, in := range queue {
		childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            contract.ScalingWorkflowID(in.Cluster, in.Number),
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
			TypedSearchAttributes: temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(in.Cluster)),
			StaticSummary:         "scale " + string(in.Decision.Change) + ": " + in.Decision.Reason,
		})
		err := workflow.ExecuteChildWorkflow(childCtx, contract.ScalingWorkflow,
			in).GetChildWorkflowExecution().Get(ctx, nil)
		if err != nil {
			workflow.GetLogger(ctx).Warn("A scaling action was not begun", "error", err)
			scaling.EndScaling(&s.run.state, scaling.ScalingResult{Number: in.Number,
				Failed: "the action was not begun: " + workflows.ReasonOf(err)}, workflow.Now(ctx))
		}
	}
}
