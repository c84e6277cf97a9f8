package workflows_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// healingRun is a run of a HealingAction workflow with a scripted cluster, drains and scaler.
type healingRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	errs      map[string]error // by activity, or signal
	cancelled string           // the activity, or the drain, during which the action is cancelled
	moved     api.FailoverRecord
	drained   api.DrainRecord
	spread    api.Rebalance
	unscaled  bool // nobody starts agents
	scaled    cluster.ScalingDecision

	mu      sync.Mutex
	calls   []string
	drains  []contract.DrainInput
	awaited []contract.AwaitFailoverInput
	events  []cluster.Event
	notes   []contract.HealingNote // that the memo was changed to
	checks  []healing.HealingCheck // that the cluster was handed
	counted []api.HealingOutcome
}

func newHealingRun(t *testing.T) *healingRun {
	t.Helper()
	r := &healingRun{
		TestWorkflowEnvironment: workflowtest.NewEnvironment(), errs: map[string]error{},
		moved: api.FailoverRecord{ID: "c:a-1:7",
			Status: api.FailoverSucceeded, TargetAgentID: "b-1", Tasks: 2, TasksTransferred: 2},
		drained: api.DrainRecord{Status: api.DrainCompleted,
			Agents: []api.AgentDrain{{AgentID: "a-1", Finished: 3, Moved: 1}}},
		spread: api.Rebalance{Moves: make([]api.RebalanceMove, 4)},
		scaled: cluster.ScalingDecision{Change: api.ScaleUp, Count: 2, Reason: "2 are missing"},
	}
	r.RegisterWorkflowWithOptions(workflows.HealingAction,
		workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
	r.RegisterWorkflowWithOptions(r.drain, workflow.RegisterOptions{Name: contract.DrainWorkflow})
	for name, does := range map[string]any{
		contract.AwaitFailoverActivity.Name: func(_ context.Context,
			in contract.AwaitFailoverInput) (api.FailoverRecord, error) {
			r.awaited = append(r.awaited, in)
			return r.moved, r.note(contract.AwaitFailoverActivity.Name, in.AgentID)
		},
		contract.ReduceLoadActivity.Name: func(_ context.Context, in contract.ClusterReduceLoad) (contract.LoadReduced,
			error) {
			r.checks = append(r.checks, *in.Request.Healing)
			return contract.LoadReduced{MaxTasks: 8, EffectiveSlots: 4}, r.note(contract.ReduceLoadActivity.Name,
				in.Request.AgentID, in.Request.For.String(), in.Request.Reason)
		},
		contract.EndOrphanActivity.Name: func(_ context.Context, in contract.EndOrphanInput) (string, error) {
			return "the attempt was ended", r.note(contract.EndOrphanActivity.Name, in.Orphan.TaskID)
		},
		contract.UncordonActivity.Name: func(_ context.Context, in contract.ClusterUncordon) (contract.Cordoned,
			error) {
			r.checks = append(r.checks, *in.Request.Healing)
			return contract.Cordoned{}, r.note(contract.UncordonActivity.Name, in.Request.AgentID)
		},
		contract.RebalanceActivity.Name: func(_ context.Context, in contract.ClusterRebalance) (api.Rebalance,
			error) {
			return r.spread, r.note(contract.RebalanceActivity.Name, in.Cluster, in.Request.Reason)
		},
		contract.AskScaleActivity.Name: func(_ context.Context, clusterName string) (cluster.ScalingDecision, error) {
			return r.scaled, r.note(contract.AskScaleActivity.Name, clusterName)
		},
		contract.CountHealingActivity.Name: func(_ context.Context, record api.HealingRecord) error {
			r.counted = append(r.counted, record.Status)
			return r.errs[contract.CountHealingActivity.Name]
		},
	} {
		r.RegisterActivityWithOptions(does, activity.RegisterOptions{Name: name})
	}
	toCluster := func(name string, take any) {
		r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", name,
			mock.Anything).Return(take).Maybe()
	}
	toCluster(contract.AnnounceSignal.Name, func(_, _, _, _ string, told any) error {
		r.events = append(r.events, told.(contract.Announcement).Events...)
		return r.errs[contract.AnnounceSignal.Name]
	})
	toCluster(contract.ManualFailoverSignal.Name, func(_, _, _, _ string, asked any) error {
		m := asked.(contract.ManualFailover)
		r.checks = append(r.checks, *m.Healing)
		return r.note(contract.ManualFailoverSignal.Name, m.AgentID, m.Reason)
	})
	r.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) {
		r.notes = append(r.notes, args.Get(0).(map[string]any)[contract.MemoHealing].(contract.HealingNote))
	}).Return(nil).Maybe()
	return r
}

