package cluster

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
)

// lanes opens lanes of capabilities and resources, and gives back those that no task uses. It opens the lanes of single
// agents, and closes those that hubs found empty.
type lanes struct {
	run    *run
	asking bool // which lanes are used
	opened contract.Inbox[string]
}

func (l *lanes) open(ctx workflow.Context, _ contract.ClusterInput) {
	l.opened = contract.OpenAgentLaneSignal.Inbox(ctx)
}

func (l *lanes) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, l.run, contract.OpenLaneUpdate, contract.NoAnswer(l.openLane), nil),
		handle(ctx, l.run, contract.CloseAgentLanesUpdate, l.closeAgentLanes, nil),
		contract.AgentLanesQuery.Handle(ctx, l.agentLanes))
}

func (l *lanes) signalled() bool { return l.opened.Len() > 0 }

func (l *lanes) closeAgentLanes(ctx workflow.Context, empty []cluster.OpenLane) (contract.AgentLanes, error) {
	l.opened.Take(l.run.state.OpenAgentLane) // what was asked for before must not be closed
	l.run.state.CloseAgentLanes(empty)
	l.run.hubs.takeTurn(ctx)
	return l.agentLanes(), nil
}

func (l *lanes) agentLanes() contract.AgentLanes {
	s := &l.run.state
	return contract.AgentLanes{CreatedAt: l.run.created, Version: s.LanesVersion, Open: s.OpenLanes}
}

func (l *lanes) openLane(ctx workflow.Context, req contract.OpenLaneRequest) error {
	s := &l.run.state
	if s.OpenLane(req.LaneNeeds, req.Tenant, workflow.Now(ctx)) {
		return nil
	}
	if req.Type != "" {
		s.CrowdTypes(req.Type)
		l.run.touched = true
	}
	return workflows.Refuse("the cluster's tasks name %d different sets of capabilities and resources, and so no"+
		" more are free for this tenant; a set is free again an hour after its last task",
		len(s.CapabilitySets)+len(s.Fits))
}

// wake is when to look whether lanes are used.
func (l *lanes) wake() (time.Time, string) {
	look, types := l.run.state.NextLaneLook(), l.run.state.TypesChangeAt()
	if l.asking {
		look = time.Time{}
	}
	if !types.IsZero() && (look.IsZero() || types.Before(look)) {
		return types, "until the types that share a lane change"
	}
	return look, "until lanes that no task uses are given back"
}

// settle opens the requested lanes, and checks those whose time has come, in a coroutine. A lane that cannot be checked
// counts as used.
func (l *lanes) settle(ctx workflow.Context) {
	s, now := &l.run.state, workflow.Now(ctx)
	l.opened.Take(s.OpenAgentLane)
	l.settleTypes(ctx)
	due := s.LanesToLookAt(now)
	if l.asking || len(due) == 0 {
		return
	}
	l.asking = true
	workflow.GoNamed(ctx, "look at lanes", func(ctx workflow.Context) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              contract.WorkerQueue,
			StartToCloseTimeout:    time.Minute,
			ScheduleToCloseTimeout: 10 * time.Minute,
			Summary:                "which lanes are used",
		})
		used, err := contract.UsedLanesActivity.Execute(ctx, contract.UsedLanesInput{
			Cluster: s.Config.Name, Lanes: due, Since: now.Add(-cluster.LaneIdle)}).Get(ctx)
		if err != nil {
			used = due
		}
		l.asking, l.run.touched = false, true
		s.SettleLanes(used, now)
	})
}

// settleTypes brings the lanes of types up to date with the members. Submissions read the types from the memo.
func (l *lanes) settleTypes(ctx workflow.Context) {
	s := &l.run.state
	before := s.TypeLanes
	if s.SettleTypes(workflow.Now(ctx)); s.TypeLanes.Same(&before) {
		return
	}
	if err := workflow.UpsertMemo(ctx, map[string]any{contract.MemoTypes: s.LaneTypes()}); err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "error", err)
	}
}
