package job

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// plan makes a plan of steps written as "d: b c" (d comes after b and c), each of a task, in the order given.
func plan(change func(*PlannedStep), steps ...string) *Plan {
	p := &Plan{Job: "j"}
	for _, text := range steps {
		id, after, _ := strings.Cut(text, ":")
		s := PlannedStep{ID: id, Step: api.Step{Task: &api.TaskSpec{}, After: strings.Fields(after), OnFailure: api.FailRun}}
		for _, before := range s.After {
			s.Level = max(s.Level, p.Step(before).Level+1)
		}
		if change != nil {
			change(&s)
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

// standing is the ledger as JSON, to compare.
func standing(t *testing.T, l *Ledger) string {
	t.Helper()
	text, err := json.Marshal(l)
	require.NoError(t, err)
	return string(text)
}

// complete ends a step as its task's completion does.
func complete(l *Ledger, step string) {
	e := l.Entry(step)
	e.Begun = true
	e.Output = json.RawMessage(fmt.Sprintf("%q", step))
	EndWork(&e.StepWork, api.StepCompleted, "", noon)
}

// Whatever has ended, Advance applied twice changes nothing more, and answers the same.
func TestAdvanceTwice(t *testing.T) {
	t.Parallel()
	ends := []api.StepStatus{api.StepPending, api.StepRunning, api.StepBlocked, api.StepCompleted, api.StepPartial, api.StepSkipped, api.StepFailed}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := randomPlan(random)
		l := NewLedger(p, "r", nil, api.RunOrigin{}, noon)
		for i := range l.Steps {
			if status := ends[random.IntN(len(ends))]; status != api.StepPending && random.IntN(2) == 0 {
				l.Steps[i].Begun, l.Steps[i].Status = true, status
			}
		}
		begin := l.Advance(p, noon)
		once := standing(t, l)
		require.Equal(t, begin, l.Advance(p, noon.Add(time.Minute)), "seed %d", seed)
		require.Equal(t, once, standing(t, l), "seed %d", seed)
	}
}

// randomPlan is a graph of ten steps, some with a join, some optional.
func randomPlan(random *rand.Rand) *Plan {
	var steps []string
	for i := range 10 {
		text := fmt.Sprintf("s%d:", i)
		for before := range i {
			if random.IntN(3) == 0 {
				text += fmt.Sprintf(" s%d", before)
			}
		}
		steps = append(steps, text)
	}
	return plan(func(s *PlannedStep) {
		s.Optional = random.IntN(5) == 0
		if n := len(s.After); n > 1 && random.IntN(3) == 0 {
			s.Join = api.StepJoin{N: 1 + random.IntN(n)}
		}
	}, steps...)
}

// In whatever order steps complete that are under way side by side, the ledger is the same at the end, and no step
// begins twice or before what it needs.
func TestAnyOrderOfCompletions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		p := randomPlan(rand.New(rand.NewPCG(seed, 1)))
		var want string
		for order := range uint64(4) {
			random := rand.New(rand.NewPCG(seed, 2+order))
			l := NewLedger(p, "r", nil, api.RunOrigin{}, noon)
			var open []string
			for {
				for _, step := range l.Advance(p, noon) {
					e := l.Entry(step)
					require.False(t, e.Begun, "step %s begins twice", step)
					through, _ := l.dependencies(p.Step(step).After)
					require.GreaterOrEqual(t, through, p.Step(step).Join.Need(len(p.Step(step).After)))
					e.Begun = true
					open = append(open, step)
				}
				if len(open) == 0 {
					break
				}
				n := random.IntN(len(open))
				complete(l, open[n])
				again := l.Clone()
				require.Equal(t, again.Advance(p, noon), l.Clone().Advance(p, noon))
				complete(l, open[n]) // the same completion once more
				open = append(open[:n], open[n+1:]...)
			}
			status, _, ended := l.End(p, noon)
			require.True(t, ended, "seed %d", seed)
			require.Equal(t, api.RunCompleted, status)
			if order == 0 {
				want = standing(t, l)
			}
			require.Equal(t, want, standing(t, l), "seed %d", seed)
		}
	}
}

