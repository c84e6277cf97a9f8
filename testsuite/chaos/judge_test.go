//go:build linux

package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// TestOraclesSeeWhatMustNotHappen gives the oracles stories with one fault each, so that a silent oracle cannot pass
// for a clean run.
func TestOraclesSeeWhatMustNotHappen(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	begin := func(attempt, pid int, at int64) line {
		return line{Kind: lineBegin, Task: "t", Attempt: attempt, Agent: "a", PID: pid, NS: at * ms}
	}
	end := func(attempt, pid int, at int64, how string) line {
		return line{Kind: lineEnd, Task: "t", Attempt: attempt, Agent: "a", PID: pid, NS: at * ms, Note: how}
	}
	accepted := func(attempt, pid int) line {
		return line{Kind: lineAccepted, Task: "t", Attempt: attempt, PID: pid, Note: "completed"}
	}
	registered := func(pid int, epoch int64) line {
		return line{Kind: lineRegistered, Agent: "a", PID: pid, Epoch: epoch}
	}
	lead := func(kind, agent string, pid int, epoch, at int64) line {
		return line{Kind: kind, Agent: agent, PID: pid, Epoch: epoch, NS: at * ms}
	}
	under := func(l line, note string) line { l.Note = note; return l }
	result := func(attempt, pid int) *done { return &done{Agent: "a", PID: pid, Attempt: attempt, Nonce: "n"} }
	leaf := func(kind string, attempt, pid int, at int64) line {
		return line{Kind: kind, Task: "t", Attempt: attempt, Agent: "a", PID: pid, NS: at * ms, Note: "child"}
	}
	once := []line{begin(1, 1, 0), end(1, 1, 10, "done")}
	twice := []line{begin(1, 1, 0), begin(2, 2, 500), end(1, 1, 1000, "stopped"), end(2, 2, 1500, "done")}
	for name, c := range map[string]struct {
		safety api.RetrySafety
		status api.TaskStatus
		result *done
		lines  []line
		lives  lifetimes
		fell   []string
		blamed func(*verdict) int // nil: nothing may be blamed
	}{
		"a clean run": {api.Fenced, api.TaskCompleted, result(1, 1), append(once, accepted(1, 1)),
			nil, nil, nil},
		"idempotent twice": {api.Idempotent, api.TaskCompleted, result(2, 2), twice, nil, nil, nil},
		"in review": {api.AtMostOnce, api.TaskReview, nil, []line{begin(1, 1, 0)},
			lifetimes{1: {{gone: 5}}}, nil, nil},
		"lost": {api.Idempotent, api.TaskRunning, nil, once, nil, nil,
			func(v *verdict) int { return v.lost }},
		"never seen": {api.Idempotent, "", nil, nil, nil, nil,
			func(v *verdict) int { return v.lost }},
		"at most once, twice": {api.AtMostOnce, api.TaskCompleted, result(2, 2), twice, nil, nil,
			func(v *verdict) int { return v.doubleBegins }},
		"one attempt twice": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append([]line{begin(1, 1, 0)}, once...), nil, nil, func(v *verdict) int { return v.doubleBegins }},
		"fenced at once": {api.Fenced, api.TaskCompleted, result(2, 2), twice, nil, nil,
			func(v *verdict) int { return v.overlaps }},
		"fenced, the first was dead": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], twice[1], twice[3]}, lifetimes{1: {{gone: 400 * ms}}}, nil, nil},
		"fenced, it died too late": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], twice[1], twice[3]}, lifetimes{1: {{gone: 600 * ms}}}, nil,
			func(v *verdict) int { return v.overlaps }},
		"fenced, it never ended": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], twice[1], twice[3]}, nil, nil, func(v *verdict) int { return v.overlaps }},
		"fenced, the first was frozen": {api.Fenced, api.TaskCompleted, result(2, 2), twice,
			lifetimes{1: {{frozen: []span{{100 * ms, 990 * ms}}}}}, nil, nil},
		"fenced, it went on for long after": {api.Fenced, api.TaskCompleted, result(2, 2), twice,
			lifetimes{1: {{frozen: []span{{100 * ms, 600 * ms}}}}}, nil, func(v *verdict) int { return v.overlaps }},
		"two results": {api.Idempotent, api.TaskCompleted, result(2, 2),
			[]line{begin(1, 1, 0), end(1, 1, 10, "done"), begin(2, 2, 20), end(2, 2, 30, "done"), accepted(1, 1),
				accepted(2, 2)}, nil, nil,
			func(v *verdict) int { return v.resultFaults }},
		"accepted and gone": {api.AtMostOnce, api.TaskReview, nil, append(once, accepted(1, 1)), nil, nil,
			func(v *verdict) int { return v.resultFaults }},
		"a result of nobody": {api.Idempotent, api.TaskCompleted, result(1, 9), once, nil, nil,
			func(v *verdict) int { return v.resultFaults }},
		"no result": {api.Idempotent, api.TaskCompleted, nil, once, nil, nil,
			func(v *verdict) int { return v.resultFaults }},
		"epoch fell": {api.Idempotent, api.TaskCompleted, result(1, 1), once, nil, []string{"it fell"},
			func(v *verdict) int { return v.epochFaults }},
		"epoch reused": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append(once, registered(1, 4), registered(2, 4)), nil, nil, func(v *verdict) int { return v.epochFaults }},
		"epoch of one process": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append(once, registered(1, 4), registered(1, 5)), nil, nil, func(v *verdict) int { return v.epochFaults }},
		"work without leading": {api.Idempotent, api.TaskCompleted, result(1, 1),
			[]line{under(once[0], "lead 0"), once[1]}, nil, nil, func(v *verdict) int { return v.leaderOverlaps }},
		"work under an old lead": {api.Idempotent, api.TaskCompleted, result(2, 2),
			[]line{under(begin(1, 1, 0), "lead 7"), under(begin(2, 2, 20), "lead 5"), end(2, 2, 30, "done")}, nil, nil,
			func(v *verdict) int { return v.leaderOverlaps }},
		"a process of the first attempt lives on": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], leaf(lineLeafBegin, 1, 10, 5), twice[1],
				leaf(lineLeafBegin, 2, 20, 505), leaf(lineLeaf, 1, 10, 525),
				twice[3]}, lifetimes{1: {{gone: 400 * ms}}}, nil, func(v *verdict) int { return v.overlaps }},
		"the first attempt's process ended before": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], leaf(lineLeafBegin, 1, 10, 5), leaf(lineLeaf, 1, 10, 25), twice[1],
				leaf(lineLeafBegin, 2, 20, 505), twice[3]}, lifetimes{1: {{gone: 400 * ms}}}, nil, nil},
		"the first attempt's pid is used again": {api.Fenced, api.TaskCompleted, result(2, 2),
			[]line{twice[0], twice[1], twice[3]}, lifetimes{1: {{gone: 400 * ms}, {gone: int64(time.Hour)}}}, nil, nil},
		"a process outlives its attempt": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append([]line{leaf(lineLeafBegin, 1, 10, 5), leaf(lineLeaf, 1, 10, 25)}, once...), nil, nil,
			func(v *verdict) int { return v.overlaps }},
		"processes of at_most_once work in two attempts": {api.AtMostOnce, api.TaskReview, nil,
			[]line{begin(1, 1, 0), leaf(lineLeafBegin, 1, 10, 5), leaf(lineLeafBegin, 2, 20, 9)},
			lifetimes{1: {{gone: 7}}}, nil,
			func(v *verdict) int { return v.doubleBegins }},
		"two leaders": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append(once, lead(lineLead, "a", 1, 5, 0), lead(lineLead, "b", 2, 6, 100),
				lead(lineLeadEnd, "a", 1, 5, 150)), nil, nil,
			func(v *verdict) int { return v.leaderOverlaps }},
		"one leader after another": {api.Idempotent, api.TaskCompleted, result(1, 1),
			append(once, lead(lineLead, "a", 1, 5, 0), lead(lineLead, "b", 2, 6, 100),
				lead(lineLeadEnd, "a", 1, 5, 90)), nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &job{id: "t", safety: c.safety, work: work{Nonce: "n"},
				task: apiTask{ID: "t", Status: c.status, Result: c.result}}
			v := judge(evidence{jobs: []*job{j}, lines: c.lines, lives: c.lives, fell: c.fell})
			if c.blamed == nil {
				require.Empty(t, v.problems)
				return
			}
			require.Positive(t, c.blamed(v), "%v", v.problems)
		})
	}
}

// TestOneSeedOneSchedule holds the promise that a seed replays a run.
func TestOneSeedOneSchedule(t *testing.T) {
	t.Parallel()
	plan := func(seed uint64) ([]fault, []*job) {
		return planFaults(rand.New(rand.NewPCG(seed, 2)), faultKinds, 6, 2*time.Minute,
			quickTiming), planJobs(rand.New(rand.NewPCG(seed, 1)), 50, time.Minute)
	}
	faults, jobs := plan(7)
	again, jobsAgain := plan(7)
	require.Equal(t, faults, again)
	require.Equal(t, jobs, jobsAgain)
	other, _ := plan(8)
	require.NotEqual(t, faults, other)
	seen := map[faultKind]bool{}
	for _, f := range faults {
		seen[f.kind] = true
	}
	require.Len(t, seen, len(faultKinds), "every kind of fault comes up")
}
