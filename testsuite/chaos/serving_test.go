//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobs "mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

const (
	// servedVersions is how many versions of each job a run deploys.
	servedVersions = 4
	// surplusLimit is how long more instances of a service may run than asked for, and the one that a rollout adds:
	// those of an agent that is out of touch go on until it is back, and others have taken their place.
	surplusLimit = 45 * time.Second
	// steadyFor is how long the instances must be as asked for at the end.
	steadyFor = 2 * time.Second
)

// served is a job with instances that a run keeps while everything breaks, and whose versions it changes.
type served struct {
	name   string
	kind   api.JobType
	safety api.RetrySafety
	count  int      // of a service
	agents []string // of a system job: each has one

	problems []string
	version  int   // the last that was applied
	settled  int64 // when the instances had been as asked for, for a while
	stopped  int64 // when the ledger showed none any more after the job was stopped
}

// planServices makes a service and a system job.
func (in *installation) planServices(cluster string) []*served {
	all := []*served{{name: serviceJob, kind: api.JobService, safety: api.Idempotent, count: serviceCount},
		{name: "everywhere", kind: api.JobSystem, safety: api.Fenced}}
	for _, m := range in.agents {
		if m.cluster == cluster {
			all[1].agents = append(all[1].agents, m.id)
		}
	}
	return all
}

func (s *served) owns(task string) bool { return strings.HasPrefix(task, s.name+jobs.InstanceMark) }

// next applies the next version. Its deployment has time for all that the run breaks. Recovery is quick and has no end,
// so that what is missing at the end is missing for another reason.
func (s *served) next(ctx context.Context, in *installation) {
	again := map[string]any{"unlimited": true, "delay": "200ms", "delay_function": "constant"}
	instances := map[string]any{"task": map[string]any{"type": "work", "payload": map[string]any{"ms": 86_400_000,
		"nonce": s.name, "got": map[string]int{"version": s.version + 1}}}}
	definition := map[string]any{"job": s.name, "type": s.kind, "cluster": clusterAll, "safety": s.safety,
		"instances": instances,
		"update":    map[string]any{"healthy_after": "500ms", "healthy_within": "1h", "progress_within": "1h"}}
	if s.kind == api.JobService {
		instances["count"] = s.count
		definition["recovery"] = map[string]any{"mode": api.ClusterRecover, "restart": again, "reschedule": again}
	} else {
		definition["recovery"] = map[string]any{"mode": api.LocalRestart, "restart": again}
	}
	if !in.apply(ctx, s.name, definition, settleLimit) {
		s.problems = append(s.problems, fmt.Sprintf("version %d of %s is not taken", s.version+1, s.name))
		return
	}
	s.version++
}

// addServices starts the jobs, and waits until all their instances are healthy.
func (in *installation) addServices(t testing.TB, all []*served) {
	t.Helper()
	for _, s := range all {
		s.next(t.Context(), in)
		_, problem := in.deployed(t.Context(), s.name, s.version, 30*time.Second)
		require.Empty(t, append(s.problems, problem)[0], s.name)
	}
}

// rollServices deploys the other versions over the time in which everything breaks.
func (in *installation) rollServices(ctx context.Context, all []*served, duration time.Duration) {
	for range servedVersions - 1 {
		if !pause(ctx, duration/servedVersions) {
			return
		}
		for _, s := range all {
			s.next(ctx, in)
		}
	}
}

// settleServices waits until the last versions are deployed and exactly the instances run that were asked for, and then
// stops the jobs.
func (in *installation) settleServices(ctx context.Context, t testing.TB, all []*served, limit time.Duration) {
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { s.settle(ctx, t, in, limit) })
	}
	wg.Wait()
}

func (s *served) settle(ctx context.Context, t testing.TB, in *installation, limit time.Duration) {
	deadline := time.Now().Add(limit)
	if _, problem := in.deployed(ctx, s.name, s.version, limit); problem != "" {
		s.problems = append(s.problems, s.name+": "+problem)
	}
	until := func(good func([]ran) string, steady time.Duration, deadline time.Time) string {
		for since, wrong := time.Now(), ""; ; {
			lines, err := in.book.read()
			require.NoError(t, err)
			if wrong = good(s.running(attemptsOf(lines), in.lives(), monotonic())); wrong != "" {
				since = time.Now()
			}
			if wrong == "" && time.Since(since) >= steady {
				return ""
			}
			if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
				return cmp.Or(wrong, "the instances change all the time")
			}
		}
	}
	if wrong := until(s.wrong, steadyFor, deadline); wrong != "" {
		s.problems = append(s.problems, wrong)
	}
	s.settled = monotonic()
	if s.kind == api.JobService {
		wrong := s.found(in)
		// An agent whose connection broke a moment ago does not count as healthy until its next poll.
		for soon := time.Now().Add(10 * time.Second); len(wrong) > 0 && time.Now().Before(soon) &&
			pause(ctx, 50*time.Millisecond); wrong = s.found(in) {
		}
		s.problems = append(s.problems, wrong...)
	}
	_, _ = in.call(0, http.MethodPost, jobsPath+s.name+"/stop", map[string]any{"reason": "the end"}, nil)
	if wrong := until(func(now []ran) string {
		if len(now) == 0 {
			return ""
		}
		return fmt.Sprintf("%s is stopped, and runs: %s", s.name, told(now))
	}, 0, time.Now().Add(30*time.Second)); wrong != "" {
		s.problems = append(s.problems, wrong)
	}
	s.stopped = monotonic()
}

