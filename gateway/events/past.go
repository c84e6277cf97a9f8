package events

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/sdk/api"
)

const (
	// maxPast is how far back events are looked for.
	maxPast = 24 * time.Hour
	// pastLimit bounds how long tasks are looked at for it: the pages are read when it is the client's turn.
	pastLimit = 15 * time.Second
)

// past reads the events after a position from all sources, oldest first. Of tasks and runs it keeps those that the
// listener may see. It adds a gap where events are lost.
func (f *Feed) past(ctx context.Context, p position, filter *eventFilter, now time.Time) []told {
	var events []told
	if p.at.After(now) {
		p.at = now
	}
	if p.tasks.After(now) {
		p.tasks = now
	}
	if oldest := now.Add(-maxPast); p.at.Before(oldest) {
		events = append(events, gap(oldest, "", "events are told for a day at most", 0))
		p.at = oldest
	}
	if oldest := now.Add(-maxPast); p.tasks.Before(oldest) {
		p.tasks = oldest
	}
	clusters, hubs, err := f.places(ctx)
	if err != nil {
		f.logger.Warn("the clusters and hubs were not listed", zap.Error(err))
		return append(events, gap(now, "", "Temporal did not answer: what happened meanwhile is not known", 0))
	}
	for name := range p.clusters {
		if !slices.Contains(clusters, name) {
			clusters = append(clusters, name) // deleted meanwhile, perhaps: its last events are still known
		}
	}
	for id := range p.hubs {
		if !slices.Contains(hubs, id) {
			events = append(events, gap(now, "", "hub "+id+" is gone: what it saw last is not known", 0))
		}
	}
	parts := make([][]told, len(clusters)+len(hubs)+1)
	parallel.Each(len(parts), atOnce, func(i int) {
		switch {
		case i < len(clusters):
			parts[i] = f.pastOfCluster(ctx, clusters[i], &p)
		case i < len(clusters)+len(hubs):
			parts[i] = f.pastOfHub(ctx, hubs[i-len(clusters)], &p)
		default:
			parts[i] = f.pastOfTasks(ctx, p.tasks, filter.tenant)
		}
	})
	seen := map[string]bool{}
	for _, e := range f.pastOfSteps(ctx, slices.Concat(parts...), filter, p.tasks) {
		if !seen[e.id] {
			seen[e.id] = true
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b told) int { return a.Time.Compare(b.Time) })
	for i := range events {
		events[i].encode(f.seal)
	}
	return events
}

func (f *Feed) pastOfCluster(ctx context.Context, name string, p *position) []told {
	mark, known := p.clusters[name]
	since := contract.EventsSince{From: p.from()}
	if known {
		since = contract.EventsSince{After: mark.seq}
	}
	answer, err := f.clusterEvents(ctx, name, since)
	if err == nil && known && answer.CreatedAt.UnixMilli() != mark.created.UnixMilli() {
		since = contract.EventsSince{}
		answer, err = f.clusterEvents(ctx, name, since)
	}
	if err != nil {
		return []told{gap(time.Now(), name, "the cluster did not answer, or is gone: what happened in it is not known",
			0)}
	}
	return ofCluster(name, &answer, since)
}

func (f *Feed) pastOfHub(ctx context.Context, id string, p *position) []told {
	mark, known := p.hubs[id]
	ask := contract.ReadEventsInput{From: p.from()}
	if known {
		ask = contract.ReadEventsInput{Process: mark.process, After: mark.seq}
	}
	var events []told
	for {
		read, answered, err := f.askHub(ctx, id, ask)
		if why, never := cannotAsk(err); never {
			return []told{deafness(why)}
		}
		if err != nil || !answered {
			return append(events, gap(time.Now(), "", "hub "+id+" did not answer: what its agents did is not known", 0))
		}
		events = append(events, ofHub(id, &read, ask)...)
		if !read.More {
			return events
		}
		ask = contract.ReadEventsInput{Process: read.Process, After: read.Seq}
	}
}

