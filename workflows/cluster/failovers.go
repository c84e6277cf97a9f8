package cluster

import (
	"cmp"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// failovers starts the failovers of members, and accepts requests by people.
type failovers struct {
	quiet
	run       *run
	queue     []planned // decided, not begun
	under     int       // under way
	idle      int       // of these, of idle agents
	manual    contract.Inbox[contract.ManualFailover]
	evacuated contract.Inbox[contract.Evacuated]
}

const (
	// failoversAtOnce and failoverBytes bound what one turn begins: Temporal takes 4 MiB of commands at a time.
	failoversAtOnce, failoverBytes = 200, 1 << 20
	// failoversUnder bounds those under way: Temporal takes 2,000 children of a workflow at a time.
	failoversUnder = 1500
	// idleUnder bounds those of idle agents that a run has under way. Hundreds of these may vanish at once, and the
	// work of other clusters would wait for Temporal meanwhile.
	idleUnder = 4
)

// planned is a failover with what its target must have.
type planned struct {
	contract.FailoverInput
	need cluster.FailoverNeed
}

func (f *failovers) open(ctx workflow.Context, in contract.ClusterInput) {
	for _, left := range in.IdleFailovers {
		f.queue = append(f.queue, planned{left, cluster.FailoverNeed{FailedAgent: left.FailedAgent}})
	}
	f.manual, f.evacuated = contract.ManualFailoverSignal.Inbox(ctx), contract.EvacuatedSignal.Inbox(ctx)
}

func (f *failovers) signalled() bool { return f.manual.Len() > 0 || f.evacuated.Len() > 0 }

func (f *failovers) settle(ctx workflow.Context) {
	f.manual.Take(func(request contract.ManualFailover) { f.ask(ctx, request) })
	f.evacuated.Take(func(done contract.Evacuated) {
		f.moveRoles(done, workflow.Now(ctx))
		f.run.events.record(ctx)
	})
}

// add queues the failover of a member, with the roles that it had.
func (f *failovers) add(failed cluster.Member, had held, in contract.FailoverInput) {
	s := &f.run.state
	in.Cluster, in.FailedAgent = s.Config.Name, failed.AgentID
	in.Instance, in.Epoch, in.Hub = failed.Instance, failed.Epoch, failed.Hub
	if m := s.Member(failed.AgentID); m != nil && m.Epoch == failed.Epoch {
		in.Again, m.Failovers = m.Failovers, m.Failovers+1
	}
	in.WasLeader, in.Shards, in.Targets = had.leader, had.shards, had.targets
	in.Timeout, in.StateKept = s.Config.TransferTimeout, len(s.StateDigests) > 0 &&
		s.Config.ReplicationMode != api.ActiveActive
	f.queue = append(f.queue, planned{in, cluster.FailoverNeed{FailedAgent: failed.AgentID}})
}

// ask accepts a request by a person. An impossible request becomes a failover record with the reason, so no signal can
// harm the cluster.
func (f *failovers) ask(ctx workflow.Context, request contract.ManualFailover) {
	s := &f.run.state
	reason := request.Reason
	reason = cmp.Or(reason, "asked for by hand")
	in := contract.FailoverInput{Trigger: api.TriggerManual, Reason: reason, NoticedAt: workflow.Now(ctx)}
	if api.ValidateID("agent_id", request.AgentID) != nil {
		workflow.GetLogger(ctx).Warn("A manual-failover signal names no agent; it is ignored")
		return
	}
	member := s.Member(request.AgentID)
	if member == nil {
		in.NotInCluster = true
		f.add(cluster.Member{AgentID: request.AgentID}, held{}, in)
		return
	}
	if err := f.run.refuseHealing(request.AgentID, "", request.Healing); err != nil {
		workflow.GetLogger(ctx).Info("A failover that healing asked for is refused", "agent", request.AgentID, "error",
			err)
		return
	}
	if !member.Serving() {
		workflow.GetLogger(ctx).Warn(
			"A manual-failover signal names an agent that is offline; its work has moved already")
		return
	}
	if target := s.Member(request.TargetAgentID); target != nil && target.MayHold() &&
		target.AgentID != member.AgentID {
		in.Target = target.AgentID
	}
	f.add(*member, held{s.Leader == member.AgentID, s.ShardsOf(member.AgentID), s.TargetsOf(member.AgentID)}, in)
	need := &f.queue[len(f.queue)-1].need
	need.TaskTypes, need.Affinity = request.TaskTypes, request.Affinity
	need.RequiredCapabilities = request.RequiredCapabilities
	if len(need.TaskTypes) == 0 {
		need.TaskTypes = member.TaskTypes
	}
}

// moveRoles moves an agent's roles after a failover by hand has stopped its work, without waiting for a lease.
func (f *failovers) moveRoles(done contract.Evacuated, now time.Time) {
	r := f.run
	member := r.state.Member(done.AgentID)
	if member == nil || member.Epoch != done.Epoch {
		return
	}
	var lease time.Duration
	if done.Hub != "" && done.Hub != member.Hub { // the hub that it has gone to has given it its roles again
		lease = r.state.Config.RoleLease.Std()
	}
	r.roles.vacate(done.AgentID, lease, now)
	if r.state.Config.ReplicationMode == api.Sharded {
		member.Relieved = true
	}
	if done.Target != "" {
		r.state.Promote(done.Target, now)
	}
}

// next is how many of the queue one turn begins.
func (f *failovers) next() int {
	f.order()
	return f.fits(idleUnder - f.idle)
}

// order puts those of idle agents last. At most MaxIdleFailovers wait: the newest beyond that have no record, only the
// event of their loss.
func (f *failovers) order() {
	slices.SortStableFunc(f.queue, func(a, b planned) int { return number(a.Idle()) - number(b.Idle()) })
	idle := slices.IndexFunc(f.queue, func(p planned) bool { return p.Idle() })
	if most := idle + contract.MaxIdleFailovers; idle >= 0 && len(f.queue) > most {
		f.queue = slices.Delete(f.queue, most, len(f.queue))
	}
}

// canBeLeft reports whether the next run can begin what is in the queue.
func (f *failovers) canBeLeft() bool {
	return len(f.queue) == 0 || !f.run.deleted &&
		!slices.ContainsFunc(f.queue, func(p planned) bool { return !p.Idle() })
}

// left is the queue for the next run.
func (f *failovers) left() (left []contract.FailoverInput) {
	f.order()
	for _, p := range f.queue {
		p.Instance = "" // no record has it
		left = append(left, p.FailoverInput)
	}
	return left
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// fits is how many of the queue may begin at once, with at most idle of idle agents.
func (f *failovers) fits(idle int) int {
	n, bytes := 0, 0
	for ; n < min(len(f.queue), failoversAtOnce, failoversUnder-f.under); n++ {
		if f.queue[n].Idle() {
			idle--
		}
		bytes += 2<<10 + 200*len(f.queue[n].Attempts)
		if idle < 0 || bytes > failoverBytes && n > 0 {
			break
		}
	}
	return n
}

// start starts queued failovers as children that outlive this run. It skips one that is under way for the same
// session.
func (f *failovers) start(ctx workflow.Context) {
	n := f.next()
	queue := f.queue[:n]
	f.queue = f.queue[n:]
	var loads map[string]int
	if slices.ContainsFunc(queue, func(p planned) bool { return !p.Idle() }) {
		loads = f.run.readLoads(ctx) // no single agent takes over from an idle one
	}
	var started []workflow.ChildWorkflowFuture
	for i := range queue {
		in := &queue[i].FailoverInput
		if !in.NotInCluster {
			f.aim(&queue[i], loads)
		}
		childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            contract.FailoverWorkflowID(in.ID()),
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
			TypedSearchAttributes: temporal.NewSearchAttributes(
				contract.AttrCluster.ValueSet(in.Cluster), contract.AttrAgent.ValueSet(in.FailedAgent)),
			StaticSummary: "failover of " + in.FailedAgent + ": " + in.Reason,
		})
		started = append(started, workflow.ExecuteChildWorkflow(childCtx, contract.FailoverWorkflow, *in))
	}
	for i, child := range started {
		if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Warn("A failover was not started; one for the same session is under way", "error",
				err)
			continue
		}
		f.follow(ctx, queue[i].FailoverInput, child)
	}
}