// found is what is wrong with the instances as the API tells them.
func (s *served) found(in *installation) []string {
	var seen struct {
		Instances []struct {
			Version int                `json:"version"`
			Health  api.InstanceHealth `json:"health"`
		} `json:"instances"`
	}
	status, err := in.call(0, http.MethodGet, jobsPath+s.name+"/instances", nil, &seen)
	passing := 0
	for _, i := range seen.Instances {
		if i.Health == api.InstancePassing && i.Version == s.version {
			passing++
		}
	}
	if err != nil || status != http.StatusOK || passing != s.count || len(seen.Instances) != s.count {
		return []string{fmt.Sprintf("%s is told to have %+v (%d, %v)", s.name, seen.Instances, status, err)}
	}
	return nil
}

// instancesOf reads the tasks that were instances of jobs.
func (in *installation) instancesOf(all []*served, lines []line) (tasks []*job) {
	seen := map[string]bool{}
	for _, l := range lines {
		if seen[l.Task] || !slices.ContainsFunc(all, func(s *served) bool { return s.owns(l.Task) }) {
			continue
		}
		seen[l.Task] = true
		j := &job{id: l.Task}
		_, _ = in.call(0, http.MethodGet, tasksPath+"/"+l.Task, nil, &j.task)
		tasks = append(tasks, j)
	}
	return tasks
}

// running are the attempts of the job that ran at a time.
func (s *served) running(attempts []ran, lives lifetimes, at int64) (now []ran) {
	for _, a := range attempts {
		if s.owns(a.task) && slices.ContainsFunc(runningSpans(a, lives.of(a)), func(r runs) bool {
			return r.from <= at && at < r.to
		}) {
			now = append(now, a)
		}
	}
	return now
}

// wrong is what is wrong with the attempts that run at the end; empty: nothing.
func (s *served) wrong(now []ran) string {
	count, version := map[string]int{}, json.RawMessage(fmt.Sprint(s.version))
	for _, a := range now {
		count[a.agent]++
		if string(a.got["version"]) != string(version) {
			return fmt.Sprintf("%s has version %d, and runs %s with version %s", s.name, s.version, told([]ran{a}),
				a.got["version"])
		}
	}
	if s.kind == api.JobService && len(now) != s.count {
		return fmt.Sprintf("%s has %d instances, and is to have %d: %s", s.name, len(now), s.count, told(now))
	}
	for _, agent := range s.agents {
		if count[agent] != 1 {
			return fmt.Sprintf("%s runs %d times on %s: %s", s.name, count[agent], agent, told(now))
		}
	}
	return ""
}

