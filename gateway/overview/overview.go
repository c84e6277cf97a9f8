// Package overview shows the whole fleet at a glance: to people, and as metrics.
package overview

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	Shown
	// Lanes shows lanes, as the queue does.
	Lanes func(
		ctx context.Context, views []contract.ClusterView, live store.Live, pinned map[string][]string,
		in rest.PageInput,
	) (rest.Page[api.Lane], error)
	// Failovers are the newest, at most this many.
	Failovers func(ctx context.Context, most int) ([]api.FailoverRecord, error)
	// Every is how often the fleet is read for its metrics at most.
	Every time.Duration

	services askedServices
	shared   sharedOverview
}

// Shown shows clusters: one that answered, and one with nothing known but its settings.
type Shown struct {
	Cluster  func(*contract.ClusterView) api.Cluster
	Settings func(api.ClusterConfig) api.Cluster
}

// Bounds of an overview.
const (
	// overviewLanes is how many lanes are looked at; each costs a call to Temporal.
	overviewLanes = 200
	// overviewPersonal is how many tasks or runs that wait for a person are read, for their cluster and since when they
	// wait.
	overviewPersonal = 200
	// overviewFailovers is how many of the newest failovers are read.
	overviewFailovers = 10
)

// fleetProblem names the schema of a problem in the OpenAPI document, where "Problem" is the body of an error.
type fleetProblem api.Problem

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	schemas := routes.OpenAPI().Components.Schemas
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Problem](), reflect.TypeFor[fleetProblem]())
	rest.Serve(rest.On(routes, "Clusters"), "get-overview", "GET /overview",
		"Show whether anything is wrong, where, and since when",
		"Clusters, lanes, counts and the newest failovers in one answer, with the problems that a person should know of. "+
			"A part that cannot be read is left out, and missing says so.", h.overview, rest.Wide, rest.Held)
}

const (
	// overviewRest is how many times as long as reading an overview took the reading rests, and longestRest the
	// longest.
	overviewRest = 3
	longestRest  = 5 * time.Second
)

// sharedOverview is the newest overview.
type sharedOverview struct {
	mu    sync.Mutex
	began time.Time // when it was read
	rests time.Time // until when the next is not read
	shown api.Overview
	err   error
}

// overview is the whole fleet at a glance. However many ask, it is read for a quarter of the time, for all who had
// asked before.
func (h *Handlers) overview(ctx context.Context, _ *struct{}) (api.Overview, error) {
	s, asked := &h.shared, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.After(asked) {
		return s.shown, s.err
	}
	select {
	case <-time.After(time.Until(s.rests)):
	case <-ctx.Done():
		return api.Overview{}, ctx.Err()
	}
	s.began = time.Now()
	s.shown, s.err = h.read(context.WithoutCancel(ctx)) // others want it too
	s.rests = time.Now().Add(min(overviewRest*time.Since(s.began), longestRest))
	return s.shown, s.err
}

// read reads the overview.
func (h *Handlers) read(ctx context.Context) (api.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	listed, err := h.ListClusters(ctx)
	if err != nil {
		return api.Overview{}, err
	}
	b := overviewBuilder{shown: h.Shown, came: map[string]time.Time{}, Overview: api.Overview{
		At:        time.Now().UTC(),
		Problems:  []api.Problem{},
		Clusters:  []api.Cluster{},
		Lanes:     []api.Lane{},
		Failovers: []api.FailoverRecord{},
	}}
	var parts sync.WaitGroup
	parts.Go(func() { b.personal(h.personalTasks(ctx, listed)) })
	parts.Go(func() { b.open(h.openTasks(ctx)) })
	parts.Go(func() {
		records, err := h.Failovers(ctx, overviewFailovers)
		b.failovers(records, err)
	})
	parts.Go(func() { b.jobs(h.services.read(ctx, h)) })
	var runs selfCareRuns
	parts.Go(func() { runs = b.loops(ctx, h) })
	var nobodys unhandled
	var unread error
	parts.Go(func() { nobodys, unread = h.unhandledTasks(ctx) })
	views, live := h.overviewClusters(ctx, listed, &b)
	lanes, err := h.lanes(ctx, views, live)
	b.lanes(views, lanes, err)
	parts.Wait()
	b.selfCare(views, live, runs)
	b.unhandled(views, nobodys, unread)
	if b.broken() {
		h.Logger.Debug("parts of an overview were not read", zap.Strings("missing", b.Missing))
	}
	return b.finish(), nil
}

