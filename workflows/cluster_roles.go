package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// loadsTimeout bounds reading the members' loads; an election waits for it.
const loadsTimeout = time.Second

// takeSignals applies what hubs and people sent.
func (r *clusterRun) takeSignals(ctx workflow.Context) {
	r.changed.Take(func(m contract.MembersChanged) {
		r.membersChanged(ctx, m)
		r.note(ctx)
	})
	r.hubLost.Take(func(lost contract.HubLost) {
		r.loseHub(ctx, lost)
		r.note(ctx)
	})
	r.manual.Take(func(request contract.ManualFailover) { r.manualFailover(ctx, request) })
	r.evacuated.Take(func(done contract.Evacuated) {
		r.takeEvacuated(ctx, done)
		r.note(ctx)
	})
	r.takeAnnouncements(ctx)
	r.takeStates(ctx)
}

// membersChanged applies a batch of transitions. An agent that is gone gives up its roles, and if it did not say
// goodbye its failover begins.
func (r *clusterRun) membersChanged(ctx workflow.Context, m contract.MembersChanged) {
	now := workflow.Now(ctx)
	r.state.SetBrake(m.Hub, m.Brake)
	for _, t := range m.Changes {
		member := r.state.Member(t.AgentID)
		if member == nil {
			continue
		}
		was := *member
		if !r.state.Apply(t, m.Hub) || t.Status == "" { // a change of health is only kept: healing reads it
			continue
		}
		r.joined = true
		if t.Status != fleet.AgentOffline && !t.Left {
			continue
		}
		lease := r.state.Config.RoleLease.Std()
		if t.LeaseRemaining != nil {
			lease = t.LeaseRemaining.Std()
		}
		wasLeader, shards := r.vacate(was.AgentID, lease, now)
		if len(t.Attempts) > 0 || !t.Left && was.Status != fleet.AgentMaintenance {
			r.failover(was, contract.FailoverInput{
				Trigger: fleet.TriggerLost, Reason: t.Reason, WasLeader: wasLeader, Shards: shards, Attempts: t.Attempts, NoticedAt: t.At,
			})
		}
	}
}

// loseHub gives up the members that did not leave a lost hub in time. What they may still do is unknown, so their roles
// wait for a whole lease.
func (r *clusterRun) loseHub(ctx workflow.Context, lost contract.HubLost) {
	now := workflow.Now(ctx)
	for _, agent := range r.state.LoseHub(lost.Hub, now) {
		r.joined = true
		wasLeader, shards := r.vacate(agent, r.state.Config.RoleLease.Std(), now)
		if r.state.Member(agent).Status == fleet.AgentMaintenance {
			continue
		}
		r.failover(*r.state.Member(agent), contract.FailoverInput{
			Trigger: fleet.TriggerHubLost, Reason: "hub " + lost.Hub + " was lost", WasLeader: wasLeader, Shards: shards, NoticedAt: lost.At,
		})
	}
}

// vacate takes an agent's roles away. Whoever gets them waits until the lease has run out.
func (r *clusterRun) vacate(agent string, lease time.Duration, now time.Time) (wasLeader bool, shards []int) {
	r.targets = r.state.TargetsHeld(agent)
	if r.state.Leader == agent {
		r.state.VacateLeader(lease, now)
		wasLeader = true
	}
	shards = r.state.VacateShards(agent, lease, now)
	if wasLeader || len(shards) > 0 {
		r.state.Version++
	}
	return wasLeader, shards
}

// settleRoles elects a leader and assigns shards as far as leases allow, and notes when to look again.
func (r *clusterRun) settleRoles(ctx workflow.Context) {
	now := workflow.Now(ctx)
	if !r.joined && (r.wake.IsZero() || now.Before(r.wake)) {
		return
	}
	r.joined, r.wake = false, time.Time{}
	lease := r.state.Config.RoleLease.Std()
	if r.state.LeaderLost() {
		r.state.VacateLeader(lease, now)
		r.state.Version++
	}
	var loads map[string]int
	if r.state.Contested(now) {
		loads = r.loads(ctx)
		now = workflow.Now(ctx)
	}
	standbys := len(r.state.Standbys)
	r.state.RefreshStandbys()
	election, elected := r.state.Elect(loads, now)
	moves, waitUntil := r.state.AssignShards(lease, now)
	targets := r.state.AssignTargets()
	if elected || len(moves)+len(targets) > 0 || len(r.state.Standbys) != standbys {
		r.state.Version++
	}
	r.wake = earlier(election.WaitUntil, waitUntil)
}

// loads reads how many tasks each member runs. It is an extra: where it cannot be had in time, ids decide.
func (r *clusterRun) loads(ctx workflow.Context) map[string]int {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, ScheduleToCloseTimeout: loadsTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "read the members' loads"})
	loads, err := contract.ReadLoadsActivity.Execute(ctx, r.state.Config.Name).Get(ctx)
	if err != nil {
		workflow.GetLogger(ctx).Warn("The members' loads are not known", "error", err)
	}
	return loads
}

// earlier is the earlier of two times, of which zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// fences names the agents whose id a newer process took: hubs end their older sessions.
func fences(members []fleet.Member) []contract.Fence {
	var taken []contract.Fence
	for i := range members {
		if m := &members[i]; len(m.FencedInstances) > 0 {
			taken = append(taken, contract.Fence{AgentID: m.AgentID, MinEpoch: m.Epoch})
		}
	}
	return taken
}