// judgeServed is I15: exactly the instances that were asked for run at the end, all with the last version; until then
// never more for long, of a system job never two on an agent, and of fenced instances never two of one task.
func (v *verdict) judgeServed(s *served, attempts []ran, lives lifetimes) {
	for _, problem := range s.problems {
		v.blame(&v.serviceFaults, "%s", problem)
	}
	byTask := map[string][]ran{}
	var changes []change
	byAgent := map[string][]ran{}
	for _, a := range attempts {
		if !s.owns(a.task) {
			continue
		}
		v.instances++
		byTask[a.task] = append(byTask[a.task], a)
		byAgent[a.agent] = append(byAgent[a.agent], a)
		for _, r := range runningSpans(a, lives.of(a)) {
			changes = append(changes, change{r.from, 1}, change{r.to, -1})
		}
	}
	for task, of := range byTask {
		v.judgeBegins(&job{id: task, safety: s.safety}, of, lives)
	}
	if s.kind == api.JobSystem {
		for agent, of := range byAgent {
			v.judgeBegins(&job{id: s.name + " on " + agent, safety: api.Fenced}, distinct(of), lives)
		}
	}
	if wrong := s.wrong(s.running(attempts, lives, s.settled)); wrong != "" && len(s.problems) == 0 {
		v.blame(&v.serviceFaults, "%s", wrong)
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	now, short, since := 0, int64(0), int64(0)
	for _, c := range changes {
		if now > s.count+1 {
			if on := time.Duration(c.at - since); s.kind == api.JobService && on > surplusLimit {
				v.blame(&v.serviceFaults, "%d instances of %s ran for %s", now, s.name, on)
			}
		} else {
			since = c.at
		}
		if s.kind == api.JobService && now < s.count && short != 0 && c.at < s.settled {
			v.short = max(v.short, time.Duration(c.at-short))
		} else if now >= s.count {
			short = c.at
		}
		now += c.by
	}
}

// change is one instance more or less.
type change struct {
	at int64
	by int
}

// distinct gives the attempts of different tasks different numbers, as those of one have.
func distinct(attempts []ran) []ran {
	all := slices.Clone(attempts)
	for i := range all {
		all[i].number = i
	}
	return all
}

// servicesLine tells of the jobs with instances.
func (v *verdict) servicesLine() string {
	return fmt.Sprintf("a service and a system job, %d versions each: %d begins of instances, fewer than asked for during %.1f s at most · faults %d",
		servedVersions, v.instances, v.short.Seconds(), v.serviceFaults)
}

// TestOraclesSeeWhatServicesMustNotDo gives the oracle of services stories with one fault each.
func TestOraclesSeeWhatServicesMustNotDo(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	attempt := func(task, agent string, pid, version int, begin, end int64) []line {
		got := map[string]json.RawMessage{"version": json.RawMessage(fmt.Sprint(version))}
		lines := []line{{Kind: lineBegin, Task: task, Attempt: 1, Agent: agent, PID: pid, NS: begin * s, Got: got}}
		if end > 0 {
			lines = append(lines, line{Kind: lineEnd, Task: task, Attempt: 1, Agent: agent, PID: pid, NS: end * s,
				Note: "stopped"})
		}
		return lines
	}
	service := served{name: "s", kind: api.JobService, safety: api.Idempotent, count: 1, version: 2, settled: 200 * s}
	system := served{name: "s", kind: api.JobSystem, safety: api.Fenced, agents: []string{"a", "b"}, version: 1,
		settled: 200 * s}
	for name, c := range map[string]struct {
		of     served
		lines  [][]line
		lives  lifetimes
		blamed bool
	}{
		"a rollout": {service, [][]line{attempt("s~~0.1", "a", 1, 1, 1, 12), attempt("s~~0.2", "b", 2, 2, 10, 210)},
			nil, false},
		"none runs":        {service, [][]line{attempt("s~~0.1", "a", 1, 2, 1, 12)}, nil, true},
		"its agent died":   {service, [][]line{attempt("s~~0.1", "a", 1, 2, 1, 0)}, lifetimes{1: {{gone: 9}}}, true},
		"the old version":  {service, [][]line{attempt("s~~0.1", "a", 1, 1, 1, 210)}, nil, true},
		"two at the end":   {service, [][]line{attempt("s~~0.1", "a", 1, 2, 1, 210), attempt("s~~0.2", "b", 2, 2, 10, 210)}, nil, true},
		"three for a time": {service, [][]line{attempt("s~~0.1", "a", 1, 2, 1, 210), attempt("s~~0.2", "b", 2, 2, 10, 30), attempt("s~~0.3", "b", 2, 2, 11, 31)}, nil, false},
		"three for long":   {service, [][]line{attempt("s~~0.1", "a", 1, 2, 1, 210), attempt("s~~0.2", "b", 2, 2, 10, 90), attempt("s~~0.3", "b", 2, 2, 11, 91)}, nil, true},
		"one each": {system, [][]line{attempt("s~~a.1", "a", 1, 1, 1, 12), attempt("s~~a.2", "a", 1, 1, 13, 210),
			attempt("s~~b.3", "b", 2, 1, 10, 210)}, nil, false},
		"one agent has none": {system, [][]line{attempt("s~~a.1", "a", 1, 1, 1, 210)}, nil, true},
		"an agent had two": {system, [][]line{attempt("s~~a.1", "a", 1, 1, 1, 12), attempt("s~~a.2", "a", 1, 1, 11, 210),
			attempt("s~~b.3", "b", 2, 1, 10, 210)}, nil, true},
		"it died before the other began": {system, [][]line{attempt("s~~a.1", "a", 1, 1, 1, 0),
			attempt("s~~a.2", "a", 3, 1, 11, 210), attempt("s~~b.3", "b", 2, 1, 10, 210)},
			lifetimes{1: {{gone: 9 * s}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(evidence{services: []*served{&c.of}, lines: slices.Concat(c.lines...), lives: c.lives})
			require.Equal(t, c.blamed, len(v.problems) > 0, "%v", v.problems)
		})
	}
}