// aim sets who takes over: the next leader, whom a person named, or, by hand, whom the strategy picks among those that
// can do the work. Otherwise no role moves to one agent: each task and shard goes to whichever agent serves its lane.
func (f *failovers) aim(p *planned, loads map[string]int) {
	s, in := &f.run.state, &p.FailoverInput
	mode, strategy, byHand := s.Config.ReplicationMode, s.Config.Selection, in.Trigger == api.TriggerManual
	anyOther := func() bool {
		return slices.ContainsFunc(s.Members, func(m cluster.Member) bool {
			return m.MayHold() && m.AgentID != in.FailedAgent
		})
	}
	switch {
	case in.WasLeader && s.Leader != "" && s.Leader != in.FailedAgent:
		in.Target = s.Leader // its lease had run out: it was replaced at once
	case in.WasLeader && !byHand:
		next, found := s.ChooseSuccessor(strategy, loads)
		if in.Target = next; !found {
			in.Target, in.AnyTarget = "", anyOther()
		}
	case byHand && (in.WasLeader || mode == api.ActiveActive):
		if named := s.Member(in.Target); named == nil || !named.HandlesAny(p.need.TaskTypes) ||
			!api.HasAll(named.Capabilities, p.need.RequiredCapabilities) {
			in.Target, _ = s.SelectTarget(strategy, p.need, loads)
		}
	default:
		in.Target, in.AnyTarget = "", anyOther()
	}
}

// follow publishes a failover's beginning. Its workflow announces its end, unless it did not complete.
func (f *failovers) follow(ctx workflow.Context, in contract.FailoverInput, child workflow.ChildWorkflowFuture) {
	id, log := in.ID(), &f.run.events
	log.publish(workflow.Now(ctx), api.EventFailoverStarted, api.EventData{
		AgentID:       in.FailedAgent,
		Epoch:         in.Epoch,
		Hub:           in.Hub,
		TargetAgentID: in.Target,
		Shards:        in.Shards,
		ID:            id,
		Of:            len(in.Attempts) + in.Unlisted,
		Reason:        in.Reason,
	})
	idle := number(in.Idle())
	f.under, f.idle = f.under+1, f.idle+idle
	workflow.GoNamed(ctx, "await "+id, func(ctx workflow.Context) {
		defer func() {
			f.under, f.idle = f.under-1, f.idle-idle
			f.run.touched = f.run.touched || len(f.queue) > 0
		}()
		record := api.FailoverRecord{ID: id, FailedAgentID: in.FailedAgent, Epoch: in.Epoch,
			TargetAgentID: in.Target, Status: api.FailoverFailed, Error: "its workflow did not complete"}
		if child.Get(ctx, nil) == nil {
			return
		}
		end := cluster.EndOfFailover(&record)
		log.publish(workflow.Now(ctx), end.Type, end.EventData)
	})
}