// note records a call once, however often it is repeated, and returns its scripted end.
func (r *healingRun) note(name string, about ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := strings.Join(append([]string{name}, about...), " "); !slices.Contains(r.calls, call) {
		r.calls = append(r.calls, call)
	}
	if r.cancelled == name {
		r.CancelWorkflow()
		return errors.New("tried again later")
	}
	return r.errs[name]
}

// drain plays the Drain workflow: it takes a minute, and ends early when it is cancelled.
//
//workflowcheck:ignore
func (r *healingRun) drain(ctx workflow.Context, in contract.DrainInput) (api.DrainRecord, error) {
	r.drains = append(r.drains, in)
	r.checks = append(r.checks, *in.Healing)
	if r.cancelled == contract.DrainWorkflow {
		r.RegisterDelayedCallback(r.CancelWorkflow, 30*time.Second)
	}
	if err := workflow.Sleep(ctx, time.Minute); err != nil {
		r.calls = append(r.calls, "the drain was cancelled")
		cancelled := api.DrainRecord{Status: api.DrainCancelled, Agents: r.drained.Agents}
		return cancelled, nil //nolint:nilerr // a cancelled drain is a record, not an error
	}
	return r.drained, r.errs[contract.DrainWorkflow]
}

var healingAt = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// act runs the action of a decision to its end.
func (r *healingRun) act(t *testing.T, d *api.HealingDecision) api.HealingRecord {
	t.Helper()
	d.Cluster, d.Priority, d.Reason = "c", 50, "why"
	if d.Verdict == "" {
		d.Verdict = api.HealAct
	}
	d.Facts.Epoch = 7
	r.ExecuteWorkflow(contract.HealingActionWorkflow, contract.HealingActionInput{
		Cycle: "cycle-1", Decision: *d, Policy: api.HealingPolicy{}.WithDefaults(), DecidedAt: healingAt})
	require.True(t, r.IsWorkflowCompleted())
	require.NoError(t, r.GetWorkflowError(), "how it ended is in the record")
	var record, asked api.HealingRecord
	require.NoError(t, r.GetWorkflowResult(&record))
	value, err := r.QueryWorkflow(contract.HealingQuery.Name)
	require.NoError(t, err)
	require.NoError(t, value.Get(&asked))
	require.Equal(t, record, asked)
	require.Equal(t, contract.HealingActionID("c", d.Type, d.TargetID, healingAt), record.ID)
	require.Equal(t, "cycle-1", record.Cycle)
	require.Equal(t, healingAt, record.DecidedAt)
	require.NotNil(t, record.CompletedAt)
	require.Equal(t, []api.HealingOutcome{record.Status}, r.counted, "it is counted once")
	return record
}

// outcomes are those of the events that were announced.
func (r *healingRun) outcomes() []string {
	var list []string
	for _, e := range r.events {
		list = append(list, e.Outcome)
	}
	return list
}

// ofKind is a decision of each kind that does something, and the first that is done for it.
func ofKind(kind api.HealingType) (d *api.HealingDecision, first string) {
	d = &api.HealingDecision{Type: kind, TargetID: "a-1"}
	switch kind {
	case api.HealFailover:
		first = contract.AwaitFailoverActivity.Name
	case api.HealDrain:
		first = contract.DrainWorkflow
	case api.HealReduce:
		first = contract.ReduceLoadActivity.Name
	case api.HealRestore:
		first = contract.UncordonActivity.Name
	case api.HealReassign:
		d.TargetID, first = "t-1", contract.EndOrphanActivity.Name
		d.Facts.Orphan = &api.Orphan{TaskID: "t-1", Attempt: 2, AgentID: "a-9"}
	case api.HealRebalance:
		d.TargetID, first, d.Facts.Scaled = "c", contract.RebalanceActivity.Name, true
	}
	return d, first
}

