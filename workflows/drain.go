package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

const (
	// drainCall bounds one request to a cluster or a hub.
	drainCall = time.Minute
	// idleBeat bounds the silence of a hub that watches an agent; after it the hub counts as gone.
	idleBeat = 10 * time.Second
	// drainAgain is the time between two looks for an agent that its hub does not know: it may be on its way to
	// another.
	drainAgain = time.Second
)

// Drain takes agents out of service, MaxParallel at a time. New work stops at once; running work may finish until the
// timeout; the rest is taken off by its retry safety; the agent ends in maintenance with nothing in flight. Cancelling
// the workflow returns unfinished agents to work.
func Drain(ctx workflow.Context, in contract.DrainInput) (api.DrainRecord, error) {
	d := &drain{in: in, record: api.DrainRecord{
		ID: in.ID, Cluster: in.Cluster, Status: api.DrainRunning, Reason: in.Reason, Timeout: in.Timeout,
		MaxParallel: max(in.MaxParallel, 1),
		RequestedAt: workflow.Now(ctx),
		Agents:      make([]api.AgentDrain, len(in.Agents)),
	}}
	for i, agent := range in.Agents {
		d.record.Agents[i] = api.AgentDrain{AgentID: agent, Status: api.DrainWaiting}
	}
	if err := contract.DrainQuery.Handle(ctx, d.told); err != nil {
		return d.record, err
	}
	d.announce(ctx, api.EventDrainStarted, "", in.Reason)
	d.run(ctx)
	completed := workflow.Now(ctx)
	d.record.CompletedAt = &completed
	d.record.Status, d.record.Error = d.outcome()
	d.announce(ctx, api.EventDrainEnded, d.record.Status, d.record.Error)
	return d.told(), nil
}

// workTold bounds the work that a record lists, of all agents together: hundreds of agents may have had thousands of
// tasks, and Temporal takes 2 MiB.
const workTold = 5000

// told is the record as it is shown and kept.
func (d *drain) told() api.DrainRecord {
	record := d.record
	record.Agents = slices.Clone(record.Agents)
	each := max(workTold/max(len(record.Agents), 1), 1)
	for i := range record.Agents {
		if a := &record.Agents[i]; len(a.Work) > each {
			a.Work, a.MoreWork = a.Work[:each], len(a.Work)-each
		}
	}
	return record
}

// announce publishes the drain as an event of the cluster, unless it is a dry run.
func (d *drain) announce(ctx workflow.Context, kind api.EventType, outcome api.DrainStatus, why string) {
	if d.in.DryRun {
		return
	}
	data := api.EventData{ID: d.in.ID, Count: len(d.in.Agents), Outcome: string(outcome), Reason: why}
	if len(d.in.Agents) == 1 {
		data.AgentID = d.in.Agents[0]
	}
	announce(ctx, d.in.Cluster, cluster.Event{Type: kind, EventData: data})
}

// drain is one run of a Drain workflow.
type drain struct {
	in     contract.DrainInput
	record api.DrainRecord
}

// run drains the agents, each in a coroutine of its own, and returns when all are done.
func (d *drain) run(ctx workflow.Context) {
	turns := workflow.NewSemaphore(ctx, int64(d.record.MaxParallel))
	wait := workflow.NewWaitGroup(ctx)
	for i := range d.record.Agents {
		wait.Add(1)
		workflow.GoNamed(ctx, d.record.Agents[i].AgentID, func(ctx workflow.Context) {
			defer wait.Done()
			a := &agentDrain{drain: d, record: &d.record.Agents[i]}
			if err := turns.Acquire(ctx, 1); err != nil {
				a.close(ctx, api.DrainCancelled, "")
				return
			}
			defer turns.Release(1)
			a.run(ctx)
		})
	}
	own, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	wait.Wait(own)
}

// outcome sums up the agents' drains.
func (d *drain) outcome() (api.DrainStatus, string) {
	status, why := api.DrainCompleted, ""
	for i := range d.record.Agents {
		switch a := &d.record.Agents[i]; a.Status {
		case api.DrainFailed:
			return api.DrainFailed, a.AgentID + ": " + a.Error
		case api.DrainCancelled:
			status = api.DrainCancelled
		case api.DrainPlanned:
			status = api.DrainPlanned
		}
	}
	return status, why
}

// agentDrain is the drain of one agent.
type agentDrain struct {
	drain  *drain
	record *api.AgentDrain
	place  contract.Cordoned // where the agent is connected
	// left is what it had when its hub saw it last, if that is known.
	left      []cluster.HeldAttempt
	leftKnown bool
}

