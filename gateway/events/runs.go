package events

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

const (
	// maxRuns bounds how many runs have their ledgers read at once for the results of their steps. If more than
	// maxTouched wait for it, listeners get a gap instead.
	maxRuns, maxTouched = 200, 2000
	// runSettles is how long a run takes to decide after the end of an attempt, as a rule.
	runSettles = time.Second
)

// changesOfRun are the changes of a run since a time, as far as visibility knows them.
func changesOfRun(info *workflowpb.WorkflowExecutionInfo, since time.Time) (changes []told) {
	run := store.OfRunInfo(info)
	add := func(status api.RunStatus, at time.Time, mark string) {
		if !at.Before(since) {
			e := ofRun(&run, status, at)
			e.id += mark
			changes = append(changes, e)
		}
	}
	if first := info.GetFirstRunId(); first == "" || first == info.GetExecution().GetRunId() {
		add("started", info.GetStartTime().AsTime(), "")
	}
	attributes := info.GetSearchAttributes().GetIndexedFields()
	var marked time.Time
	contract.Decode(attributes[contract.AttrStatusAt.GetName()], &marked)
	switch mark := api.RunStatus(contract.Keyword(attributes, contract.AttrStatus)); {
	case run.Status.Final():
		add(run.Status, info.GetCloseTime().AsTime(), "")
	case mark == api.RunBlocked || mark == api.RunPaused: // a run that waits has another mark, and needs no person
		add(mark, marked, "."+strconv.FormatInt(marked.UnixMilli(), 36))
	}
	return changes
}

// ofRun is the event that a run reached a status.
func ofRun(run *api.RunEntry, status api.RunStatus, at time.Time) told {
	return told{id: "run." + run.ID + "." + string(status), Event: cluster.Event{
		Type: api.RunEvent(string(status)), Time: at.UTC(), EventData: api.EventData{Cluster: run.Cluster,
			Tenant: run.Tenant, ID: run.ID, Job: run.Job}}}
}

// runsOf are the runs that the events concern, in themselves or in a step, with the time of the last event.
func runsOf(events []told) map[string]time.Time {
	runs := map[string]time.Time{}
	for i := range events {
		var run string
		switch e := &events[i]; e.Type {
		case api.EventRunBlocked, api.EventRunCompleted, api.EventRunPartial, api.EventRunFailed,
			api.EventRunCancelled, api.EventRunPaused:
			run = e.ID
		case api.EventTaskCompleted, api.EventTaskRunning, api.EventAttemptFailed:
			run, _, _, _ = job.CutTaskID(e.TaskID)
		}
		if at := events[i].Time; run != "" && runs[run].Before(at) {
			runs[run] = at
		}
	}
	return runs
}

// touch notes the runs whose tasks a hub reports: a little later their ledgers have the results of the steps.
func (r *feedRun) touch(events []told) {
	touched := runsOf(events)
	r.mu.Lock()
	defer r.mu.Unlock()
	for run := range touched {
		r.touched[run] = time.Now()
	}
}

// lookAtRuns publishes what visibility has of runs, and what their ledgers add if somebody listens to that.
func (r *feedRun) lookAtRuns(ctx context.Context, changes []told) {
	f, now := r.feed, time.Now()
	f.mu.Lock()
	changes = slices.DeleteFunc(changes, func(c told) bool { _, told := r.known[c.id]; return told })
	wanted := false
	for l := range f.listeners {
		wanted = wanted || l.filter.wantsRuns()
	}
	f.mu.Unlock()
	due := runsOf(changes)
	r.mu.Lock()
	if len(r.touched) > maxTouched && wanted {
		changes = append(changes, gap(now, "", "more steps ended than can be told: the runs have them all", 0))
	}
	if len(r.touched) > maxTouched || !wanted {
		clear(r.touched)
	}
	for run, at := range r.touched {
		if now.Sub(at) >= runSettles && len(due) < maxRuns {
			due[run] = at
			delete(r.touched, run)
		}
	}
	r.mu.Unlock()
	if wanted {
		changes = append(f.changesInRuns(ctx, changes, slices.Sorted(maps.Keys(due)), r.begun), changes...)
	}
	r.publish(changes, nil)
}