// How the recovery of a step stands when a run is shown.
// Each step that has not begun says why.
func TestExplain(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	plan := &Plan{Steps: []PlannedStep{{ID: "a"}, {ID: "b", Step: api.Step{After: []string{"a"}}},
		{ID: "c", Step: api.Step{After: []string{"b"}}},
		{ID: "d"}}}
	for name, c := range map[string]struct {
		change     func(*Ledger)
		b, c, last string
	}{
		"one runs": {func(l *Ledger) { l.Steps[0].Status = api.StepRunning }, "it comes after a", "it comes after b",
			"it begins when it is its turn"},
		"one is blocked": {func(l *Ledger) { l.Steps[0].Status, l.Steps[0].Why = api.StepBlocked, "its agent was lost" },
			"it comes after a, which is blocked: its agent was lost", "it comes after b", "it begins when it is its turn"},
		"one failed": {func(l *Ledger) { EndWork(&l.Steps[0].StepWork, api.StepFailed, "exit 1", now) },
			"it comes after a, which failed", "it comes after b, which failed", "the run fails, and begins no other step"},
		"it is paused": {func(l *Ledger) { l.Paused = &api.RunPause{} }, "it comes after a", "it comes after b",
			"the run is paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger(plan, "r", nil, api.RunOrigin{}, now)
			for i := range l.Steps {
				l.Steps[i].Begun = i == 0
			}
			c.change(l)
			l.Advance(plan, now)
			l.Explain(plan)
			require.Equal(t, []string{c.b, c.c, c.last}, []string{l.Steps[1].Why, l.Steps[2].Why, l.Steps[3].Why})
		})
	}
}

func TestShowRecovery(t *testing.T) {
	t.Parallel()
	recovery := api.DefaultRecovery(api.ClusterRecover, false)
	restarting := &api.PolicyState{Restarts: []time.Time{noon.Add(-48 * time.Hour), noon},
		NextAction: api.ActionRestart}
	for name, c := range map[string]struct {
		status api.StepStatus
		state  *api.PolicyState
		want   string
		review bool
	}{
		"not delivered yet": {api.StepQueued, nil, "ok", false},
		"running":           {api.StepRunning, restarting, "ok", false},
		"restarting":        {api.StepRetryWait, restarting, "restarting", false},
		"no agent takes it": {api.StepRetryWait, &api.PolicyState{}, "blocked", false},
		"rescheduling":      {api.StepQueued, &api.PolicyState{NextAction: api.ActionReschedule}, "rescheduling", false},
		"a person decides":  {api.StepBlocked, &api.PolicyState{NextAction: api.ActionReview}, "review", true},
		"completed":         {api.StepCompleted, restarting, "ok", false},
		"used up":           {api.StepFailed, restarting, "exhausted", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := api.StepWork{Status: c.status, PolicyState: c.state}
			policy := &api.StepPolicy{Recovery: &recovery}
			l := Ledger{Steps: []api.StepEntry{{StepWork: work, Policy: policy},
				{Policy: policy, Counts: &api.StepCounts{}, Elements: []api.StepWork{work}}, {}}}
			l.Show(noon)
			for _, w := range []api.StepWork{l.Steps[0].StepWork, l.Steps[1].Elements[0]} {
				require.Equal(t, c.want, w.RecoveryStatus)
				require.Equal(t, c.review, w.RecoveryRequiresReview)
				if c.state == restarting {
					require.Equal(t, 1, w.PolicyState.ActiveRestarts, "those of the last 24 hours count")
				}
			}
			require.Empty(t, l.Steps[1].RecoveryStatus, "its elements have theirs")
			require.Empty(t, l.Steps[2].RecoveryStatus)
		})
	}
}