// run takes one agent out of service.
func (a *agentDrain) run(ctx workflow.Context) {
	if ctx.Err() != nil {
		a.close(ctx, api.DrainCancelled, "")
		return
	}
	a.record.Status = api.DrainRunning
	err := a.carryOut(ctx)
	switch {
	case ctx.Err() != nil:
		a.giveBack(ctx)
		a.close(ctx, api.DrainCancelled, "")
	case err != nil:
		a.record.Refused = IsType(err, contract.Refused)
		a.keepOut(ctx, err)
		a.close(ctx, api.DrainFailed, ReasonOf(err))
	case a.drain.in.DryRun:
		a.close(ctx, api.DrainPlanned, "")
	default:
		a.close(ctx, api.DrainCompleted, "")
	}
}

func (a *agentDrain) close(ctx workflow.Context, status api.DrainStatus, why string) {
	at := workflow.Now(ctx)
	a.record.Status, a.record.Error, a.record.CompletedAt = status, why, &at
}

func (a *agentDrain) carryOut(ctx workflow.Context) error {
	if err := a.stopNewWork(ctx); err != nil || a.drain.in.DryRun {
		return err
	}
	now := workflow.Now(ctx)
	deadline := now.Add(a.drain.in.Timeout.Std())
	a.record.AcknowledgedAt, a.record.Deadline = &now, &deadline
	idle, err := a.awaitIdle(ctx, deadline)
	if err != nil {
		return err
	}
	if !idle {
		a.record.Status = api.DrainMoving
		if err := a.evacuate(ctx); err != nil {
			return err
		}
	}
	for i := range a.record.Work {
		switch w := &a.record.Work[i]; {
		case w.Moved:
			a.record.Moved++
		case w.Lost:
			a.record.Lost++
		case w.Ignored:
			a.record.Ignored++
		case w.Kind != "":
			a.record.Replaced++
		default:
			a.record.Finished++
		}
	}
	return a.cordon(ctx, api.AgentMaintenance)
}

// cordon cordons the agent at its cluster and learns where it is connected.
func (a *agentDrain) cordon(ctx workflow.Context, status api.AgentStatus) error {
	place, err := contract.CordonActivity.Execute(onWorker(ctx, a.record.AgentID+": "+string(status)),
		contract.ClusterCordon{
			Cluster: a.drain.in.Cluster,
			Request: contract.CordonRequest{AgentID: a.record.AgentID, Status: status, Reason: a.drain.in.Reason,
				Drain:   a.drain.in.ID,
				Healing: a.drain.in.Healing},
		}).Get(ctx)
	if err == nil {
		a.place = place
	}
	return err
}

