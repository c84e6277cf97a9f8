package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// healthRead bounds asking a hub how well its agents do.
const healthRead = 5 * time.Second

// setLoadHandlers takes what is said about how much an agent may run.
func (r *clusterRun) setLoadHandlers(ctx workflow.Context) error {
	err := contract.ReduceLoadUpdate.Handle(ctx, r.reduceLoad, func(req contract.ReduceLoadRequest) error {
		try := r.state
		try.Reductions = slices.Clone(try.Reductions)
		if _, err := try.ReduceLoad(req.AgentID, req.Reduce(), time.Time{}); err != nil {
			return refuse("%s", err)
		}
		return r.refuseDeleted()
	})
	if err != nil {
		return err
	}
	err = contract.RebalanceUpdate.Handle(ctx, r.rebalance, func(contract.RebalanceRequest) error { return r.refuseDeleted() })
	if err != nil {
		return err
	}
	err = contract.TargetsUpdate.Handle(ctx, r.changeTargets, func(req contract.TargetsRequest) error {
		try := r.state
		if _, err := try.Targets.Change(req.Add, req.Remove); err != nil {
			return refuse("%s", err)
		}
		return r.refuseDeleted()
	})
	if err != nil {
		return err
	}
	return contract.RestoreLoadUpdate.Handle(ctx, r.restoreLoad, func(contract.RestoreLoadRequest) error { return r.refuseDeleted() })
}

// reduceLoad answers when the hubs have heard, so that nothing above the limit begins afterwards.
func (r *clusterRun) reduceLoad(ctx workflow.Context, req contract.ReduceLoadRequest) (contract.LoadReduced, error) {
	if err := r.refuseHealing(req.AgentID, "", req.Healing); err != nil {
		return contract.LoadReduced{}, err
	}
	changed, err := r.state.ReduceLoad(req.AgentID, req.Reduce(), workflow.Now(ctx))
	if err != nil {
		return contract.LoadReduced{}, refuse("%s", err)
	}
	r.reduced = true
	if changed {
		r.state.Version++
		version := r.state.Version
		_, _ = workflow.AwaitWithOptions(ctx, named(heardTimeout, "until the hubs have heard of reduced load"), func() bool { return r.heard >= version })
	}
	return r.loadAnswer(req.AgentID, changed), nil
}

func (r *clusterRun) restoreLoad(_ workflow.Context, req contract.RestoreLoadRequest) (contract.LoadReduced, error) {
	restored := r.state.Reductions.Restore(req.AgentID)
	if restored {
		r.state.Version++
	}
	return r.loadAnswer(req.AgentID, restored), nil
}

func (r *clusterRun) loadAnswer(agent string, changed bool) contract.LoadReduced {
	answer := contract.LoadReduced{AgentID: agent, Changed: changed}
	if reduction := r.state.Reductions.Of(agent); reduction != nil {
		as := *reduction // as it is now: the state goes on
		answer.Reduction = &as
	}
	if m := r.state.Member(agent); m != nil {
		answer.MaxTasks, answer.EffectiveSlots = m.MaxTasks, r.state.EffectiveSlots(m)
	}
	return answer
}

// restoreLoads gives agents slots back whose time has come. Where their health decides, their hubs are asked beside the
// main loop.
func (r *clusterRun) restoreLoads(ctx workflow.Context) {
	r.reduced = false
	now := workflow.Now(ctx)
	next := r.state.Reductions.NextStep()
	if r.askingHealth || next.IsZero() || now.Before(next) {
		return
	}
	agents := r.state.Reductions.HealthAwaited(now)
	if len(agents) == 0 {
		r.stepReductions(nil, now)
		return
	}
	r.askingHealth = true
	workflow.GoNamed(ctx, "look at agents with reduced load", func(ctx workflow.Context) {
		healthy := r.healthy(ctx, agents)
		r.askingHealth, r.reduced = false, true
		r.stepReductions(healthy, workflow.Now(ctx))
	})
}

func (r *clusterRun) stepReductions(healthy map[string]bool, now time.Time) {
	if r.state.StepReductions(healthy, now) {
		r.state.Version++
	}
}

// nextRestore is when restoreLoads has something to do; zero: nothing waits.
func (r *clusterRun) nextRestore() time.Time {
	if r.askingHealth {
		return time.Time{}
	}
	return r.state.Reductions.NextStep()
}

// healthy asks the agents' hubs which of them do well. One that is not known does not.
func (r *clusterRun) healthy(ctx workflow.Context, agents []string) map[string]bool {
	healthy := make(map[string]bool, len(agents))
	for _, agent := range agents {
		m := r.state.Member(agent)
		if m == nil || !m.Connected() {
			continue
		}
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: contract.HubQueue(m.Hub), ScheduleToCloseTimeout: healthRead,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "health of " + agent,
		})
		read, err := contract.ReadHealthActivity.Execute(hubCtx, contract.ReadHealthInput{Cluster: r.state.Config.Name, AgentID: agent}).Get(ctx)
		if err != nil {
			workflow.GetLogger(ctx).Info("The health of an agent with reduced load is not known", "agent", agent, "error", err)
			continue
		}
		if health, known := read.Agents[agent]; known {
			healthy[agent] = health.Level == fleet.HealthHealthy
		}
	}
	return healthy
}

// rebalance spreads shards and targets evenly. The main loop gives the shards to their new owners once leases allow.
func (r *clusterRun) rebalance(ctx workflow.Context, req contract.RebalanceRequest) (fleet.Rebalance, error) {
	answer := r.state.Rebalance(r.state.Config.RoleLease.Std(), workflow.Now(ctx), req.DryRun)
	if !req.DryRun && len(answer.Moves) > 0 {
		r.state.Version++
		r.joined = true
		workflow.GetLogger(ctx).Info("Rebalanced", "moves", len(answer.Moves), "reason", req.Reason)
	}
	return answer, nil
}

func (r *clusterRun) changeTargets(_ workflow.Context, req contract.TargetsRequest) (contract.ClusterView, error) {
	changed, err := r.state.Targets.Change(req.Add, req.Remove)
	if err != nil {
		return contract.ClusterView{}, refuse("%s", err)
	}
	if changed {
		r.state.AssignTargets()
		r.state.Version++
	}
	return r.view(), nil
}
