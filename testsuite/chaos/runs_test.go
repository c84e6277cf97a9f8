//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// runStatus is where a run stands. Here job is a task of the workload.
type runStatus = api.RunStatus

// stepModel is what the oracles know of a step of the runs, apart from the program.
type stepModel struct {
	after    []string
	need     int             // how many of after must be through
	safety   api.RetrySafety // empty: unmarked
	elements int             // more than 0: it has for_each, and one of its elements may fail
	optional bool
}

// runModel is the job of all runs: a diamond beside work for each element, a step that waits for any of two, and one
// that nobody waits for.
var runModel = map[string]stepModel{
	"a":     {safety: api.Idempotent},
	"b":     {after: []string{"a"}, need: 1, safety: api.Fenced},
	"c":     {after: []string{"a"}, need: 1, safety: api.AtMostOnce},
	"each":  {after: []string{"a"}, need: 1, safety: api.Idempotent, elements: 3},
	"extra": {after: []string{"a"}, need: 1, safety: api.Idempotent, optional: true},
	"first": {after: []string{"b", "c"}, need: 1, safety: api.Idempotent},
	"d":     {after: []string{"b", "c"}, need: 2},
	"end":   {after: []string{"d", "each", "first"}, need: 3, safety: api.Fenced},
}

var runSteps = []string{"a", "b", "c", "each", "extra", "d", "first", "end"}

// runAttempts is how often a step that fails is tried.
const runAttempts = 2

const runJob = "diamond"

// failElement is the element of a for_each that fails where its step is to fail.
const failElement = 1

// jobRun is one run of the workload and what became of it.
type jobRun struct {
	key  string
	ms   map[string]int
	fail map[string]string // by step: failFirst, failAlways or nothing
	at   time.Duration

	id   string // set once acknowledged
	seen apiRun
}

// apiRun is a run as the API answers it.
type apiRun struct {
	ID     string          `json:"id"`
	Status runStatus       `json:"status"`
	Why    string          `json:"why"`
	Steps  []api.StepEntry `json:"steps"`
}

// settled reports whether nothing more happens to the run by itself. Where one step is blocked, others may go on.
func (r *apiRun) settled() bool {
	return r.Status.Final() || r.Status == api.RunBlocked && !slices.ContainsFunc(r.Steps, func(e api.StepEntry) bool {
		return goesOn(&e.StepWork) || slices.ContainsFunc(e.Elements, func(w api.StepWork) bool { return goesOn(&w) })
	})
}

func goesOn(w *api.StepWork) bool {
	switch w.Status {
	case api.StepReady, api.StepQueued, api.StepRunning, api.StepRetryWait:
		return true
	}
	return false
}

func (r *apiRun) step(id string) api.StepEntry {
	if i := slices.IndexFunc(r.Steps, func(e api.StepEntry) bool { return e.Step == id }); i >= 0 {
		return r.Steps[i]
	}
	return api.StepEntry{}
}

// stepOutput is what the run keeps of any step: the result of its task, of those of its elements, or the one of a
// step that waits for any.
type stepOutput struct {
	done
	All []done `json:"all"`
	One *done  `json:"one"`
}

func outputOf(text json.RawMessage) []done {
	var o stepOutput
	switch err := json.Unmarshal(text, &o); {
	case err != nil || string(text) == "null" || len(text) == 0:
		return nil
	case o.One != nil:
		return []done{*o.One}
	case o.All != nil:
		return o.All
	}
	return []done{o.done}
}

// definition is the model for the program.
func runDefinition(cluster string) map[string]any {
	steps := map[string]any{}
	for id, m := range runModel {
		got := map[string]string{}
		for _, before := range m.after {
			got[before] = "${steps." + before + ".output}"
		}
		payload := map[string]any{"ms": "${inputs.ms." + id + "}", "fail": "${inputs.fail." + id + "}",
			"nonce": "${run.id}~" + id, "got": got}
		step := map[string]any{"after": m.after, "optional": m.optional}
		if m.safety != "" {
			step["safety"] = m.safety
		}
		if m.need < len(m.after) {
			step["join"], step["output"] = "any", map[string]string{"one": "result"}
		}
		if m.elements > 0 {
			step["for_each"], step["max_parallel"], step["tolerate"] = map[string]int{"count": m.elements}, 2, 1
			step["output"] = map[string]string{"all": "results"}
			payload["nonce"] = "${run.id}~" + id + ".${index}"
			payload["fail"] = fmt.Sprintf("${index == %d ? inputs.fail.%s : ''}", failElement, id)
		}
		step["task"] = map[string]any{"type": "work", "payload": payload}
		steps[id] = step
	}
	return map[string]any{"job": runJob, "cluster": cluster, "steps": steps,
		"retry": map[string]any{"max_attempts": runAttempts, "max_transfers": 20, "initial_interval": "200ms",
			"max_interval": "1s"}}
}