// overviewClusters asks all clusters how they stand. One that does not answer is a problem of its own.
func (h *Handlers) overviewClusters(
	ctx context.Context, listed []store.ListedCluster, b *overviewBuilder,
) ([]contract.ClusterView, store.Live) {
	var live store.Live
	var views []contract.ClusterView
	var errs []error
	var both sync.WaitGroup
	both.Go(func() { live = h.Live(ctx) })
	both.Go(func() { views, errs = h.ViewEach(ctx, listed) })
	both.Wait()
	kept := views[:0]
	for i := range listed {
		switch code, _ := rest.Code(errs[i]); {
		case errs[i] == nil:
			b.cluster(&views[i], live)
			kept = append(kept, views[i])
		case code != protocol.CodeUnknownCluster: // else it was deleted since it was listed
			b.unanswered(listed[i])
		}
	}
	return kept, live
}

func (h *Handlers) lanes(ctx context.Context, views []contract.ClusterView, live store.Live) ([]api.Lane, error) {
	pinned, err := h.Store.Tasks().Pinned(ctx, "")
	if err != nil {
		return nil, err
	}
	page, err := h.Lanes(ctx, views, live, pinned, rest.PageInput{PageSize: overviewLanes})
	return page.Items, err
}

// personal are the tasks, runs and arrays that wait for a person, by kind of problem.
type personal struct {
	found map[api.ProblemKind][]store.Task // some of them, when there are more
	count map[api.ProblemKind]int64
	of    map[api.ProblemKind]map[string]int64 // by cluster, where not all were read
}

func (h *Handlers) personalTasks(ctx context.Context, listed []store.ListedCluster) (personal, error) {
	p := personal{found: map[api.ProblemKind][]store.Task{}, count: map[api.ProblemKind]int64{},
		of: map[api.ProblemKind]map[string]int64{}}
	for kind, query := range map[api.ProblemKind]func(cluster string) string{
		api.ProblemReview:     tasksWith(api.TaskReview),
		api.ProblemDeadLetter: tasksWith(api.TaskDeadLetter),
		api.ProblemRun:        contract.UndecidedRuns,
		api.ProblemArray:      contract.UndecidedArrays,
	} {
		found, next, err := h.Store.Tasks().Page(ctx, query(""), overviewPersonal, nil)
		if err != nil {
			return p, h.Answer(err, "list tasks that wait for a person", protocol.CodeNotFound)
		}
		p.found[kind], p.count[kind] = found, int64(len(found))
		if len(next) == 0 {
			continue
		}
		if p.count[kind], err = h.countWorkflows(ctx, query("")); err != nil {
			return p, err
		}
		p.of[kind] = map[string]int64{}
		for i, left := 0, p.count[kind]; i < len(listed) && left > 0; i++ {
			n, err := h.countWorkflows(ctx, query(listed[i].Name))
			if err != nil {
				return p, err
			}
			p.of[kind][listed[i].Name], left = n, left-n
		}
	}
	return p, nil
}

func (h *Handlers) openTasks(ctx context.Context) (int64, error) {
	return h.countWorkflows(ctx, rest.OfType(contract.TaskWorkflow,
		contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)))
}

func (h *Handlers) countWorkflows(ctx context.Context, query string) (int64, error) {
	count, err := h.Store.Count(ctx, query)
	return count, h.Answer(err, "count tasks", protocol.CodeNotFound)
}

// overviewBuilder collects the parts of an overview; they come side by side.
type overviewBuilder struct {
	api.Overview
	shown Shown
	mu    sync.Mutex
	came  map[string]time.Time // when the newest of each cluster's online agents came
}

func (b *overviewBuilder) missing(part string) { b.Missing = append(b.Missing, part) }

func (b *overviewBuilder) broken() bool { return len(b.Missing) > 0 }

