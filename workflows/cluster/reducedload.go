package cluster

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// healthRead bounds one request to a hub about its agents' health.
const healthRead = 5 * time.Second

// loads takes slots from agents and gives them back, and spreads shards and targets evenly on request.
type loads struct {
	quiet
	run    *run
	asking bool // hubs are being asked about the health of agents with reduced load
}

func (l *loads) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, l.run, contract.ReduceLoadUpdate, l.reduce, l.mayReduce),
		handle(ctx, l.run, contract.TargetsUpdate, l.changeTargets, l.mayChangeTargets),
		handle(ctx, l.run, contract.RebalanceUpdate, l.rebalance, nil),
		handle(ctx, l.run, contract.RestoreLoadUpdate, l.restore, nil))
}

func (l *loads) mayReduce(req contract.ReduceLoadRequest) error {
	try := l.run.state
	try.Reductions = slices.Clone(try.Reductions)
	if _, err := try.ReduceLoad(req.AgentID, req.Reduce(), time.Time{}); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

func (l *loads) mayChangeTargets(req contract.TargetsRequest) error {
	try := l.run.state
	if _, err := try.Targets.Change(req.Add, req.Remove); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

// reduce answers when the hubs have applied the limit, so that nothing above it begins afterwards.
func (l *loads) reduce(ctx workflow.Context, req contract.ReduceLoadRequest) (contract.LoadReduced, error) {
	if err := l.run.refuseHealing(req.AgentID, "", req.Healing); err != nil {
		return contract.LoadReduced{}, err
	}
	changed, err := l.run.state.ReduceLoad(req.AgentID, req.Reduce(), workflow.Now(ctx))
	if err != nil {
		return contract.LoadReduced{}, workflows.Refuse("%s", err)
	}
	if changed {
		l.run.hubs.awaitFollowed(ctx, "reduced load")
	}
	return l.answer(req.AgentID, changed), nil
}

func (l *loads) restore(_ workflow.Context, req contract.RestoreLoadRequest) (contract.LoadReduced, error) {
	return l.answer(req.AgentID, l.run.state.Reductions.Restore(req.AgentID)), nil
}

func (l *loads) answer(agent string, changed bool) contract.LoadReduced {
	s := &l.run.state
	answer := contract.LoadReduced{AgentID: agent, Changed: changed}
	if reduction := s.Reductions.Of(agent); reduction != nil {
		as := *reduction // as it is now: the state goes on
		answer.Reduction = &as
	}
	if m := s.Member(agent); m != nil {
		answer.MaxTasks, answer.EffectiveSlots = m.MaxTasks, s.EffectiveSlots(m)
	}
	return answer
}

// wake is when the next agent gets slots back.
func (l *loads) wake() (time.Time, string) {
	if l.asking {
		return time.Time{}, ""
	}
	return l.run.state.Reductions.NextStep(), "until agents get slots back"
}

// settle gives slots back where it is time. Where health decides, a coroutine asks the agents' hubs.
func (l *loads) settle(ctx workflow.Context) {
	s, now := &l.run.state, workflow.Now(ctx)
	next := s.Reductions.NextStep()
	if l.asking || next.IsZero() || now.Before(next) {
		return
	}
	agents := s.Reductions.HealthAwaited(now)
	if len(agents) == 0 {
		s.StepReductions(nil, now)
		return
	}
	l.asking = true
	workflow.GoNamed(ctx, "look at agents with reduced load", func(ctx workflow.Context) {
		healthy := l.healthy(ctx, agents)
		l.asking, l.run.touched = false, true
		s.StepReductions(healthy, workflow.Now(ctx))
	})
}

// healthy asks the agents' hubs which of them are healthy. Unknown agents are not.
func (l *loads) healthy(ctx workflow.Context, agents []string) map[string]bool {
	healthy := make(map[string]bool, len(agents))
	for _, agent := range agents {
		m := l.run.state.Member(agent)
		if m == nil || !m.Connected() {
			continue
		}
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: contract.HubQueue(m.Hub), ScheduleToCloseTimeout: healthRead,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "health of " + agent,
		})
		read, err := contract.ReadHealthActivity.Execute(hubCtx,
			contract.ReadHealthInput{Cluster: l.run.state.Config.Name, AgentID: agent}).Get(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Info("The health of an agent with reduced load is not known", "agent", agent,
				"error", err)
			continue
		}
		if health, known := read.Agents[agent]; known {
			healthy[agent] = health.Level == api.HealthHealthy
		}
	}
	return healthy
}

// rebalance spreads shards and targets evenly. The loop gives the shards to their new owners once leases allow.
func (l *loads) rebalance(ctx workflow.Context, req contract.RebalanceRequest) (api.Rebalance, error) {
	s := &l.run.state
	answer := s.Rebalance(s.Config.RoleLease.Std(), workflow.Now(ctx), req.DryRun)
	if !req.DryRun && len(answer.Moves) > 0 {
		workflow.GetLogger(ctx).Info("Rebalanced", "moves", len(answer.Moves), "reason", req.Reason)
	}
	l.run.hubs.takeTurn(ctx)
	return answer, nil
}

func (l *loads) changeTargets(_ workflow.Context, req contract.TargetsRequest) (contract.Done, error) {
	if _, err := l.run.state.Targets.Change(req.Add, req.Remove); err != nil {
		return contract.Done{}, workflows.Refuse("%s", err)
	}
	l.run.state.AssignTargets()
	return contract.Done{}, nil
}