var healingKinds = []api.HealingType{
	api.HealFailover, api.HealReassign, api.HealRebalance, api.HealDrain, api.HealReduce, api.HealRestore}

func TestHealingActionsSucceed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind    api.HealingType
		set     func(*healingRun, *api.HealingDecision)
		outcome string
		ref     string
		calls   []string
		drains  []api.Duration // their timeouts
		event   api.EventData  // whom the events are about
	}{
		"failover": {
			kind:    api.HealFailover,
			outcome: "2 of 2 tasks moved, b-1 took over; it is out of service until it is healthy",
			ref:     "failover c:a-1:7",
			calls: []string{contract.ManualFailoverSignal.Name + " a-1 healing: why",
				contract.AwaitFailoverActivity.Name + " a-1"},
			drains: []api.Duration{0},
			event:  api.EventData{AgentID: "a-1"},
		},
		"drain": {
			kind:    api.HealDrain,
			outcome: "3 of its tasks finished, 1 were moved; it is out of service until it is healthy",
			ref:     "drain " + contract.HealingDrainID("c", "a-1", healingAt),
			drains:  []api.Duration{api.HealingPolicy{}.WithDefaults().DrainTimeout},
			event:   api.EventData{AgentID: "a-1"},
		},
		"reduce": {
			kind: api.HealReduce, outcome: "it runs at most 4 of 8 tasks at a time until it is healthy",
			calls: []string{contract.ReduceLoadActivity.Name + " a-1 " + api.Duration(cluster.MaxReduceFor).String() +
				" healing: why"},
			event: api.EventData{AgentID: "a-1"},
		},
		"restore": {
			kind:    api.HealRestore,
			outcome: "it is given work again",
			calls:   []string{contract.UncordonActivity.Name + " a-1"},
			event:   api.EventData{AgentID: "a-1"},
		},
		"reassign": {
			kind:    api.HealReassign,
			outcome: "the attempt was ended",
			calls:   []string{contract.EndOrphanActivity.Name + " t-1"},
			event:   api.EventData{TaskID: "t-1", AgentID: "a-9", Attempt: 2},
		},
		"rebalance, and scaling starts": {
			kind:    api.HealRebalance,
			outcome: "4 shards and targets were moved; scaling starts 2 agents: 2 are missing",
			calls:   []string{contract.RebalanceActivity.Name + " c healing: why", contract.AskScaleActivity.Name + " c"},
		},
		"rebalance, and scaling is at it": {
			kind:    api.HealRebalance,
			outcome: "4 shards and targets were moved; scaling does what is needed: 2 are being started",
			set: func(r *healingRun, _ *api.HealingDecision) {
				r.scaled = cluster.ScalingDecision{Reason: "2 are being started"}
			},
			calls: []string{contract.RebalanceActivity.Name + " c healing: why", contract.AskScaleActivity.Name + " c"},
		},
		"rebalance without scaling": {
			kind:    api.HealRebalance,
			outcome: "4 shards and targets were moved; nobody starts agents here: start them, or turn scaling on",
			set:     func(_ *healingRun, d *api.HealingDecision) { d.Facts.Scaled = false },
			calls:   []string{contract.RebalanceActivity.Name + " c healing: why"},
		},
		"whatever becomes of the count and the events": {
			kind:    api.HealRestore,
			outcome: "it is given work again",
			calls:   []string{contract.UncordonActivity.Name + " a-1"},
			event:   api.EventData{AgentID: "a-1"},
			set: func(r *healingRun, _ *api.HealingDecision) {
				r.errs[contract.AnnounceSignal.Name] = errors.New("no such cluster")
				r.errs[contract.CountHealingActivity.Name] = temporal.NewNonRetryableApplicationError("no metrics",
					"Lost", nil)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHealingRun(t)
			d, _ := ofKind(tc.kind)
			if tc.set != nil {
				tc.set(r, d)
			}
			record := r.act(t, d)
			require.Equal(t, api.HealingSucceeded, record.Status)
			require.Equal(t, tc.outcome, record.Outcome)
			require.Equal(t, tc.ref, record.Ref)
			require.Equal(t, tc.calls, r.calls)
			var drains []api.Duration
			for _, drain := range r.drains {
				require.Equal(t, []string{"a-1"}, drain.Agents)
				require.Equal(t, contract.HealingDrainID("c", "a-1", healingAt), drain.ID, "it is known for healing's")
				drains = append(drains, drain.Timeout)
			}
			require.Equal(t, tc.drains, drains)
			for _, check := range r.checks {
				require.Equal(t, healing.HealingCheck{Type: tc.kind, Epoch: 7}, check,
					"the cluster hears what was decided")
			}
			for _, in := range r.awaited {
				require.Equal(t, contract.AwaitFailoverInput{Cluster: "c", AgentID: "a-1", Epoch: 7, After: healingAt},
					in)
			}
			require.Equal(t, []string{"running", "succeeded"}, r.outcomes(), "its begin and end are announced")
			for i, e := range r.events {
				tc.event.ID, tc.event.Outcome, tc.event.Reason = record.ID, e.Outcome, string(tc.kind)+": why"
				if i == 1 {
					tc.event.Reason += ": " + tc.outcome
				}
				require.Equal(t, tc.event, e.EventData)
				require.Equal(t, api.EventHealing, e.Type)
			}
		})
	}
}