func (b *overviewBuilder) cluster(view *contract.ClusterView, live store.Live) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Clusters = append(b.Clusters, b.shown.Cluster(view))
	b.Problems = append(b.Problems, diagnosis.OfCluster(&view.Cluster, b.At)...)
	b.Problems = append(b.Problems, diagnosis.SharedIDs(&view.Cluster, live.Rivals(view.Config.Name))...)
	running := live.Running(&view.Cluster)
	for i := range view.Members {
		m := &view.Members[i]
		switch status, _, _ := live.Status(m); status {
		case api.AgentOnline:
			if b.came[view.Config.Name].Before(m.StatusSince) {
				b.came[view.Config.Name] = m.StatusSince
			}
			b.Agents.Online++
			b.Agents.Slots += m.MaxTasks
		case api.AgentSuspect, api.AgentWarning:
			b.Agents.Suspect++
		case api.AgentStopping, api.AgentDraining:
			b.Agents.Draining++
		case api.AgentMaintenance:
			b.Agents.Maintenance++
		default:
			b.Agents.Offline++
			continue
		}
		b.Agents.Running += running[m.AgentID]
	}
}

func (b *overviewBuilder) unanswered(c store.ListedCluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Clusters = append(b.Clusters, b.shown.Settings(c.Config))
	b.Problems = append(b.Problems, diagnosis.Unanswered(c.Name))
}

func (b *overviewBuilder) lanes(views []contract.ClusterView, lanes []api.Lane, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.missing("what waits in the lanes")
		return
	}
	b.Lanes = append(b.Lanes, lanes...)
	for i := range lanes {
		l := &lanes[i]
		facts := diagnosis.LaneFacts{
			Cluster: l.Cluster,
			Lane:    l.Lane,
			Depth:   l.Depth,
			Needs:   l.Needs,
			Oldest:  l.OldestAge.Std(),
			Agents:  l.Agents,
			Slots:   l.Slots,
			Paused:  l.Paused != nil,
		}
		isIts := func(v contract.ClusterView) bool { return v.Config.Name == l.Cluster }
		if at := slices.IndexFunc(views, isIts); at >= 0 {
			facts.In = &views[at].Cluster
		}
		if p, there := diagnosis.OfLane(facts, b.At); there {
			b.Problems = append(b.Problems, p)
		}
	}
}

func (b *overviewBuilder) open(n int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Tasks.Open = n; err != nil {
		b.missing("how many tasks are open")
	}
}

func (b *overviewBuilder) failovers(records []api.FailoverRecord, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.missing("the newest failovers")
		return
	}
	b.Failovers = append(b.Failovers, records...)
}

// personal says which tasks, runs and arrays wait for a person, cluster by cluster. When not all were read, since when
// is not known.
func (b *overviewBuilder) personal(p personal, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.missing("which tasks wait for a person")
		return
	}
	b.Tasks.Review, b.Tasks.DeadLetter = p.count[api.ProblemReview], p.count[api.ProblemDeadLetter]
	for kind, found := range p.found {
		counts, first := map[string]int64{}, map[string]time.Time{}
		for i := range found {
			cluster, at := found[i].Cluster, waitsForPersonSince(&found[i])
			counts[cluster]++
			if first[cluster].IsZero() || !at.IsZero() && at.Before(first[cluster]) {
				first[cluster] = at
			}
		}
		if of := p.of[kind]; of != nil {
			counts, first = of, nil
		}
		for cluster, n := range counts {
			if n > 0 {
				b.Problems = append(b.Problems, diagnosis.OfUndecided(cluster, kind, n, first[cluster]))
			}
		}
	}
}

func waitsForPersonSince(t *store.Task) time.Time {
	if t.DeadLetter != nil {
		return t.DeadLetter.Since
	}
	return t.MarkedAt
}

func (b *overviewBuilder) finish() api.Overview {
	for i := range b.Failovers {
		r := &b.Failovers[i]
		// A task that waits for an agent which came after the failover is its lane's problem.
		taken := r.Status == api.FailoverNoTarget && b.came[r.Cluster].After(r.NoticedAt)
		if p, there := diagnosis.OfFailover(r, b.At); there && !taken {
			b.Problems = append(b.Problems, p)
		}
	}
	b.Tasks.Open = max(0, b.Tasks.Open-b.Tasks.Review-b.Tasks.DeadLetter)
	diagnosis.Sort(b.Problems)
	slices.SortFunc(b.Clusters, func(x, y api.Cluster) int { return strings.Compare(x.Name, y.Name) })
	slices.Sort(b.Missing)
	return b.Overview
}

