package cluster

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

const (
	// directTimeout bounds sending a change to one hub.
	directTimeout = 10 * time.Second
	// followTimeout bounds how long an update waits until the hubs have applied the directive.
	followTimeout = 2 * time.Second
	// directAgain is after how long a hub that missed the directive is sent it again, if that does not change sooner.
	directAgain = 15 * time.Second
	// hubRenews is how long a hub that is out of touch with Temporal renews its agents' leases; see hub/lease.
	hubRenews = 5 * time.Second
	// directivesPerTask bounds how many copies of the directive, and other large answers, one workflow task answers or
	// sends. Temporal takes 4 MiB of a workflow task, and terminates the workflow beyond; a directive may have some
	// hundred KiB.
	directivesPerTask = 3
)

// hubs keeps the cluster's hubs at the newest directive. Each has a sender of its own, which sends it until the hub has
// applied it or is gone, so that no hub waits for another, and the cluster for none.
type hubs struct {
	quiet
	run     *run
	content []byte               // the directive of the present version, without it
	told    map[string]int64     // the newest version that each hub has applied
	senders map[string]time.Time // the hubs with a sender, since when: they lack the newest directive
	sending int                  // of these, those that do not wait to send it again
	former  []string             // hubs with sessions of replaced processes, perhaps without members now
	release []contract.ReleaseBrakeRequest

	releasing int // releases of the brake that are under way

	task      time.Time       // when the present workflow task began
	copies    int             // of the directive in this workflow task
	answering int             // answers that wait for room
	next      workflow.Future // a timer, after which another workflow task has begun
}

func (h *hubs) open(_ workflow.Context, in contract.ClusterInput) {
	h.content = content(h.run.rules())
	h.told, h.senders, h.former = map[string]int64{}, map[string]time.Time{}, in.FormerHubs
	if in.Resend {
		return
	}
	for _, hub := range h.run.state.Hubs() {
		h.told[hub] = h.run.state.Version
	}
}

// directive returns the present directive. Its version grows whenever its content has changed.
func (h *hubs) directive() contract.Directive {
	d := h.run.rules()
	if now := content(d); !bytes.Equal(now, h.content) {
		h.content = now
		h.run.state.Version++
	}
	d.Version = h.run.state.Version
	return d
}

// takeTurn returns in a workflow task that has room for another answer as large as the directive.
func (h *hubs) takeTurn(ctx workflow.Context) {
	h.answering++
	defer func() { h.answering-- }()
	h.awaitRoom(ctx, func() bool { return true })
}

// awaitRoom returns in a workflow task that has room for a copy of the directive, and in which may holds.
func (h *hubs) awaitRoom(ctx workflow.Context, may func() bool) {
	for {
		if task := workflow.Now(ctx); !task.Equal(h.task) {
			h.task, h.copies = task, 0
		}
		if may() && h.copies < directivesPerTask {
			h.copies++
			return
		}
		if h.next == nil || h.next.IsReady() {
			h.next = workflow.NewTimerWithOptions(ctx, time.Millisecond,
				workflow.TimerOptions{Summary: "more copies of the directive"})
		}
		if h.next.Get(ctx, nil) != nil {
			return // what asks is cancelled
		}
	}
}

// content is a directive as JSON: it has no pointers into the state, and its maps are in order.
//
//workflowcheck:ignore
func content(d contract.Directive) []byte {
	data, _ := json.Marshal(d) // it has nothing that JSON cannot have
	return data
}

// rules returns the directive without its version.
func (r *run) rules() contract.Directive {
	s := &r.state
	paused, lanes := s.Pauses.Lanes()
	return contract.Directive{
		Cluster:          s.Config.Name,
		CreatedAt:        r.created,
		Mode:             s.Config.ReplicationMode,
		Selection:        s.Config.Selection,
		Tenants:          s.Config.Tenants,
		CapabilitySets:   s.CapabilitySets,
		AgentLanes:       s.LanesOpened,
		Fits:             s.Fits,
		ServingTypes:     s.ServingTypes,
		Leader:           s.Leader,
		LeaderEpoch:      s.LeaderEpoch,
		Standbys:         s.Standbys,
		Shards:           s.Shards,
		RoleLease:        s.Config.RoleLease,
		ElectionInterval: s.Config.ElectionInterval,
		Brake:            s.Config.Brake,
		JudgesLosses:     s.Braked() || s.AtSeveralHubs(),
		Braked:           s.Braked(),
		Fences:           fences(s.Members),
		Cordoned:         cordoned(s.Cordons),
		Slots:            s.Reductions.Limits(),
		Targets:          s.Targets,
		Paused:           paused,
		PausedLanes:      lanes,
		EndedTokens:      s.EndedTokens(),
		Deaths:           s.Deaths,
	}
}

// all are the hubs with members, and those with sessions of replaced processes.
func (h *hubs) all() []string { return api.SortedSet(slices.Concat(h.run.state.Hubs(), h.former)) }