// TestHealingActionsDoNotSucceed has the first step of each kind be refused, fail, end late, and be cancelled.
func TestHealingActionsDoNotSucceed(t *testing.T) {
	t.Parallel()
	for _, kind := range healingKinds {
		for end, tc := range map[string]struct {
			err     error
			status  api.HealingOutcome
			outcome string
		}{
			"refused": {temporal.NewNonRetryableApplicationError("not so", contract.Refused, nil),
				api.HealingSkipped, "not so"},
			"failed": {temporal.NewNonRetryableApplicationError("it broke", "Broken", nil), api.HealingFailed,
				"it broke"},
			"late": {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), api.HealingFailed,
				"StartToClose"},
			"cancelled": {nil, api.HealingFailed, "cancelled"},
		} {
			t.Run(string(kind)+" "+end, func(t *testing.T) {
				t.Parallel()
				r := newHealingRun(t)
				d, first := ofKind(kind)
				if r.errs[first] = tc.err; tc.err == nil {
					r.cancelled = first
				}
				record := r.act(t, d)
				require.Equal(t, tc.status, record.Status)
				require.Contains(t, record.Outcome, tc.outcome)
				require.Equal(t, []string{"running", string(tc.status)}, r.outcomes(),
					"its begin and end are announced")
				require.NotContains(t, r.calls, contract.AskScaleActivity.Name+" c", "nothing comes after it")
				var forgotten []contract.HealingNote
				if tc.status == api.HealingSkipped {
					forgotten = []contract.HealingNote{{Type: kind, TargetID: d.TargetID, Verdict: api.HealWait,
						At: healingAt}}
				}
				require.Equal(t, forgotten, r.notes, "what was refused does not keep healing from the same soon")
				require.Equal(t, kind == api.HealDrain && end == "cancelled",
					slices.Contains(r.calls, "the drain was cancelled"))
				took := kind == api.HealDrain || kind == api.HealFailover && end != "cancelled" && end != "refused"
				require.Equal(t, took, len(r.drains) == 1,
					"an agent whose failover went wrong is taken out of service all the same, but not one whose failover is refused")
			})
		}
	}
}