// overviewUnhandled is how many of the tasks that no agent could run are read.
const overviewUnhandled = 200

// unhandled are the open tasks that no agent could run when they were last offered.
type unhandled struct {
	byCluster map[string][]diagnosis.UnhandledTask
	more      bool // there are others, submitted before these
}

func (h *Handlers) unhandledTasks(ctx context.Context) (u unhandled, err error) {
	query := contract.TaskQuery(&api.TaskFilter{Status: contract.TaskUnhandled})
	tasks, next, err := h.Store.Tasks().Page(ctx, query, overviewUnhandled, nil)
	if err != nil {
		return unhandled{}, h.Answer(err, "list tasks that no agent handles", protocol.CodeNotFound)
	}
	u = unhandled{byCluster: map[string][]diagnosis.UnhandledTask{}, more: len(next) > 0}
	for i := range tasks {
		t := &tasks[i]
		task := diagnosis.UnhandledTask{Type: t.Type, Agent: t.Agent, Capabilities: t.RequiredCapabilities,
			Safety: t.Safety, Place: t.Place, Since: t.MarkedAt}
		u.byCluster[t.Cluster] = append(u.byCluster[t.Cluster], task)
	}
	return u, nil
}

// unhandled reports the tasks that no agent of their cluster can run now: one may have come since they were offered.
func (b *overviewBuilder) unhandled(views []contract.ClusterView, u unhandled, err error) {
	if err != nil {
		b.missing("which tasks no agent handles")
		return
	}
	for i := range views {
		problems := diagnosis.OfUnhandled(&views[i].Cluster, u.byCluster[views[i].Config.Name])
		for j := range problems {
			if u.more {
				problems[j].What = "at least " + problems[j].What // the others were not read
			}
		}
		b.Problems = append(b.Problems, problems...)
	}
}

// selfCareRuns is whether healing, and the rules of scaling, run by themselves.
type selfCareRuns struct{ healing, scaling diagnosis.ScheduleRun }

// loops reads both side by side. A loop that cannot be read counts as running, and is listed as missing.
func (b *overviewBuilder) loops(ctx context.Context, h *Handlers) (runs selfCareRuns) {
	var both sync.WaitGroup
	read := func(id, part string, into *diagnosis.ScheduleRun) {
		run, err := h.ScheduleRun(ctx, id)
		if *into = run; err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.missing(part)
		}
	}
	both.Go(func() { read(contract.HealingScheduleID, "whether healing runs", &runs.healing) })
	both.Go(func() { read(contract.ScalingScheduleID, "whether the rules of scaling run", &runs.scaling) })
	both.Wait()
	return runs
}

// selfCare finds what is wrong with healing and scaling, in what was read for the rest of the overview.
func (b *overviewBuilder) selfCare(views []contract.ClusterView, live store.Live, runs selfCareRuns) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byCluster := map[string][]*api.Lane{}
	for i := range b.Lanes {
		byCluster[b.Lanes[i].Cluster] = append(byCluster[b.Lanes[i].Cluster], &b.Lanes[i])
	}
	facts := make([]healing.ClusterFacts, len(views))
	ruled := 0
	for i := range views {
		c := &views[i].Cluster
		facts[i] = healing.ClusterFacts{Cluster: *c, CreatedAt: views[i].CreatedAt}
		if !c.Config.Scaling.On() {
			continue
		}
		if c.Config.Scaling.Mode == api.ScalingAuto {
			ruled++
		}
		backlog, oldest := scaling.ScalingFacts{Agents: live.Activities(c)}, api.Duration(0)
		counts := map[string]bool{}
		for _, lane := range scaling.ScalingLanes(c) {
			counts[lane] = true
		}
		for _, lane := range byCluster[c.Config.Name] {
			if counts[lane.Lane] && lane.Depth > 0 {
				backlog.Queue += lane.Depth
				oldest = max(oldest, lane.OldestAge)
			}
		}
		b.Problems = append(b.Problems, diagnosis.OfScaling(c, &backlog, oldest.Std(), b.At)...)
	}
	b.Problems = append(b.Problems, diagnosis.OfHealing(facts, runs.healing, b.At)...)
	if p, there := diagnosis.OfScalingRun(runs.scaling, ruled); there {
		b.Problems = append(b.Problems, p)
	}
}