// giveBack lifts the cordon of a cancelled drain. It works even when the workflow is cancelled.
func (a *agentDrain) giveBack(ctx workflow.Context) {
	if a.drain.in.DryRun {
		return
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_, err := contract.UncordonActivity.Execute(onWorker(ctx, "give work again to "+a.record.AgentID),
		contract.ClusterUncordon{
			Cluster: a.drain.in.Cluster, Request: contract.UncordonRequest{AgentID: a.record.AgentID,
				Drain: a.drain.in.ID}}).Get(ctx)
	if err != nil {
		workflow.GetLogger(ctx).Warn("The agent's cordon was not lifted; end its maintenance by hand", "agent",
			a.record.AgentID, "error", err)
	}
}

// keepOut leaves an agent whose drain failed in maintenance, so that it gets no work. An agent that the cluster refused
// to drain stays as it is.
func (a *agentDrain) keepOut(ctx workflow.Context, why error) {
	if a.drain.in.DryRun || IsType(why, contract.Refused) {
		return
	}
	if err := a.cordon(ctx, api.AgentMaintenance); err != nil {
		workflow.GetLogger(ctx).Warn("The agent was not put into maintenance", "agent", a.record.AgentID, "error", err)
	}
}

// stopNewWork cordons the agent and lists what it has. An agent that is not connected has nothing.
func (a *agentDrain) stopNewWork(ctx workflow.Context) error {
	for {
		if err := a.find(ctx); err != nil || a.place.Hub == "" {
			return err
		}
		stopped, err := contract.StopWorkActivity.Execute(a.onHub(ctx, drainCall,
			"stop new work for "+a.record.AgentID), contract.StopWorkInput{
			AgentID:  a.record.AgentID,
			Instance: a.place.Instance,
			Epoch:    a.place.Epoch,
			Version:  a.place.Version,
			DryRun:   a.drain.in.DryRun,

			IncludeSystem: a.drain.in.IncludeSystem,
		}).Get(ctx)
		if err == nil {
			a.record.Work = stopped.Work
			return nil
		}
		if again := a.lostTouch(ctx, err); !again {
			return err
		}
	}
}

// find learns where the agent is connected, and keeps it cordoned. A dry run only looks.
func (a *agentDrain) find(ctx workflow.Context) error {
	if !a.drain.in.DryRun {
		return a.cordon(ctx, api.AgentDraining)
	}
	place, err := contract.FindMemberActivity.Execute(onWorker(ctx, "find "+a.record.AgentID),
		contract.FindMemberInput{Cluster: a.drain.in.Cluster, AgentID: a.record.AgentID}).Get(ctx)
	if err == nil {
		a.place = place
	}
	return err
}

// awaitIdle waits until the agent has nothing in flight; false: the deadline passed first.
func (a *agentDrain) awaitIdle(ctx workflow.Context, deadline time.Time) (bool, error) {
	for a.place.Hub != "" {
		left := deadline.Sub(workflow.Now(ctx))
		if left <= 0 {
			return false, nil
		}
		_, err := contract.AwaitIdleActivity.Execute(a.onHub(ctx, left, "until "+a.record.AgentID+" has finished"),
			contract.AwaitIdleInput{AgentID: a.record.AgentID, Instance: a.place.Instance,
				Epoch: a.place.Epoch, IncludeSystem: a.drain.in.IncludeSystem}).Get(ctx)
		if err == nil {
			return true, nil
		}
		if !workflow.Now(ctx).Before(deadline) {
			return false, nil
		}
		a.noteLeft(err)
		if again := a.lostTouch(ctx, err); !again {
			return false, err
		}
		if err := a.findAgain(ctx); err != nil {
			return false, err
		}
	}
	return true, nil
}

// evacuate takes the rest off the agent; its work has stopped when it returns.
func (a *agentDrain) evacuate(ctx workflow.Context) error {
	for a.place.Hub != "" {
		moved, err := contract.EvacuateActivity.Execute(a.onHub(ctx, evacuateTimeout,
			"take what is left off "+a.record.AgentID), contract.EvacuateInput{
			AgentID:  a.record.AgentID,
			Instance: a.place.Instance,
			Epoch:    a.place.Epoch,
			Reason:   "drained: the deadline passed",

			KeepSystem: !a.drain.in.IncludeSystem,
		}).Get(ctx)
		if err == nil {
			a.noteMoved(moved.Attempts)
			return nil
		}
		if again := a.lostTouch(ctx, err); !again || IsType(err, contract.NotStopped) {
			return err
		}
		if err := a.findAgain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// noteLeft notes what the agent had when its hub saw it last, if the error has that.
func (a *agentDrain) noteLeft(err error) {
	var left []cluster.HeldAttempt
	if gone, ok := errors.AsType[*temporal.ApplicationError](err); ok && gone.Details(&left) == nil {
		a.left, a.leftKnown = left, true
	}
}

// findAgain is find. What the agent still had is lost if it has vanished, or another process has its place.
func (a *agentDrain) findAgain(ctx workflow.Context) error {
	was := a.place
	if err := a.find(ctx); err != nil {
		return err
	}
	if a.place.Hub != "" && a.place.Instance == was.Instance && a.place.Epoch == was.Epoch {
		return nil
	}
	for i := range a.record.Work {
		w := &a.record.Work[i]
		held := cluster.HeldAttempt{TaskID: w.TaskID, Attempt: w.Attempt}
		w.Lost = w.Lost || !a.leftKnown || slices.Contains(a.left, held)
	}
	a.left, a.leftKnown = nil, true
	return nil
}

func (a *agentDrain) noteMoved(attempts []cluster.HeldAttempt) {
	taken := make(map[cluster.HeldAttempt]bool, len(attempts))
	for _, held := range attempts {
		taken[held] = true
	}
	for i := range a.record.Work {
		w := &a.record.Work[i]
		w.Moved = taken[cluster.HeldAttempt{TaskID: w.TaskID, Attempt: w.Attempt}]
	}
}

// lostTouch pauses after an error of a hub's activity, and reports whether to look for the agent again. Only a
// cancelled drain ends here.
func (a *agentDrain) lostTouch(ctx workflow.Context, err error) bool {
	workflow.GetLogger(ctx).Info("The agent's hub did not carry on with the drain; looking for the agent again",
		"agent", a.record.AgentID, "error", err)
	return workflow.Sleep(ctx, drainAgain) == nil
}

// onHub are the options of an activity on the hub that has the agent.
func (a *agentDrain) onHub(ctx workflow.Context, limit time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.HubQueue(a.place.Hub), ScheduleToStartTimeout: directTimeout, StartToCloseTimeout: limit,
		HeartbeatTimeout: idleBeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

func onWorker(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WorkerQueue, StartToCloseTimeout: directTimeout,
		ScheduleToCloseTimeout: drainCall, Summary: summary})
}
