//go:build linux

package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/sdk/api"
)

// thawGrace is how long fenced work may still run in a process that was stopped for longer than its lease, from the
// moment it goes on: nothing inside a stopped process can stop it earlier.
const thawGrace = 250 * time.Millisecond

// ran is one attempt by the ledger.
type ran struct {
	task       string
	number     int
	agent      string
	pid        int
	epoch      int64
	note       string
	got        map[string]json.RawMessage
	begin, end int64 // end is 0 while it runs, or when its process died
	how        string
}

// attemptsOf pairs begins and ends, in the order of the begins.
func attemptsOf(lines []line) []ran {
	type key struct {
		task   string
		number int
		pid    int
	}
	var all []ran
	open := map[key]int{}
	for _, l := range lines {
		k := key{l.Task, l.Attempt, l.PID}
		switch l.Kind {
		case lineBegin:
			open[k] = len(all)
			all = append(all, ran{task: l.Task, number: l.Attempt, agent: l.Agent, pid: l.PID, epoch: l.Epoch,
				note: l.Note, got: l.Got, begin: l.NS})
		case lineEnd:
			if i, ok := open[k]; ok {
				all[i].end, all[i].how = l.NS, l.Note
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ran) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

// life is what the driver knows of a process that played an agent.
type life struct {
	gone   int64 // 0: it lives
	frozen []span
}

// lifetimes are those of the processes with a pid, the earliest first: a long run uses pids again.
type lifetimes map[int][]life

// of is the life of the process that began an attempt, which it may have done a moment after it was killed. One that
// the driver does not know lives.
func (l lifetimes) of(a ran) (last life) {
	for _, last = range l[a.pid] {
		if last.gone == 0 || last.gone+int64(time.Second) >= a.begin {
			break
		}
	}
	return last
}

// evidence is everything that the oracles compare.
type evidence struct {
	jobs   []*job
	runs   []*jobRun
	arrays []*arrayWork
	// services are jobs with instances, and instances their tasks.
	services  []*served
	instances []*job
	acked     map[string]int64 // when hubs acknowledged that elements of arrays completed
	lines     []line
	lives     lifetimes
	fell      []string // epochs that fell, as the watcher saw
	drains    []drained

	away      []span // when processes of the control plane were missing
	illnesses []illness
	looks     []fleetLook
	actions   []api.HealingRecord // newest first
}

// verdict counts what must not happen, and says it in words.
type verdict struct {
	lost, doubleBegins, overlaps, leaderOverlaps, epochFaults, resultFaults, drainFaults, healingFaults int
	treated, untreatable, outs, finishedIll                                                             int
	acknowledged, leaves                                                                                int
	stepOrder, stepsAgain, stepOutputs, runEnds, steps                                                  int
	elementsAgain, elementResults, elementEnds, elements                                                int
	serviceFaults, instances                                                                            int
	accepted, stale                                                                                     int
	// the longest that a service had fewer instances than asked for
	short time.Duration
	// the longest that fenced work ran on after SIGCONT
	afterThaw time.Duration
	outcomes  map[api.TaskStatus]int
	// runOutcomes are how the runs ended.
	runOutcomes map[runStatus]int
	// arrayOutcomes are how the arrays ended.
	arrayOutcomes map[api.ArrayStatus]int
	problems      []string
}

func (v *verdict) blame(count *int, format string, args ...any) {
	*count++
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// judge is the oracles of invariants I1 to I5, I7, I13 and I14, and of healing.
func judge(e evidence) *verdict {
	v := &verdict{outcomes: map[api.TaskStatus]int{}, runOutcomes: map[runStatus]int{},
		arrayOutcomes: map[api.ArrayStatus]int{}}
	attempts := attemptsOf(e.lines)
	byTask := map[string][]ran{}
	for _, a := range attempts {
		byTask[a.task] = append(byTask[a.task], a)
	}
	leaves := leavesOf(e.lines)
	for _, j := range e.jobs {
		if j.id == "" {
			continue
		}
		v.leaves += len(leaves[j.id])
		v.judgeLeaves(j, leaves[j.id], byTask[j.id])
		v.acknowledged++
		v.outcomes[j.task.Status]++
		v.judgeEnd(j)
		v.judgeBegins(j, byTask[j.id], e.lives)
		v.judgeResults(j, byTask[j.id], e.lines)
	}
	for _, r := range e.runs {
		v.judgeRun(r, byTask, e.lines, e.lives)
	}
	for _, a := range e.arrays {
		v.judgeArray(a, byTask, e.lives, e.acked)
	}
	for _, s := range e.services {
		v.judgeServed(s, attempts, e.lives)
	}
	v.judgeLeaders(unpinned(attempts, e.jobs), e.lines, e.lives)
	v.judgeEpochs(e)
	v.judgeDrains(e, attempts)
	v.judgeHealing(e, attempts)
	return v
}

// judgeEnd is I1: every acknowledged task ends, or waits for a person.
func (v *verdict) judgeEnd(j *job) {
	if !j.task.settled() {
		v.blame(&v.lost, "task %s (%s, %s) is lost: status %q, %s", j.id, j.cluster, j.safety, j.task.Status,
			j.task.Why)
	}
	if j.work.Fail == failAlways && j.task.Status == api.TaskCompleted {
		v.blame(&v.lost, "task %s always fails and is completed", j.id)
	}
}

// judgeBegins is I2 and the half of I3 about fenced work.
func (v *verdict) judgeBegins(j *job, attempts []ran, lives lifetimes) {
	if j.safety == api.AtMostOnce && len(attempts) > 1 {
		v.blame(&v.doubleBegins, "at_most_once task %s began %d times: %s", j.id, len(attempts), told(attempts))
	}
	seen := map[[2]int]bool{}
	for _, a := range attempts {
		// An element that a bundle left undone comes back with the same attempt.
		if k := [2]int{a.number, a.pid}; seen[k] && !ofArray(a.task) {
			v.blame(&v.doubleBegins, "attempt %d of task %s began twice in process %d", a.number, j.id, a.pid)
		} else {
			seen[k] = true
		}
	}
	if j.safety != api.Fenced {
		return
	}
	for i, first := range attempts {
		for _, second := range attempts[i+1:] {
			for _, s := range runningSpans(first, lives.of(first)) {
				if second.begin >= s.to || (second.end != 0 && second.end <= s.from) {
					continue
				}
				if on := time.Duration(s.to - s.from); s.thawed && on <= thawGrace {
					v.afterThaw = max(v.afterThaw, on)
					continue
				}
				v.blame(&v.overlaps, "fenced task %s ran twice at once, by %.0f ms: %s", j.id,
					float64(s.to-max(s.from, second.begin))/1e6, told(attempts))
			}
		}
	}
}

// runs is a span in which an attempt ran; thawed says that its process had been stopped before.
type runs struct {
	span
	thawed bool
}

// runningSpans are when an attempt really ran: not while its process was stopped, and not after its death.
func runningSpans(a ran, l life) []runs {
	end := a.end
	if end == 0 {
		end = l.gone
	}
	if end == 0 {
		end = 1<<63 - 1
	}
	spans := []runs{{span: span{a.begin, end}}}
	for _, f := range l.frozen {
		last := &spans[len(spans)-1]
		if f.from <= last.from || f.from >= last.to {
			continue
		}
		to := last.to
		last.to = f.from
		if f.to != 0 && f.to < to {
			spans = append(spans, runs{span: span{f.to, to}, thawed: true})
		}
	}
	return spans
}

// ofArray reports whether a task is an element of an array: it may begin with its bundle, after what the bundle had.
func ofArray(task string) bool { return strings.Contains(task, array.Mark) }

// judgeResults is I5: at most one result of a task is accepted, and it is what the API answers.
func (v *verdict) judgeResults(j *job, attempts []ran, lines []line) {
	finished := map[[2]int]bool{}
	for _, a := range attempts {
		if a.how == "done" {
			finished[[2]int{a.number, a.pid}] = true
		}
	}
	accepted := map[int]bool{}
	for _, l := range lines {
		if l.Task != j.id {
			continue
		}
		switch l.Kind {
		case lineAccepted:
			if l.Note == string(api.AttemptCompleted) {
				accepted[l.Attempt] = true
			}
		case lineStale:
			v.stale++
		}
	}
	v.accepted += len(accepted)
	if len(accepted) > 1 {
		v.blame(&v.resultFaults, "%d results of task %s were accepted: %s", len(accepted), j.id, told(attempts))
	}
	result := j.task.Result
	switch {
	case len(accepted) > 0 && j.task.Status != api.TaskCompleted:
		v.blame(&v.resultFaults, "a result of task %s was accepted, and the task is %s", j.id, j.task.Status)
	case j.task.Status != api.TaskCompleted:
	case result == nil || result.Nonce != j.work.Nonce || !finished[[2]int{result.Attempt, result.PID}]:
		v.blame(&v.resultFaults, "task %s is completed with a result that no attempt had: %+v; %s", j.id, result,
			told(attempts))
	case len(accepted) == 1 && !accepted[result.Attempt]:
		v.blame(&v.resultFaults, "task %s has the result of attempt %d, but another one was accepted", j.id,
			result.Attempt)
	}
}

// unpinned leaves out attempts of work that only one agent may do, whether it leads or not.
func unpinned(attempts []ran, jobs []*job) []ran {
	pinned := map[string]bool{}
	for _, j := range jobs {
		pinned[j.id] = j.pin != ""
	}
	return slices.DeleteFunc(slices.Clone(attempts), func(a ran) bool { return pinned[a.task] })
}

// judgeLeaders is the other half of I3: leaderships do not overlap, and work begins under ever newer ones.
func (v *verdict) judgeLeaders(attempts []ran, lines []line, lives lifetimes) {
	var last int64
	for _, a := range attempts {
		var lead int64
		if _, err := fmt.Sscanf(a.note, "lead %d", &lead); err != nil {
			continue
		}
		switch {
		case lead == 0:
			v.blame(&v.leaderOverlaps, "%s began task %s without leading", a.agent, a.task)
		case lead < last:
			v.blame(&v.leaderOverlaps, "%s began task %s under leadership %d, after work had begun under %d", a.agent,
				a.task, lead, last)
		}
		last = max(last, lead)
	}
	var leads []ran
	for _, l := range lines {
		switch l.Kind {
		case lineLead:
			leads = append(leads, ran{agent: l.Agent, pid: l.PID, epoch: l.Epoch, begin: l.NS})
		case lineLeadEnd:
			for i := len(leads) - 1; i >= 0; i-- {
				if leads[i].pid == l.PID && leads[i].epoch == l.Epoch && leads[i].end == 0 {
					leads[i].end = l.NS
					break
				}
			}
		}
	}
	slices.SortFunc(leads, func(a, b ran) int { return cmp.Compare(a.begin, b.begin) })
	for i, first := range leads {
		for _, second := range leads[i+1:] {
			for _, s := range runningSpans(first, lives.of(first)) {
				if second.begin < s.to && (second.end == 0 || second.end > s.from) && first.pid != second.pid &&
					!s.thawed {
					v.blame(&v.leaderOverlaps, "%s (leadership %d) and %s (leadership %d) led at once, for %.0f ms",
						first.agent, first.epoch,
						second.agent, second.epoch, float64(s.to-second.begin)/1e6)
				}
			}
		}
	}
}

// judgeEpochs is I4: a newer process of an agent has a greater epoch, and no epoch that the API tells ever falls.
func (v *verdict) judgeEpochs(e evidence) {
	for _, fell := range e.fell {
		v.blame(&v.epochFaults, "%s", fell)
	}
	type first struct {
		pid   int
		epoch int64
	}
	newest := map[string]first{}
	for _, l := range e.lines {
		if l.Kind != lineRegistered {
			continue
		}
		known := newest[l.Agent]
		switch {
		case known.pid == l.PID && known.epoch != l.Epoch:
			v.blame(&v.epochFaults, "process %d of %s had epoch %d and then %d", l.PID, l.Agent, known.epoch, l.Epoch)
		case known.pid != l.PID && l.Epoch <= known.epoch:
			v.blame(&v.epochFaults, "process %d of %s has epoch %d, its predecessor had %d", l.PID, l.Agent, l.Epoch,
				known.epoch)
		}
		newest[l.Agent] = first{l.PID, l.Epoch}
	}
}

func told(attempts []ran) string {
	var b strings.Builder
	for i, a := range attempts {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "attempt %d on %s (pid %d) from %.3f to %.3f %s", a.number, a.agent, a.pid,
			float64(a.begin)/1e9, float64(a.end)/1e9, a.how)
	}
	return b.String()
}

// failoverTimes are, for every task that a killed agent was working on, the time until it began elsewhere: undisturbed
// where the control plane was whole for long enough before and after the kill, else disturbed. Fenced tasks are left
// out, which wait for the lease.
func failoverTimes(kills []kill, away []span, lines []line, jobs []*job) (undisturbed, disturbed []time.Duration) {
	const around = int64(5 * time.Second)
	safety := map[string]api.RetrySafety{}
	for _, j := range jobs {
		safety[j.id] = j.safety
	}
	attempts := attemptsOf(lines)
	for _, k := range kills {
		troubled := slices.ContainsFunc(away, func(s span) bool { return k.at > s.from-around && k.at < s.to+around })
		for _, task := range k.tasks {
			i := slices.IndexFunc(attempts, func(a ran) bool {
				return a.task == task && a.begin > k.at &&
					a.pid != k.pid
			})
			switch {
			case i < 0 || safety[task] != api.Idempotent:
			case troubled:
				disturbed = append(disturbed, time.Duration(attempts[i].begin-k.at))
			default:
				undisturbed = append(undisturbed, time.Duration(attempts[i].begin-k.at))
			}
		}
	}
	slices.Sort(undisturbed)
	slices.Sort(disturbed)
	return undisturbed, disturbed
}

// spread is p50, p99 and the maximum of sorted times.
func spread(times []time.Duration) string {
	return fmt.Sprintf("%d moves, p50 %.2f s, p99 %.2f s, max %.2f s", len(times), percentile(times, 0.5).Seconds(),
		percentile(times, 0.99).Seconds(), percentile(times, 1).Seconds())
}

// percentile of sorted times.
func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(len(times)-1, int(p*float64(len(times))))]
}
