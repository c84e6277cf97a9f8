package cluster

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// members admits agents, and applies the hubs' reports about them.
type members struct {
	quiet
	run     *run
	changed contract.Inbox[contract.MembersChanged]
	hubLost contract.Inbox[contract.HubLost]
}

func (m *members) open(ctx workflow.Context, _ contract.ClusterInput) {
	m.changed, m.hubLost = contract.MembersChangedSignal.Inbox(ctx), contract.HubLostSignal.Inbox(ctx)
}

func (m *members) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, m.run, contract.JoinUpdate, m.join, nil),
		handle(ctx, m.run, contract.RevokeJoinTokenUpdate, m.revokeToken, nil),
		handle(ctx, m.run, contract.DeadUpdate, contract.NoAnswer(m.declareDead), nil),
		handle(ctx, m.run, contract.ForgetUpdate, contract.NoAnswer(m.forget), nil))
}

func (m *members) signalled() bool { return m.changed.Len() > 0 || m.hubLost.Len() > 0 }

func (m *members) settle(ctx workflow.Context) {
	m.changed.Take(func(c contract.MembersChanged) {
		m.apply(ctx, c)
		m.run.events.record(ctx)
	})
	m.hubLost.Take(func(lost contract.HubLost) {
		m.loseHub(ctx, lost)
		m.run.events.record(ctx)
	})
}

func (m *members) join(ctx workflow.Context, req contract.JoinRequest) (contract.JoinResponse, error) {
	r, now := m.run, workflow.Now(ctx)
	r.state.HubProcess(req.Hub, req.HubProcess, now)
	answer := contract.JoinResponse{Results: make([]cluster.Joined, 0, len(req.Joins))}
	profiles, texts := r.state.ProfilesSize(), r.state.TextsSize()
	for i := range req.Joins {
		j := req.Joins[i]
		why := r.state.RefuseProfile(&j, &profiles)
		if why == cluster.RefusedProfiles && !r.state.Grows(&j) {
			why = ""
		}
		if why == "" && r.state.Crowded(&j, &texts) {
			why = cluster.RefusedProfiles
		}
		if why != "" {
			answer.Results = append(answer.Results, cluster.Joined{AgentID: j.AgentID, Refused: why})
			continue
		}
		if was := r.state.Member(j.AgentID); was != nil && was.Instance == j.Instance && was.Registration > 0 &&
			j.Registration == 0 {
			j.Registration = was.Registration // else a goodbye of before the member's newest registration would count
		}
		joined := r.state.Join(j, req.Hub, now)
		if hub := joined.ReplacedHub; hub != "" && !slices.Contains(r.hubs.former, hub) {
			r.hubs.former = append(r.hubs.former, hub)
		}
		if joined.Refuted != "" {
			r.events.publish(now, api.EventProofRefuted, api.EventData{AgentID: j.AgentID, Epoch: joined.Epoch,
				Hub: req.Hub, Reason: joined.Refuted})
		}
		answer.Results = append(answer.Results, joined)
	}
	r.lanes.settleTypes(ctx)
	if present := r.hubs.directive(); !present.Is(req.Knows) {
		r.hubs.takeTurn(ctx)
		answer.Directive = new(r.hubs.directive())
	}
	return answer, nil
}

// revokeToken refuses further joins with a token. If it also ends the token's sessions, it answers when the hubs have
// the directive.
func (m *members) revokeToken(
	ctx workflow.Context, req contract.RevokeJoinTokenRequest,
) (contract.RevokedJoinToken, error) {
	ended := m.run.state.RevokeToken(req.ID, req.EndSessions)
	if req.EndSessions {
		m.run.hubs.awaitFollowed(ctx, "a revoked token")
	}
	return contract.RevokedJoinToken{Agents: ended}, nil
}

// declareDead takes a proof of death. Hubs get it with the directive; the agent's hub then ends its session and reports
// what it had.
func (m *members) declareDead(ctx workflow.Context, proof cluster.DeathProof) error {
	if err := m.run.state.DeclareDead(proof, workflow.Now(ctx)); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

func (m *members) forget(ctx workflow.Context, req contract.ForgetRequest) error {
	if err := m.run.state.Forget(req.AgentID, workflow.Now(ctx)); err != nil {
		return workflows.Refuse("%s", err)
	}
	return nil
}

// apply applies a batch of transitions. An agent that is gone or stops gives up its roles. A failover of one that is
// gone without a goodbye begins.
func (m *members) apply(ctx workflow.Context, changed contract.MembersChanged) {
	r, now := m.run, workflow.Now(ctx)
	r.state.SetBrake(changed.Hub, changed.Brake)
	for _, t := range changed.Changes {
		member := r.state.Member(t.AgentID)
		if member == nil {
			continue
		}
		was := *member
		stops := t.Status == api.AgentStopping
		if !r.state.Apply(t, changed.Hub) || t.Status == "" || t.Status != api.AgentOffline && !t.Left && !stops {
			continue
		}
		if t.Evidence == "" && !stops { // it said goodbye, or a person ended its session
			r.state.Vanished.Back(t.AgentID)
		}
		lease := r.state.Config.RoleLease.Std()
		if t.LeaseRemaining != nil {
			lease = t.LeaseRemaining.Std()
		}
		held := r.roles.vacate(was.AgentID, lease, now)
		if stops {
			continue
		}
		if len(t.Attempts) > 0 || !t.Left && was.Status != api.AgentMaintenance {
			r.failovers.add(was, held, contract.FailoverInput{Trigger: api.TriggerLost, Reason: t.Reason,
				Attempts: t.Attempts, Unlisted: t.Unlisted, NoticedAt: t.At, Evidence: t.Evidence,
				NoticedAfter: t.NoticedAfter})
		}
	}
}

// loseHub gives up the members that did not leave a lost hub in time, unless the brake holds them. They may still run,
// so their roles wait for a whole lease.
func (m *members) loseHub(ctx workflow.Context, lost contract.HubLost) {
	r, now := m.run, workflow.Now(ctx)
	r.hubs.forget(lost.Hub)
	if r.brakes.missHub(&lost, now) {
		return
	}
	for _, agent := range r.state.LoseHub(lost.Hub, now) {
		if lost.Held {
			r.state.Vanished.Back(agent)
		}
		member, lease := r.state.Member(agent), r.state.Config.RoleLease.Std()
		if r.state.Deaths.Of(agent, member.Instance) != nil {
			lease = 0
		}
		held := r.roles.vacate(agent, lease, now)
		if member.Status != api.AgentMaintenance {
			r.failovers.add(*member, held, contract.FailoverInput{
				Trigger:   api.TriggerHubLost,
				Reason:    "hub " + lost.Hub + " was lost",
				NoticedAt: lost.At,
				Evidence:  api.EvidenceHubLost,
				Attempts:  lost.Attempts[agent],
			})
		}
	}
}
