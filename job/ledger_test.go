package job

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// plan makes a plan of steps written as "d: b c" (d comes after b and c), each of a task, in the order given.
func plan(change func(*PlannedStep), steps ...string) *Plan {
	p := &Plan{Job: "j"}
	for _, text := range steps {
		id, after, _ := strings.Cut(text, ":")
		s := PlannedStep{ID: id, Step: Step{Task: &fleet.TaskSpec{}, After: strings.Fields(after), OnFailure: FailRun}}
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
	EndWork(&e.Work, StepCompleted, "", noon)
}

// Whatever has ended, Advance applied twice changes nothing more, and answers the same.
func TestAdvanceTwice(t *testing.T) {
	t.Parallel()
	ends := []StepStatus{StepPending, StepRunning, StepBlocked, StepCompleted, StepPartial, StepSkipped, StepFailed}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := randomPlan(random)
		l := NewLedger(p, "r", nil, Origin{}, noon)
		for i := range l.Steps {
			if status := ends[random.IntN(len(ends))]; status != StepPending && random.IntN(2) == 0 {
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
			s.Join = Join{N: 1 + random.IntN(n)}
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
			l := NewLedger(p, "r", nil, Origin{}, noon)
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
			require.Equal(t, RunCompleted, status)
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
	plan := &Plan{Steps: []PlannedStep{{ID: "a"}, {ID: "b", Step: Step{After: []string{"a"}}},
		{ID: "c", Step: Step{After: []string{"b"}}},
		{ID: "d"}}}
	for name, c := range map[string]struct {
		change     func(*Ledger)
		b, c, last string
	}{
		"one runs": {func(l *Ledger) { l.Steps[0].Status = StepRunning }, "it comes after a", "it comes after b",
			"it begins when it is its turn"},
		"one is blocked": {func(l *Ledger) { l.Steps[0].Status, l.Steps[0].Why = StepBlocked, "its agent was lost" },
			"it comes after a, which is blocked: its agent was lost", "it comes after b", "it begins when it is its turn"},
		"one failed": {func(l *Ledger) { EndWork(&l.Steps[0].Work, StepFailed, "exit 1", now) },
			"it comes after a, which failed", "it comes after b, which failed", "the run fails, and begins no other step"},
		"it is paused": {func(l *Ledger) { l.Paused = &RunPause{} }, "it comes after a", "it comes after b",
			"the run is paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger(plan, "r", nil, Origin{}, now)
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
	recovery := fleet.DefaultRecovery(fleet.ClusterRecover, false)
	restarting := &fleet.PolicyState{Restarts: []time.Time{noon.Add(-48 * time.Hour), noon},
		NextAction: fleet.ActionRestart}
	for name, c := range map[string]struct {
		status StepStatus
		state  *fleet.PolicyState
		want   string
		review bool
	}{
		"not delivered yet": {StepQueued, nil, "ok", false},
		"running":           {StepRunning, restarting, "ok", false},
		"restarting":        {StepRetryWait, restarting, "restarting", false},
		"no agent takes it": {StepRetryWait, &fleet.PolicyState{}, "blocked", false},
		"rescheduling":      {StepQueued, &fleet.PolicyState{NextAction: fleet.ActionReschedule}, "rescheduling", false},
		"a person decides":  {StepBlocked, &fleet.PolicyState{NextAction: fleet.ActionReview}, "review", true},
		"completed":         {StepCompleted, restarting, "ok", false},
		"used up":           {StepFailed, restarting, "exhausted", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := Work{Status: c.status, PolicyState: c.state}
			policy := &StepPolicy{Recovery: &recovery}
			l := Ledger{Steps: []Entry{{Work: work, Policy: policy},
				{Policy: policy, Counts: &Counts{}, Elements: []Work{work}}, {}}}
			l.Show(noon)
			for _, w := range []Work{l.Steps[0].Work, l.Steps[1].Elements[0]} {
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
	first := NewLedger(p, "first", nil, Origin{}, noon)
	complete(first, "a")
	first.Entry("b").Begun = true
	FailEntry(first.Entry("b"), FailRun, "disk full", noon)
	first.Close(RunFailed, "step b failed", noon)
	require.Equal(t, StepSkipped, first.Entry("c").Status)

	next := NewLedger(p, "next", nil, Origin{RetryOf: "first"}, noon)
	next.TakeOver(first)
	require.Equal(t, first.Entry("a"), next.Entry("a"), "with its output, and the task that did it")
	require.Equal(t, StepPending, next.Entry("b").Status)
	require.Equal(t, "next~b", next.Entry("b").TaskID)
	for _, skippedByTheEnd := range []string{"c", "o"} {
		require.Equal(t, StepPending, next.Entry(skippedByTheEnd).Status, skippedByTheEnd)
	}
	require.Equal(t, []string{"o", "b"}, next.Advance(p, noon))

	t.Run("from a step", func(t *testing.T) {
		t.Parallel()
		done := NewLedger(p, "first", nil, Origin{}, noon)
		for _, step := range []string{"a", "o", "b", "c"} {
			complete(done, step)
		}
		require.False(t, done.Reopen(p, "z"))
		require.True(t, done.Reopen(p, "b"))
		again := NewLedger(p, "again", nil, Origin{RetryOf: "first"}, noon)
		again.TakeOver(done)
		require.Equal(t, []string{"b"}, again.Advance(p, noon))
		require.Equal(t, "again~c", again.Entry("c").TaskID)
	})
	t.Run("what a person skipped stays skipped", func(t *testing.T) {
		t.Parallel()
		done := NewLedger(p, "first", nil, Origin{}, noon)
		done.Act(p, "a", SkipStep, "not needed", nil, noon)
		done.Close(RunCancelled, "", noon)
		again := NewLedger(p, "again", nil, Origin{}, noon)
		again.TakeOver(done)
		require.Equal(t, "skipped by a person: not needed", again.Entry("a").Why)
		require.Equal(t, []string{"o", "b"}, again.Advance(p, noon))
	})
}

func TestLedgerLimits(t *testing.T) {
	t.Parallel()
	l := NewLedger(plan(nil, "a:"), "r", nil, Origin{}, noon)
	for i := range decisionsKept + 3 {
		l.Decide(Decision{Action: "pause", Reason: fmt.Sprint(i)})
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
	for failed, want := range map[int]StepStatus{0: StepCompleted, 1: StepPartial, 2: StepPartial, 3: StepFailed} {
		s := &PlannedStep{Step: Step{Tolerate: Tolerate{Count: 2}, OnFailure: FailRun}}
		e := &Entry{Begun: true, Elements: make([]Work, 5)}
		for i := range e.Elements {
			EndElements(e, s, noon)
			require.False(t, e.Status.Final(), "an element is open")
			e.Elements[i].Status = StepCompleted
			if i < failed {
				EndWork(&e.Elements[i], StepFailed, "disk full", noon)
			}
		}
		EndElements(e, s, noon)
		require.Equal(t, want, e.Status, "%d failed", failed)
		require.Equal(t, Counts{Total: 5, Done: 5 - failed, Failed: failed}, *e.Counts)
		require.Len(t, FailedElements(e), failed)
	}
}
