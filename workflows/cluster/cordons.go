package cluster

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// cordons lets drains and people keep work from agents. A cordoned agent gives up its roles as if it were lost: others
// get them once its lease has run out.
type cordons struct {
	quiet
	run *run
}

func (c cordons) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, c.run, contract.CordonUpdate, c.cordon, nil),
		handle(ctx, c.run, contract.UncordonUpdate, c.uncordon, nil))
}

func (c cordons) cordon(ctx workflow.Context, req contract.CordonRequest) (contract.Cordoned, error) {
	status := api.AgentMaintenance
	if req.Status == api.AgentDraining {
		status = api.AgentDraining
	}
	if err := c.run.refuseHealing(req.AgentID, req.Drain, req.Healing); err != nil {
		return contract.Cordoned{}, err
	}
	if m := c.run.state.Member(req.AgentID); m != nil && m.Status == api.AgentOffline {
		m.Hub = "" // or it would count as connected in maintenance
	}
	err := c.run.state.SetCordon(cluster.Cordon{AgentID: req.AgentID, Status: status, Since: workflow.Now(ctx),
		Reason: req.Reason, Drain: req.Drain})
	if err != nil {
		return contract.Cordoned{}, workflows.Refuse("%s", err)
	}
	return c.answer(req.AgentID), nil
}

func (c cordons) uncordon(ctx workflow.Context, req contract.UncordonRequest) (contract.Cordoned, error) {
	if err := c.run.refuseHealing(req.AgentID, "", req.Healing); err != nil {
		return contract.Cordoned{}, err
	}
	if _, err := c.run.state.LiftCordon(req.AgentID, req.Drain, workflow.Now(ctx)); err != nil {
		return contract.Cordoned{}, workflows.Refuse("%s", err)
	}
	return c.answer(req.AgentID), nil
}

// refuseHealing refuses a healing action if the facts of its decision no longer hold. decided is nil for requests from
// elsewhere.
func (r *run) refuseHealing(agent, drain string, decided *healing.HealingCheck) error {
	if decided == nil {
		return nil
	}
	if err := healing.CheckHealing(&r.state, agent, drain, *decided); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

func (c cordons) answer(agent string) contract.Cordoned {
	answer := contract.Cordoned{Version: c.run.hubs.directive().Version}
	if m := c.run.state.Member(agent); m != nil && m.Connected() {
		answer.Hub, answer.Instance, answer.Epoch = m.Hub, m.Instance, m.Epoch
	}
	return answer
}