func (in *installation) addJob(t testing.TB, cluster string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := in.call(0, http.MethodPut, jobsPath+runJob, runDefinition(cluster), nil)
		return err == nil && status < 300
	}, 20*time.Second, 200*time.Millisecond, "the job is applied")
}

// planRuns makes the runs: in some a step fails once, in some for good.
func planRuns(random *rand.Rand, n int, duration time.Duration) []*jobRun {
	all := make([]*jobRun, n)
	for i := range all {
		r := newRun(fmt.Sprintf("run-%d", i))
		r.at = time.Duration(float64(duration) * float64(i) / float64(n))
		for _, id := range runSteps {
			r.ms[id] = random.IntN(1500)
		}
		switch random.IntN(8) {
		case 0:
			r.fail["b"] = failAlways
		case 1:
			r.fail["each"] = failAlways
		case 2:
			r.fail["extra"] = failAlways
		case 3:
			r.fail["a"], r.fail["d"], r.fail["end"] = failFirst, failFirst, failFirst
		}
		all[i] = r
	}
	return all
}

func newRun(key string) *jobRun {
	r := &jobRun{key: key, ms: map[string]int{}, fail: map[string]string{}}
	for _, id := range runSteps {
		r.ms[id], r.fail[id] = 100, ""
	}
	return r
}

// dispatchAll dispatches every run at its time.
func (in *installation) dispatchAll(ctx context.Context, runs []*jobRun) {
	begun := time.Now()
	var wg sync.WaitGroup
	for i, r := range runs {
		if !pause(ctx, time.Until(begun.Add(r.at))) {
			break
		}
		wg.Go(func() { in.dispatch(ctx, r, i) })
	}
	wg.Wait()
}