func TestHealingActionsEndBadly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind    api.HealingType
		set     func(*healingRun)
		status  api.HealingOutcome
		outcome string
	}{
		"the cluster is gone": {api.HealFailover,
			func(r *healingRun) { r.errs[contract.ManualFailoverSignal.Name] = errors.New("no such workflow") },
			api.HealingFailed, "the cluster was not asked for the failover: no such workflow"},
		"the failover failed": {api.HealFailover, func(r *healingRun) {
			r.moved = api.FailoverRecord{Status: api.FailoverFailed, Error: "nobody took over"}
		}, api.HealingFailed, "the failover is failed: nobody took over"},
		"the drain is refused": {api.HealDrain, func(r *healingRun) {
			r.drained = api.DrainRecord{Status: api.DrainFailed,
				Agents: []api.AgentDrain{{AgentID: "a-1", Error: "an operator has it", Refused: true}}}
		}, api.HealingSkipped, "an operator has it"},
		"its drain failed": {api.HealFailover, func(r *healingRun) {
			r.drained.Status,
				r.drained.Error = api.DrainFailed, "a-1: no hub"
		},
			api.HealingFailed,
			"its work was moved, and it could not be taken out of service: the drain is failed: a-1: no hub"},
		"the drain failed": {api.HealDrain, func(r *healingRun) {
			r.drained.Status,
				r.drained.Error = api.DrainFailed, "a-1: no hub"
		},
			api.HealingFailed, "the drain is failed: a-1: no hub"},
		"a person ended the drain": {api.HealDrain, func(r *healingRun) { r.drained.Status = api.DrainCancelled },
			api.HealingFailed, "the drain is cancelled"},
		"nothing had to move, and nobody starts agents": {api.HealRebalance,
			func(r *healingRun) { r.spread.Moves, r.unscaled = nil, true },
			api.HealingSkipped,
			"no shard or target had to move; nobody starts agents here: start them, or turn scaling on"},
		"nothing had to move, and scaling is at it": {api.HealRebalance, func(r *healingRun) {
			r.spread.Moves, r.scaled = nil, cluster.ScalingDecision{Reason: "2 are being started"}
		}, api.HealingSkipped, "no shard or target had to move; scaling does what is needed: 2 are being started"},
		"scaling is blocked": {api.HealRebalance,
			func(r *healingRun) { r.scaled = cluster.ScalingDecision{Blocked: true, Reason: "max_agents is 3"} },
			api.HealingFailed, "4 shards and targets were moved; scaling cannot start agents now: max_agents is 3"},
		"scaling refuses": {api.HealRebalance, func(r *healingRun) {
			r.errs[contract.AskScaleActivity.Name] = temporal.NewNonRetryableApplicationError("scaling is off",
				contract.Refused, nil)
		}, api.HealingSkipped, "scaling is off"},
		"a newer version's kind": {"dance", func(*healingRun) {}, api.HealingSkipped,
			"this version does not know the action"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHealingRun(t)
			tc.set(r)
			d, _ := ofKind(tc.kind)
			d.Facts.Scaled = d.Facts.Scaled && !r.unscaled
			record := r.act(t, d)
			require.Equal(t, tc.status, record.Status)
			require.Equal(t, tc.outcome, record.Outcome)
			require.Equal(t, []string{"running", string(tc.status)}, r.outcomes())
		})
	}
}

func TestHealingActionsThatOnlyRecord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		decision api.HealingDecision
		status   api.HealingOutcome
		outcome  string
		events   []api.EventData
	}{
		"a dry run": {api.HealingDecision{Type: api.HealFailover, TargetID: "a-1", Verdict: api.HealPlan},
			api.HealingPlanned, "a dry run: nothing was done", nil},
		"a skip": {api.HealingDecision{Type: api.HealDrain, TargetID: "a-1", Verdict: api.HealSkip,
			Why: "it is the last agent"},
			api.HealingSkipped, "it is the last agent", nil},
		"reviews": {api.HealingDecision{Type: api.HealReport, TargetID: healing.StuckReviews},
			api.HealingReported, "this needs a person",
			[]api.EventData{{Reason: "report: why: this needs a person"}}},
		"a lane": {api.HealingDecision{Type: api.HealReport, TargetID: healing.StuckLane + "cap/gpu"},
			api.HealingReported, "this needs a person",
			[]api.EventData{{Lane: "cap/gpu", Reason: "report: why: this needs a person"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHealingRun(t)
			record := r.act(t, &tc.decision)
			require.Equal(t, tc.status, record.Status)
			require.Equal(t, tc.outcome, record.Outcome)
			require.Empty(t, r.calls)
			require.Empty(t, r.drains)
			var events []api.EventData
			for _, e := range r.events {
				require.Equal(t, []string{record.ID, string(tc.status)}, []string{e.ID, e.Outcome})
				e.ID, e.Outcome = "", ""
				events = append(events, e.EventData)
			}
			require.Equal(t, tc.events, events)
		})
	}
}
