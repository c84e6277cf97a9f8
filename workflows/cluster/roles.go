package cluster

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
)

// loadsTimeout bounds reading the members' loads, for which an election waits.
const loadsTimeout = time.Second

// roles elects a leader, and assigns shards and targets, as far as leases allow.
type roles struct {
	quiet
	run  *run
	next time.Time // when the next role becomes free whose lease must end; zero: none
}

func (p *roles) wake() (time.Time, string) { return p.next, "until a role is free" }

func (p *roles) settle(ctx workflow.Context) {
	r, now := p.run, workflow.Now(ctx)
	lease := r.state.Config.RoleLease.Std()
	if r.state.LeaderLost() {
		r.state.VacateLeader(lease, now)
	}
	r.state.RefreshStandbys()
	if p.next = r.hubs.renewUntil(r.state.FormerHolders(), now); !p.next.IsZero() {
		return
	}
	var loads map[string]int
	if r.state.Contested(now) {
		loads = r.readLoads(ctx)
		now = workflow.Now(ctx)
	}
	election, _ := r.state.Elect(r.state.Config.Selection, loads, now)
	_, free := r.state.AssignShards(lease, now)
	r.state.AssignTargets()
	p.next = election.WaitUntil
	if p.next.IsZero() || !free.IsZero() && free.Before(p.next) {
		p.next = free
	}
}

// held are the roles that an agent had.
type held struct {
	leader  bool
	shards  []int
	targets []string
}

// vacate takes an agent's roles away. Others get them when the lease has run out.
func (p *roles) vacate(agent string, lease time.Duration, now time.Time) held {
	s := &p.run.state
	had := held{leader: s.Leader == agent, targets: s.TargetsHeld(agent)}
	if had.leader {
		s.VacateLeader(lease, now)
	}
	had.shards = s.Shards.Vacate(agent, lease, now)
	return had
}

// readLoads reads how many tasks each member runs. If that takes too long, ids decide.
func (r *run) readLoads(ctx workflow.Context) map[string]int {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		ScheduleToCloseTimeout: loadsTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                "read the members' loads",
	})
	loads, err := contract.ReadLoadsActivity.Execute(ctx, r.state.Config.Name).Get(ctx)
	if err != nil {
		workflow.GetLogger(ctx).Warn("The members' loads are not known", "error", err)
	}
	return loads
}