// lacking are the hubs that lack the newest directive.
func (h *hubs) lacking() []string {
	version := h.directive().Version
	return slices.DeleteFunc(h.all(), func(hub string) bool { return h.told[hub] == version })
}

// settle has a sender for each hub that lacks the newest directive, and sends releases of the brake.
func (h *hubs) settle(ctx workflow.Context) {
	for _, hub := range h.lacking() {
		if h.senders[hub].IsZero() && !largeEnough(ctx) { // otherwise the next run sends it
			h.senders[hub] = workflow.Now(ctx)
			h.sending++
			workflow.GoNamed(ctx, "keep hub "+hub+" at the directive", func(ctx workflow.Context) { h.keep(ctx, hub) })
		}
	}
	for _, request := range h.release {
		h.releasing++
		workflow.GoNamed(ctx, "release the brake", func(ctx workflow.Context) {
			var sent []contract.Future[contract.None]
			for _, hub := range h.run.state.Hubs() {
				sent = append(sent, toHub(ctx, hub, contract.ReleaseBrakeActivity, "release the brake at hub ",
					request))
			}
			for _, f := range sent {
				_, _ = f.Get(ctx) // a hub that is gone holds nobody
			}
			h.run.state.ReleaseBrake()
			h.releasing--
			h.run.touched = true
		})
	}
	h.release = nil
}

// keep sends a hub the newest directive, again and again, until it has applied that or is gone, or the next run does
// so.
func (h *hubs) keep(ctx workflow.Context, hub string) {
	gone := func() bool { return !slices.Contains(h.all(), hub) }
	for ctx.Err() == nil && !largeEnough(ctx) && !gone() && h.told[hub] != h.directive().Version {
		h.awaitRoom(ctx, func() bool { return h.answering == 0 }) // what waits for an answer goes first
		directive := h.directive()
		_, err := toHub(ctx, hub, contract.DirectActivity, "tell hub ", directive).Get(ctx)
		if err == nil {
			h.told[hub] = directive.Version
			continue
		}
		workflow.GetLogger(ctx).Warn("A change did not reach a hub", "hub", hub, "error", err)
		h.sending--
		h.run.touched = true // the loop may have waited for it
		_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(directAgain, "until hub "+hub+" is told again"),
			func() bool { return h.run.state.Version != directive.Version && !h.run.longEnough(ctx) || gone() })
		h.sending++
	}
	if gone() || h.told[hub] == h.directive().Version {
		h.forget(hub)
	}
	delete(h.senders, hub)
	h.sending--
	h.run.touched = true
}

// renewUntil is until when agents may go on with roles that were taken from them: their hubs, or those with sessions of
// replaced processes, lack the newest directive and may still renew their leases. It is zero when none may.
func (h *hubs) renewUntil(agents []string, now time.Time) (until time.Time) {
	var at []string
	for _, agent := range agents {
		at = append(at, h.former...)
		if m := h.run.state.Member(agent); m != nil && m.Connected() && m.HubLostAt.IsZero() {
			at = append(at, m.Hub)
		}
	}
	for _, hub := range at {
		over := h.senders[hub].Add(hubRenews + h.run.state.Config.RoleLease.Std())
		if !h.senders[hub].IsZero() && now.Before(over) && over.After(until) {
			until = over
		}
	}
	return until
}

// forget takes a hub out of those with sessions of replaced processes: it has ended them, or is lost, and its agents
// must register anew.
func (h *hubs) forget(hub string) {
	h.former = slices.DeleteFunc(h.former, func(other string) bool { return other == hub })
}

// awaitFollowed returns when the hubs have applied the present state, so that nothing begins against it afterwards. It
// waits briefly: a hub that is away gets the directive later.
func (h *hubs) awaitFollowed(ctx workflow.Context, what string) {
	version := h.directive().Version
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(followTimeout, "until the hubs have heard of "+what),
		func() bool {
			return !slices.ContainsFunc(h.all(), func(hub string) bool { return h.told[hub] < version })
		})
}

// toHub makes a hub do something.
func toHub[In any](
	ctx workflow.Context, hub string, activity contract.Activity[In, contract.None], summary string, argument In,
) contract.Future[contract.None] {
	return activity.Execute(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.HubQueue(hub),
		ScheduleToCloseTimeout: directTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3},
		Summary:                summary + hub,
	}), argument)
}

// fences names the agents whose id a newer process took; hubs end their older sessions.
func fences(members []cluster.Member) []contract.Fence {
	var taken []contract.Fence
	for i := range members {
		if m := &members[i]; len(m.FencedInstances) > 0 {
			taken = append(taken, contract.Fence{AgentID: m.AgentID, MinEpoch: m.Epoch})
		}
	}
	return taken
}

// cordoned names the agents that hubs give no work.
func cordoned(cordons []cluster.Cordon) []string {
	var agents []string
	for i := range cordons {
		agents = append(agents, cordons[i].AgentID)
	}
	return agents
}