// dispatch sends one key again until it is acknowledged.
func (in *installation) dispatch(ctx context.Context, r *jobRun, first int) {
	body := map[string]any{"idempotency_key": r.key, "inputs": map[string]any{"ms": r.ms, "fail": r.fail}}
	for try := first; ctx.Err() == nil; try++ {
		status, err := in.call(try, http.MethodPost, jobsPath+runJob+"/dispatch", body, &r.seen)
		if err == nil && status < 300 && r.seen.ID != "" {
			r.id = r.seen.ID
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// settleRuns waits until every run has ended or waits for a person; it returns how many do not.
func (in *installation) settleRuns(ctx context.Context, runs []*jobRun, limit time.Duration) int {
	deadline := time.Now().Add(limit)
	for round := 0; ; round++ {
		open := 0
		for _, r := range runs {
			if r.id == "" || r.seen.settled() {
				continue
			}
			open++
			var now apiRun
			if status, err := in.call(round, http.MethodGet, "/api/v1/agents/runs/"+r.id, nil, &now); err == nil &&
				status == http.StatusOK {
				r.seen = now
			}
		}
		if open == 0 || time.Now().After(deadline) || !pause(ctx, 250*time.Millisecond) {
			return open
		}
	}
}

// tasks are the tasks of the run, as the oracles of tasks know them.
func (r *jobRun) tasks() []*job {
	var all []*job
	add := func(id, step string, status api.TaskStatus, result *done) {
		all = append(all, &job{id: id, key: step, cluster: clusterAll, safety: runModel[step].safety,
			work: work{Nonce: id}, task: apiTask{ID: id, Status: status, Result: result}})
	}
	for _, step := range runSteps {
		e, id := r.seen.step(step), r.id+"~"+step
		output := outputOf(e.Output)
		if n := runModel[step].elements; n > 0 {
			for i := range n {
				element := fmt.Sprintf("%s.%d", id, i)
				at := slices.IndexFunc(output, func(d done) bool { return d.Nonce == element })
				switch {
				case at >= 0:
					add(element, step, api.TaskCompleted, &output[at])
				case e.Status.Final():
					add(element, step, api.TaskFailed, nil)
				default:
					add(element, step, "", nil)
				}
			}
			continue
		}
		var result *done
		if len(output) == 1 {
			result = &output[0]
		}
		add(id, step, map[api.StepStatus]api.TaskStatus{api.StepCompleted: api.TaskCompleted,
			api.StepFailed: api.TaskFailed, api.StepBlocked: api.TaskReview}[e.Status], result)
	}
	return all
}

// wants is how the run ends by itself.
func (r *jobRun) wants() runStatus {
	switch {
	case r.fail["b"] == failAlways:
		return api.RunFailed
	case r.fail["each"] == failAlways:
		return api.RunPartial
	}
	return api.RunCompleted
}

// judgeRun is I13: a step begins after what it needs, with what that wrote; no step begins again whose end was
// acknowledged; the run ends as its steps say. What holds of any task holds of those of its steps.
func (v *verdict) judgeRun(r *jobRun, byTask map[string][]ran, lines []line, lives lifetimes) {
	tasks := r.tasks()
	for _, j := range tasks {
		attempts := byTask[j.id]
		v.steps += len(attempts)
		v.judgeBegins(j, attempts, lives)
		v.judgeResults(j, attempts, lines)
		v.judgeAgain(j, attempts, lines)
		for _, a := range attempts {
			v.judgeOrder(r, j, a, byTask)
		}
	}
	v.judgeRunEnd(r, tasks)
}

// judgeAgain sees a step begin again after its end was acknowledged, and an unmarked one after it was lost.
func (v *verdict) judgeAgain(j *job, attempts []ran, lines []line) {
	for _, l := range lines {
		if l.Task != j.id || l.Kind != lineAccepted || l.Note != string(api.AttemptCompleted) {
			continue
		}
		if last := attempts[max(0, len(attempts)-1):]; len(last) > 0 && last[0].begin > l.NS {
			v.blame(&v.stepsAgain, "step %s began again %.0f ms after its end was acknowledged: %s", j.id,
				float64(last[0].begin-l.NS)/1e6, told(attempts))
		}
	}
	for i := range attempts {
		if i > 0 && j.safety == "" && attempts[i-1].end == 0 {
			v.blame(&v.stepsAgain, "unmarked step %s began again after its agent was lost: %s", j.id, told(attempts))
		}
	}
}

// judgeOrder holds a begin to the steps that it comes after: enough of them are through, and it got their outputs.
func (v *verdict) judgeOrder(r *jobRun, j *job, a ran, byTask map[string][]ran) {
	m, through := runModel[j.key], 0
	for _, before := range m.after {
		output := r.seen.step(before).Output
		ended, at := r.through(before, byTask)
		if ended && at <= a.begin {
			through++
		}
		switch got := outputOf(a.got[before]); {
		case got == nil && m.need < len(m.after):
		case !ended || !slices.Equal(got, outputOf(output)):
			v.blame(&v.stepOutputs, "step %s got %s of step %s, which wrote %s", j.id, a.got[before], before, output)
		}
	}
	if through < m.need {
		v.blame(&v.stepOrder, "step %s began when %d of %v were through, and needs %d: %s", j.id, through, m.after,
			m.need, told([]ran{a}))
	}
}

// through is whether a step is, and when the last of what it is for ended by the ledger.
func (r *jobRun) through(step string, byTask map[string][]ran) (bool, int64) {
	if s := r.seen.step(step).Status; s != api.StepCompleted && s != api.StepPartial {
		return false, 0
	}
	var last int64
	for _, j := range r.tasks() {
		if j.key != step {
			continue
		}
		newest := 0
		for _, a := range byTask[j.id] {
			newest = max(newest, a.number)
		}
		for _, a := range byTask[j.id] {
			counts := a.number == newest // it failed: an attempt before may end later, and nobody waits for it
			if result := j.task.Result; result != nil {
				counts = result.Attempt == a.number && result.PID == a.pid
			}
			if counts {
				last = max(last, a.end)
			}
		}
	}
	return true, last
}

// judgeRunEnd holds the run's end to those of its steps.
func (v *verdict) judgeRunEnd(r *jobRun, tasks []*job) {
	v.runOutcomes[r.seen.Status]++
	if r.seen.Status == api.RunBlocked { // by a step that was lost, and must not begin again by itself
		// It need not have begun: a hub that was killed may have given it to an agent.
		lost := slices.ContainsFunc(tasks, func(j *job) bool {
			return j.task.Status == api.TaskReview && (j.safety == "" || j.safety == api.AtMostOnce)
		})
		if !lost {
			v.blame(&v.runEnds, "run %s is blocked by no step that was lost: %s", r.id, r.seen.Why)
		}
		return
	}
	if r.seen.Status != r.wants() {
		v.blame(&v.runEnds, "run %s is %q (%s) and should be %s", r.id, r.seen.Status, r.seen.Why, r.wants())
	}
	for _, step := range runSteps {
		status, want := r.seen.step(step).Status, api.StepCompleted
		switch {
		case r.wants() == api.RunFailed && step != "b":
			continue // it depends on when b failed
		case step == "each" && r.fail[step] == failAlways:
			want = api.StepPartial
		case r.fail[step] == failAlways:
			want = api.StepFailed
		}
		if status != want {
			v.blame(&v.runEnds, "step %s of run %s is %q (%s) and should be %s", step, r.id, status,
				r.seen.step(step).Why, want)
		}
	}
}

// runsLine tells of the runs.
func (v *verdict) runsLine(n int) string {
	return fmt.Sprintf("runs %d with %d begins of steps: %v · out of order %d · begun again %d · wrong outputs %d · wrong ends %d",
		n, v.steps, v.runOutcomes, v.stepOrder, v.stepsAgain, v.stepOutputs, v.runEnds)
}

// startRun dispatches one run, and waits until a step of it has begun.
func (g *stage) startRun(t *testing.T, r *jobRun, step string) line {
	t.Helper()
	g.addJob(t, clusterAll)
	g.runs = append(g.runs, r)
	g.dispatch(g.ctx, r, 0)
	l, found := g.await(20*time.Second, func(l line) bool {
		return l.Kind == lineBegin && l.Task == r.id+"~"+step
	})
	require.True(t, found, "step %s begins", step)
	return l
}

func (g *stage) runVerdict(t *testing.T, limit time.Duration) *verdict {
	t.Helper()
	g.settleRuns(g.ctx, g.runs, limit)
	return g.verdict(t, 0)
}

// runThroughRestart kills the control plane in the middle of a diamond, whose one side takes longer than the other.
func runThroughRestart(t *testing.T, g *stage) []string {
	r := newRun("restart")
	r.ms["c"] = 4000
	g.startRun(t, r, "c")
	// All that does not wait for c is over, so nothing is on its way to an agent. With a planted bug it may not come.
	for _, key := range []string{"each.0", "each.1", "each.2", "extra", "first"} {
		g.await(5*time.Second, func(l line) bool { return l.Kind == lineAccepted && l.Task == r.id+"~"+key })
	}
	g.planes[0].current().kill()
	g.planes[0].up()
	g.awaitReady(t, 0)
	return g.runVerdict(t, 45*time.Second).problems
}

// runLosesAgent kills the agent of the step that must not begin twice.
func runLosesAgent(t *testing.T, g *stage) []string {
	r := newRun("lost")
	r.ms["c"] = 2000
	first := g.startRun(t, r, "c")
	g.agentNamed(first.Agent).current().kill()
	v := g.runVerdict(t, 30*time.Second)
	if r.seen.Status != api.RunBlocked {
		v.problems = append(v.problems, "the run is not blocked: it is "+string(r.seen.Status))
	}
	return v.problems
}

// TestOraclesSeeWhatRunsMustNotDo gives the oracles of runs stories with one fault each.
func TestOraclesSeeWhatRunsMustNotDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*story)
		blamed func(*verdict) int // nil: nothing may be blamed
	}{
		"a clean run": {nil, nil},
		"d before c": {func(s *story) { s.at("d", lineBegin).NS = s.at("c", lineEnd).NS - 1 },
			func(v *verdict) int { return v.stepOrder }},
		"first before both": {func(s *story) {
			s.at("first", lineBegin).NS = min(s.at("b", lineEnd).NS, s.at("c", lineEnd).NS) - 1
		}, func(v *verdict) int { return v.stepOrder }},
		"end before an element": {func(s *story) { s.at("end", lineBegin).NS = s.at("each.2", lineEnd).NS - 1 },
			func(v *verdict) int { return v.stepOrder }},
		"another's output": {func(s *story) { s.at("d", lineBegin).Got["c"] = s.at("d", lineBegin).Got["b"] },
			func(v *verdict) int { return v.stepOutputs }},
		"no output": {func(s *story) { delete(s.at("d", lineBegin).Got, "c") },
			func(v *verdict) int { return v.stepOutputs }},
		"begins again": {func(s *story) { s.again("a", 2, 9000) }, func(v *verdict) int { return v.stepsAgain }},
		"unmarked again": {func(s *story) { s.at("d", lineEnd).Kind = ""; s.again("d", 2, 9000) },
			func(v *verdict) int { return v.stepsAgain }},
		"at most once, twice": {func(s *story) { s.again("c", 2, s.at("c", lineBegin).NS+1) },
			func(v *verdict) int { return v.doubleBegins }},
		"fenced, two at once": {func(s *story) { s.again("b", 2, s.at("b", lineBegin).NS+1) },
			func(v *verdict) int { return v.overlaps }},
		"ended too early": {func(s *story) { s.entry("end").Status = api.StepSkipped },
			func(v *verdict) int { return v.runEnds }},
		"ended as nobody said": {func(s *story) { s.run.seen.Status = api.RunPartial },
			func(v *verdict) int { return v.runEnds }},
		"never ended": {func(s *story) { s.run.seen.Status = api.RunRunning },
			func(v *verdict) int { return v.runEnds }},
		"blocked by nothing": {func(s *story) { s.run.seen.Status = api.RunBlocked },
			func(v *verdict) int { return v.runEnds }},
		"blocked by a lost step": {func(s *story) {
			s.run.seen.Status = api.RunBlocked
			for _, step := range []string{"d", "end"} {
				s.entry(step).Status, s.entry(step).Output = api.StepPending, nil
				s.lines = slices.DeleteFunc(s.lines, func(l line) bool { return l.Task == "r~"+step })
			}
			s.entry("c").Status, s.entry("c").Output = api.StepBlocked, nil
			s.lines = slices.DeleteFunc(s.lines, func(l line) bool { return l.Task == "r~c" && l.Kind != lineBegin })
			delete(s.at("first", lineBegin).Got, "c")
		}, nil},
		"a result of nobody": {func(s *story) { s.entry("end").Output = json.RawMessage(`{"nonce":"r~end","pid":9}`) },
			func(v *verdict) int { return v.resultFaults }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cleanStory(t)
			if c.change != nil {
				c.change(s)
			}
			v := judge(evidence{runs: []*jobRun{s.run}, lines: s.lines})
			if c.blamed == nil {
				require.Empty(t, v.problems)
				return
			}
			require.Positive(t, c.blamed(v), "%v", v.problems)
		})
	}
}