func (f *Feed) pastOfTasks(ctx context.Context, since time.Time, tenant string) []told {
	ctx, cancel := context.WithTimeout(ctx, pastLimit)
	defer cancel()
	looks := allLooks(since)
	for i := range looks {
		looks[i] = looks[i].of(tenant)
	}
	changes, more, err := f.taskChanges(ctx, looks, since)
	if err != nil {
		return []told{gap(time.Now(), "", "the tasks were not all read in time: what happened to them is not known", 0)}
	}
	earlier, err := f.earlierMarks(ctx, since, tenant)
	if err != nil {
		changes = append(
			changes,
			gap(since, "", "reviews and dead letters that were decided meanwhile are not all known", 0),
		)
	}
	changes = append(changes, earlier...)
	if more {
		changes = append(changes, gap(since, "", "more tasks changed than can be told: the list of tasks has them all",
			0))
	}
	return changes
}

const (
	// maxMarked bounds the tasks whose histories are read for marks that visibility has forgotten: markedPage in one
	// turn of the client, historiesAtOnce side by side. Others wait while the store reads them.
	maxMarked       = 200
	markedPage      = 50
	historiesAtOnce = 4
)

var errTooManyMarked = errors.New("too many tasks were marked")

// earlierMarks are the reviews, dead letters and decisions since a time. Visibility has only the last of each task; the
// histories have them all.
func (f *Feed) earlierMarks(ctx context.Context, since time.Time, tenant string) (marks []told, err error) {
	read := 0
	for look := new(markedLook(since).of(tenant)); look != nil; look = look.before {
		for page, more := []byte(nil), true; more; more = len(page) > 0 {
			var found []told
			var tasks int
			var failed error
			found, tasks, page, failed = f.pageOfMarks(ctx, look.query+
				" AND "+contract.Equals("WorkflowType", contract.TaskWorkflow), since, page, maxMarked-read)
			read += tasks
			marks, err = append(marks, found...), errors.Join(err, failed)
			if errors.Is(err, errTooManyMarked) {
				return marks, err
			}
		}
	}
	return marks, err
}

// pageOfMarks reads a page of tasks, and the marks of each; left is for how many at most.
func (f *Feed) pageOfMarks(
	ctx context.Context, query string, since time.Time, page []byte, left int,
) (marks []told, read int, next []byte, err error) {
	done, err := httpapi.Turn(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	tasks, next, err := f.store.Tasks().Page(ctx, query, markedPage, page)
	if err != nil {
		return nil, 0, nil, err
	}
	if len(tasks) > left {
		return nil, 0, nil, errTooManyMarked
	}
	found, errs := make([][]told, len(tasks)), make([]error, len(tasks))
	parallel.Each(len(tasks), historiesAtOnce, func(i int) {
		marks, err := f.store.Tasks().Marks(ctx, &tasks[i].Task)
		errs[i] = err
		for _, m := range marks {
			if m.At.Before(since) {
				continue
			}
			data := api.EventData{Cluster: tasks[i].Cluster, Tenant: tasks[i].Tenant, TaskID: tasks[i].ID,
				TaskType: tasks[i].Type}
			explain(&data, &m)
			status := m.Status
			switch status {
			case "":
				status = api.TaskQueued
			case api.TaskReview, api.TaskDeadLetter:
			default:
				continue
			}
			found[i] = append(found[i], told{id: markEventID(tasks[i].ID, status, m.At),
				Event: cluster.Event{Type: api.TaskEvent(status), Time: m.At.UTC(), EventData: data}})
		}
	})
	return slices.Concat(found...), len(tasks), next, errors.Join(errs...)
}

// positionSince is the position for events from a time on.
func positionSince(t time.Time) position {
	return position{at: t.Add(positionWindow), tasks: t, clusters: map[string]clusterMark{}, hubs: map[string]hubMark{}}
}

// notBefore drops the events before a time.
func notBefore(events []told, t time.Time) []told {
	return slices.DeleteFunc(events, func(e told) bool { return e.Time.Before(t) && e.Type != api.EventGap })
}
