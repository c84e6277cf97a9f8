package cluster

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// states starts state syncs when the members' states differ.
type states struct {
	quiet
	run     *run
	changed contract.Inbox[contract.StatesChanged]
}

func (s *states) open(ctx workflow.Context, _ contract.ClusterInput) {
	s.changed = contract.StatesSignal.Inbox(ctx)
}

func (s *states) signalled() bool { return s.changed.Len() > 0 }

func (s *states) wake() (time.Time, string) {
	return s.run.state.SyncAt, "until states are synced again"
}

// settle applies the digests that hubs report, and starts a sync when one is due. While one is under way it tries again
// soon.
func (s *states) settle(ctx workflow.Context) {
	state, now := &s.run.state, workflow.Now(ctx)
	mode := state.Config.ReplicationMode
	s.changed.Take(func(c contract.StatesChanged) {
		if state.SetStateDigests(c.Hub, c.Digests, mode, now) {
			state.SyncSoon(now)
		}
	})
	state.DropStateDigests(state.Hubs(), mode, now)
	if !state.SyncDue(now) {
		return
	}
	child := workflows.StartSync(ctx, contract.SyncInput{Cluster: state.Config.Name,
		Reason: "the members' states differ"})
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Info("A state sync was not started; one is under way", "error", err)
		state.SyncSoon(workflow.Now(ctx)) // that one may have read the states before they changed
		return
	}
	s.follow(ctx, child)
}

// follow publishes a state sync's end, if it ends within this run of the workflow.
func (s *states) follow(ctx workflow.Context, child workflow.ChildWorkflowFuture) {
	workflow.GoNamed(ctx, "await a state sync", func(ctx workflow.Context) {
		var report api.SyncReport
		data := api.EventData{}
		if err := child.Get(ctx, &report); err != nil {
			data.Outcome, data.Reason = string(api.SyncFailed), "its workflow did not complete"
		} else {
			data.Outcome, data.Reason = string(report.Status), report.Why
		}
		s.run.events.publish(workflow.Now(ctx), api.EventStateSync, data)
	})
}
