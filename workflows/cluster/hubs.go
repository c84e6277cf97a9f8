package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

const (
	// directTimeout bounds sending a change to one hub. A hub that misses it gets the directive at its next join, or
	// when it is sent again.
	directTimeout = 10 * time.Second
	// followTimeout bounds how long an update waits until the hubs have applied the directive.
	followTimeout = 2 * time.Second
	// directAgain is when a hub that missed the directive is sent it again.
	directAgain = 15 * time.Second
	// directivesPerTask bounds how many copies of the directive, and other large answers, one workflow task answers or
	// sends. Temporal takes 4 MiB of a workflow task, and terminates the workflow beyond; a directive may have some
	// hundred KiB.
	directivesPerTask = 3
)

// hubs keeps the cluster's hubs at the newest directive.
type hubs struct {
	quiet
	run      *run
	content  []byte   // the directive of the present version, without it
	sent     int64    // the newest version that was sent to all hubs
	followed int64    // the newest version that they applied, or missed
	telling  int      // goroutines that send to former hubs
	former   []string // hubs with sessions of replaced processes, perhaps without members now
	release  []contract.ReleaseBrakeRequest
	missed   []string  // hubs that did not take the newest directive
	again    time.Time // when they are sent it again; zero: never
	due      bool      // it is time

	task   time.Time       // when the present workflow task began
	copies int             // of the directive in this workflow task
	next   workflow.Future // a timer, after which another workflow task has begun
}

func (h *hubs) open(_ workflow.Context, in contract.ClusterInput) {
	h.content = content(h.run.rules())
	h.sent = cmp.Or(in.Sent, h.run.state.Version)
	h.followed, h.former = h.sent, in.FormerHubs
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

// takeTurn returns in a workflow task that has room for a copy of the directive.
func (h *hubs) takeTurn(ctx workflow.Context) {
	for {
		if task := workflow.Now(ctx); !task.Equal(h.task) {
			h.task, h.copies = task, 0
		}
		h.copies++
		if h.copies <= directivesPerTask ||
			workflow.GetVersion(ctx, "directives-in-turns", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
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

// takeTurnToAnswer is takeTurn for an answer that may be as large as the directive. Runs of before it are replayed as
// they were.
func (h *hubs) takeTurnToAnswer(ctx workflow.Context) {
	if workflow.GetVersion(ctx, "answers-in-turns", workflow.DefaultVersion, 1) == 1 {
		h.takeTurn(ctx)
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
		Tenants:          s.Config.Tenants,
		CapabilitySets:   s.CapabilitySets,
		AgentLanes:       s.LanesOpened,
		Fits:             s.Fits,
		Leader:           s.Leader,
		LeaderEpoch:      s.LeaderEpoch,
		Standbys:         s.Standbys,
		Shards:           s.Shards,
		RoleLease:        s.Config.RoleLease,
		ElectionInterval: s.Config.ElectionInterval,
		Brake:            s.Config.Brake,
		JudgesLosses:     r.brakes.overHubs && (s.Braked() || s.AtSeveralHubs()),
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

func (h *hubs) settle(ctx workflow.Context) {
	h.due = !h.again.IsZero() && !workflow.Now(ctx).Before(h.again)
}

func (h *hubs) wake() (time.Time, string) { return h.again, "tell hubs what they missed" }

// behind reports whether the hubs lack the newest directive, or a release of the brake.
func (h *hubs) behind() bool { return h.directive().Version != h.sent || len(h.release) > 0 || h.due }

// unsent is the version from which the next run tells the hubs: it does so at once if some missed the newest.
func (h *hubs) unsent() int64 {
	if len(h.missed) > 0 {
		return -1
	}
	return h.sent
}

// follow sends the directive to every hub with members, and to hubs with sessions of replaced processes; or else it
// sends a release of the brake.
func (h *hubs) follow(ctx workflow.Context) {
	directive := h.directive()
	to := h.run.state.Hubs()
	if directive.Version == h.sent && h.due {
		to = slices.DeleteFunc(to, func(hub string) bool { return !slices.Contains(h.missed, hub) })
		h.tell(ctx, to, directive)
		return
	}
	if directive.Version == h.sent {
		request := h.release[0]
		h.release = h.release[1:]
		onEachHub(ctx, to, contract.ReleaseBrakeActivity, "release the brake at hub ", request,
			func(workflow.Context) {})
		h.run.state.ReleaseBrake()
		return
	}
	h.sent = directive.Version
	former := slices.DeleteFunc(h.former, func(hub string) bool { return slices.Contains(to, hub) })
	h.former = nil
	if len(former) > 0 { // beside the rest: one that is gone must not hold the cluster up
		h.telling++
		workflow.GoNamed(ctx, "tell former hubs", func(ctx workflow.Context) {
			onEachHub(ctx, former, contract.DirectActivity, "tell former hub ", directive, h.takeTurn)
			h.telling--
		})
	}
	h.tell(ctx, to, directive)
	h.followed = directive.Version
}

// tell sends hubs the newest directive, and notes those that are to be sent it again.
func (h *hubs) tell(ctx workflow.Context, to []string, directive contract.Directive) {
	h.missed = onEachHub(ctx, to, contract.DirectActivity, "tell hub ", directive, h.takeTurn)
	h.again, h.due = time.Time{}, false
	if len(h.missed) > 0 &&
		workflow.GetVersion(ctx, "tell-hubs-again", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		h.missed = nil
	}
	if len(h.missed) > 0 {
		h.again = workflow.Now(ctx).Add(directAgain)
	}
}

// awaitFollowed returns when the hubs have applied the present state, so that nothing begins against it afterwards. It
// waits briefly: a hub that is away gets the directive with its next join.
func (h *hubs) awaitFollowed(ctx workflow.Context, what string) {
	version := h.directive().Version
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(followTimeout, "until the hubs have heard of "+what),
		func() bool { return h.followed >= version })
}

// onEachHub has hubs do something side by side, and returns those that did not. It calls before before each.
func onEachHub[In any](
	ctx workflow.Context, hubs []string, activity contract.Activity[In, contract.None], summary string, argument In,
	before func(workflow.Context),
) (missed []string) {
	var futures []contract.Future[contract.None]
	for _, hub := range hubs {
		before(ctx)
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              contract.HubQueue(hub),
			ScheduleToCloseTimeout: directTimeout,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3},
			Summary:                summary + hub,
		})
		futures = append(futures, activity.Execute(hubCtx, argument))
	}
	for i, f := range futures {
		if _, err := f.Get(ctx); err != nil {
			missed = append(missed, hubs[i])
			workflow.GetLogger(ctx).Warn("A change did not reach a hub", "hub", hubs[i], "error", err)
		}
	}
	return missed
}

// fences names the agents whose id a newer process took; hubs end their older sessions.
func fences(members []fleet.Member) []contract.Fence {
	var taken []contract.Fence
	for i := range members {
		if m := &members[i]; len(m.FencedInstances) > 0 {
			taken = append(taken, contract.Fence{AgentID: m.AgentID, MinEpoch: m.Epoch})
		}
	}
	return taken
}

// cordoned names the agents that hubs give no work.
func cordoned(cordons []fleet.Cordon) []string {
	var agents []string
	for i := range cordons {
		agents = append(agents, cordons[i].AgentID)
	}
	return agents
}