// story is a run and what its agents wrote down.
type story struct {
	run   *jobRun
	lines []line
}

// at is the line of the first attempt of a step's task.
func (s *story) at(key, kind string) *line {
	return &s.lines[slices.IndexFunc(s.lines, func(l line) bool { return l.Task == "r~"+key && l.Kind == kind })]
}

func (s *story) entry(step string) *api.StepEntry {
	return &s.run.seen.Steps[slices.IndexFunc(s.run.seen.Steps, func(e api.StepEntry) bool { return e.Step == step })]
}

// again has a step begin once more.
func (s *story) again(key string, attempt int, ns int64) {
	again := *s.at(key, lineBegin)
	again.Attempt, again.NS, again.PID = attempt, ns, 2
	s.lines = append(s.lines, again)
}

// cleanStory is a run without a fault: each level takes 100 ns, and the steps of a level end one after another.
func cleanStory(t *testing.T) *story {
	s := &story{run: newRun("clean")}
	s.run.id, s.run.seen.Status = "r", api.RunCompleted
	levels := [][]string{{"a"}, {"b", "c", "each", "extra"}, {"d", "first"}, {"end"}}
	outputs := map[string]json.RawMessage{}
	for level, steps := range levels {
		for i, step := range steps {
			got := map[string]json.RawMessage{}
			for _, before := range runModel[step].after {
				got[before] = outputs[before]
			}
			keys := []string{step}
			for n := range runModel[step].elements {
				keys = append(keys[:n], fmt.Sprintf("%s.%d", step, n))
			}
			var results []done
			for n, key := range keys {
				l := line{Kind: lineBegin, Task: "r~" + key, Attempt: 1, PID: 1, NS: int64(100*level + n + 1), Got: got}
				end, accepted := l, l
				end.Kind, end.Note, end.NS = lineEnd, "done", l.NS+int64(10+i)
				accepted.Kind, accepted.Note, accepted.NS = lineAccepted, string(api.AttemptCompleted), end.NS+1
				s.lines = append(s.lines, l, end, accepted)
				results = append(results, done{PID: 1, Attempt: 1, Nonce: l.Task})
			}
			var output any = results[0]
			switch m := runModel[step]; {
			case m.elements > 0:
				output = map[string]any{"all": results}
			case m.need < len(m.after):
				output = map[string]any{"one": results[0]}
			}
			text, err := json.Marshal(output)
			require.NoError(t, err)
			outputs[step] = text
			s.run.seen.Steps = append(s.run.seen.Steps, api.StepEntry{Step: step,
				StepWork: api.StepWork{Status: api.StepCompleted, Output: text}})
		}
	}
	return s
}