// A run that repeats another takes over what that has done, and nothing that it did not come to do.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	p := plan(func(s *PlannedStep) { s.Optional = s.ID == "o" }, "a:", "o:", "b: a", "c: b")
	first := NewLedger(p, "first", nil, api.RunOrigin{}, noon)
	complete(first, "a")
	first.Entry("b").Begun = true
	FailEntry(first.Entry("b"), api.FailRun, "disk full", noon)
	first.Close(api.RunFailed, "step b failed", noon)
	require.Equal(t, api.StepSkipped, first.Entry("c").Status)

	next := NewLedger(p, "next", nil, api.RunOrigin{RetryOf: "first"}, noon)
	next.TakeOver(first)
	require.Equal(t, first.Entry("a"), next.Entry("a"), "with its output, and the task that did it")
	require.Equal(t, api.StepPending, next.Entry("b").Status)
	require.Equal(t, "next~b", next.Entry("b").TaskID)
	for _, skippedByTheEnd := range []string{"c", "o"} {
		require.Equal(t, api.StepPending, next.Entry(skippedByTheEnd).Status, skippedByTheEnd)
	}
	require.Equal(t, []string{"o", "b"}, next.Advance(p, noon))

	t.Run("from a step", func(t *testing.T) {
		t.Parallel()
		done := NewLedger(p, "first", nil, api.RunOrigin{}, noon)
		for _, step := range []string{"a", "o", "b", "c"} {
			complete(done, step)
		}
		require.False(t, done.Reopen(p, "z"))
		require.True(t, done.Reopen(p, "b"))
		again := NewLedger(p, "again", nil, api.RunOrigin{RetryOf: "first"}, noon)
		again.TakeOver(done)
		require.Equal(t, []string{"b"}, again.Advance(p, noon))
		require.Equal(t, "again~c", again.Entry("c").TaskID)
	})
	t.Run("what a person skipped stays skipped", func(t *testing.T) {
		t.Parallel()
		done := NewLedger(p, "first", nil, api.RunOrigin{}, noon)
		done.Act(p, "a", api.SkipStep, "not needed", nil, noon)
		done.Close(api.RunCancelled, "", noon)
		again := NewLedger(p, "again", nil, api.RunOrigin{}, noon)
		again.TakeOver(done)
		require.Equal(t, "skipped by a person: not needed", again.Entry("a").Why)
		require.Equal(t, []string{"o", "b"}, again.Advance(p, noon))
	})
}

func TestLedgerLimits(t *testing.T) {
	t.Parallel()
	l := NewLedger(plan(nil, "a:"), "r", nil, api.RunOrigin{}, noon)
	for i := range decisionsKept + 3 {
		l.Decide(api.Decision{Action: "pause", Reason: fmt.Sprint(i)})
	}
	require.Len(t, l.Decisions, decisionsKept)
	require.Equal(t, "3", l.Decisions[0].Reason, "the oldest go")

	require.Len(t, WholeOutput(make([]byte, MaxOutputBytes)), MaxOutputBytes)
	require.Nil(t, WholeOutput(make([]byte, MaxOutputBytes+1)))

	l.Entry("a").Output = make([]byte, 7)
	require.Equal(t, 7, l.OutputBytes())
}

// How many elements may fail is exact at its bound.
func TestElementsTolerated(t *testing.T) {
	t.Parallel()
	for failed, want := range map[int]api.StepStatus{0: api.StepCompleted, 1: api.StepPartial, 2: api.StepPartial, 3: api.StepFailed} {
		s := &PlannedStep{Step: api.Step{Tolerate: api.Tolerance{Count: 2}, OnFailure: api.FailRun}}
		e := &api.StepEntry{Begun: true, Elements: make([]api.StepWork, 5)}
		for i := range e.Elements {
			EndElements(e, s, noon)
			require.False(t, e.Status.Final(), "an element is open")
			e.Elements[i].Status = api.StepCompleted
			if i < failed {
				EndWork(&e.Elements[i], api.StepFailed, "disk full", noon)
			}
		}
		EndElements(e, s, noon)
		require.Equal(t, want, e.Status, "%d failed", failed)
		require.Equal(t, api.StepCounts{Total: 5, Done: 5 - failed, Failed: failed}, *e.Counts)
		require.Len(t, FailedElements(e), failed)
	}
}