// wantsRuns reports whether the listener gets events of runs or steps.
func (f *eventFilter) wantsRuns() bool {
	return len(f.types) == 0 || slices.ContainsFunc(f.types, func(wanted string) bool {
		return strings.HasPrefix(wanted, "run") || strings.HasPrefix(wanted, "step")
	})
}

// pastOfSteps adds to past events what the listener may see from the ledgers of the runs: of the newest maxRuns.
func (f *Feed) pastOfSteps(ctx context.Context, events []told, filter *eventFilter, since time.Time) []told {
	if !filter.wantsRuns() {
		return events
	}
	ctx, cancel := context.WithTimeout(ctx, pastLimit)
	defer cancel()
	runs := runsOf(slices.DeleteFunc(slices.Clone(events),
		func(e told) bool { return filter.tenant != "" && e.Tenant != filter.tenant }))
	ids := slices.SortedFunc(maps.Keys(runs), func(a, b string) int { return runs[b].Compare(runs[a]) })
	if len(ids) > maxRuns {
		events = append(events, gap(since, "", "more steps ended than can be told: the runs have them all", 0))
		ids = ids[:maxRuns]
	}
	return append(f.changesInRuns(ctx, events, ids, since), events...)
}

// changesInRuns reads the ledgers of runs. It returns the changes of the runs and their steps since a time, and adds to
// the events the reasons for the runs' states. Runs that cannot be read are left out.
func (f *Feed) changesInRuns(ctx context.Context, events []told, ids []string, since time.Time) []told {
	runs, changes := make([]api.Run, len(ids)), make([][]told, len(ids))
	parallel.Each(len(ids), historiesAtOnce, func(i int) {
		done, err := httpapi.Turn(ctx)
		if err != nil {
			return
		}
		defer done()
		run, _, err := f.store.Runs().Describe(ctx, ids[i])
		if err != nil {
			return
		}
		if known, err := f.store.Runs().Complete(ctx, &run); known && err == nil {
			runs[i], changes[i] = run, changesInRun(&run, since)
		}
	})
	for i := range events {
		e := &events[i]
		if n := slices.Index(ids, e.ID); n >= 0 && e.Type == api.RunEvent(string(runs[n].Status)) {
			e.Reason = runs[n].Why
		}
	}
	return slices.Concat(changes...)
}

// changesInRun are the ends of a run and its steps since a time, and which wait for a person; also of elements that did
// not complete.
func changesInRun(run *api.Run, since time.Time) (changes []told) {
	add := func(key string, w *api.StepWork) {
		at := w.EndedAt
		if w.Status == api.StepBlocked {
			at = w.StartedAt
			if n := len(w.Attempts); n > 0 && w.Attempts[n-1].EndedAt != nil {
				at = w.Attempts[n-1].EndedAt
			}
		}
		if at == nil {
			at = &run.StartedAt // it never got as far as a task
		}
		if !w.Status.Final() && w.Status != api.StepBlocked || at.Before(since) {
			return
		}
		task := job.TaskID(run.ID, key)
		changes = append(changes, told{
			id: "step." + task + "." + string(w.Status) + "." + strconv.FormatInt(at.UnixMilli(), 36),
			Event: cluster.Event{Type: api.StepEvent(string(w.Status)), Time: at.UTC(), EventData: api.EventData{
				Cluster: run.Cluster, Tenant: run.Tenant, ID: run.ID, Job: run.Job, TaskID: task, Reason: w.Why}}})
	}
	for i := range run.Steps {
		e, waits := &run.Steps[i], false
		for n := range e.Elements {
			w := &e.Elements[n]
			waits = waits || w.Status == api.StepBlocked
			if w.Status == api.StepBlocked || w.Status == api.StepFailed {
				add(job.ElementKey(e.Step, n), w)
			}
		}
		if !waits { // else the step waits for them
			add(e.Step, &e.StepWork)
		}
	}
	if run.Status.Final() && run.EndedAt != nil && !run.EndedAt.Before(since) {
		entry := api.RunEntry{ID: run.ID, Job: run.Job, Cluster: run.Cluster, Tenant: run.Tenant}
		end := ofRun(&entry, run.Status, *run.EndedAt)
		end.Reason = run.Why
		changes = append(changes, end)
	}
	return changes
}
