package workflows

import (
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// setCordonHandlers lets drains and people keep work from agents. Who is cordoned gives up its roles as if it were lost:
// others get them once its lease has run out.
func (r *clusterRun) setCordonHandlers(ctx workflow.Context) error {
	err := contract.CordonUpdate.Handle(ctx, r.cordon, func(contract.CordonRequest) error { return r.refuseDeleted() })
	if err != nil {
		return err
	}
	return contract.UncordonUpdate.Handle(ctx, r.uncordon, func(contract.UncordonRequest) error { return r.refuseDeleted() })
}

func (r *clusterRun) cordon(ctx workflow.Context, req contract.CordonRequest) (contract.Cordoned, error) {
	status := fleet.AgentMaintenance
	if req.Status == fleet.AgentDraining {
		status = fleet.AgentDraining
	}
	if err := r.refuseHealing(req.AgentID, req.Drain, req.Healing); err != nil {
		return contract.Cordoned{}, err
	}
	err := r.state.SetCordon(fleet.Cordon{AgentID: req.AgentID, Status: status, Since: workflow.Now(ctx), Reason: req.Reason, Drain: req.Drain})
	if err != nil {
		return contract.Cordoned{}, refuse("%s", err)
	}
	r.state.Version++
	r.joined = true
	return r.cordonAnswer(req.AgentID), nil
}

func (r *clusterRun) uncordon(ctx workflow.Context, req contract.UncordonRequest) (contract.Cordoned, error) {
	if err := r.refuseHealing(req.AgentID, "", req.Healing); err != nil {
		return contract.Cordoned{}, err
	}
	lifted, err := r.state.LiftCordon(req.AgentID, req.Drain, workflow.Now(ctx))
	if err != nil {
		return contract.Cordoned{}, refuse("%s", err)
	}
	if lifted {
		r.state.Version++
		r.joined = true
	}
	return r.cordonAnswer(req.AgentID), nil
}

// refuseHealing refuses what healing decided (nil: something else asks) on facts that do not hold any more.
func (r *clusterRun) refuseHealing(agent, drain string, decided *fleet.HealingCheck) error {
	if decided == nil {
		return nil
	}
	if err := r.state.CheckHealing(agent, drain, *decided); err != nil {
		return refuse("%s", err)
	}
	return nil
}

func (r *clusterRun) cordonAnswer(agent string) contract.Cordoned {
	answer := contract.Cordoned{Version: r.state.Version}
	if m := r.state.Member(agent); m != nil && m.Connected() {
		answer.Hub, answer.Instance, answer.Epoch = m.Hub, m.Instance, m.Epoch
	}
	return answer
}

// cordoned names the agents that hubs give no work.
func cordoned(cordons []fleet.Cordon) []string {
	var agents []string
	for i := range cordons {
		agents = append(agents, cordons[i].AgentID)
	}
	return agents
}
