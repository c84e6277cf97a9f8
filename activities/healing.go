package activities

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// suspectTasks bounds the open tasks of one cluster that one cycle looks at for attempts that nobody runs.
	suspectTasks = 1000
	// mostSuspects bounds the attempts that the hubs of one cluster are asked for in one cycle.
	mostSuspects = 4000
	// lookLimit bounds the look at one cluster, which may also take half of the time that is left: one with many and
	// large attempts leaves time for the others.
	lookLimit = 10 * time.Second
	// suspectAge is how long an attempt must at least have given no sign of life: in the hub it may be on its way.
	suspectAge = 5 * time.Second
	// pastActions bounds the earlier actions of one cluster that count.
	pastActions = 500
	// mostStuck bounds the lanes of one cluster that are reported.
	mostStuck = 100
)

// ExamineFleet looks at all clusters that are due, or the one named, and returns those in which something may be wrong.
// While nothing is, it costs one query of each cluster's workflow, two lists, one count and one look at the live
// registry, and no write.
func (a *Control) ExamineFleet(ctx context.Context, in contract.ExamineInput) (contract.Examined, error) {
	began := time.Now()
	var only []string
	if in.Cluster != "" {
		only = []string{in.Cluster}
	}
	facts, err := a.clusters().Facts(ctx, only...)
	if err != nil {
		return contract.Examined{}, err
	}
	found := contract.Examined{Silent: facts.Silent}
	shortest, stuckAfter := time.Duration(0), cluster.MaxReduceFor
	var due []*healing.ClusterFacts
	for i := range facts.Clusters {
		c := &facts.Clusters[i]
		policy := c.Config.SelfHealing.WithDefaults()
		if policy.Mode == api.HealingOff {
			continue
		}
		if interval := policy.CycleInterval.Std(); shortest == 0 || interval < shortest {
			shortest = interval
		}
		if in.Every != 0 && !healing.DueForHealing(policy.CycleInterval.Std(), in.Every.Std(), in.At) {
			continue
		}
		stuckAfter = min(stuckAfter, policy.StuckAfter.Std())
		found.Clusters++
		found.Agents += len(c.Members)
		due = append(due, c)
	}
	shortest = cmp.Or(shortest, api.DefaultHealingInterval)
	if in.Every != 0 && shortest != in.Every.Std() {
		found.Every = api.Duration(shortest)
	}
	stuck, err := a.stuck(ctx, due, stuckAfter, facts.At)
	if err != nil {
		return found, err
	}
	for _, c := range due {
		one, interesting := healing.ExamineForHealing(c, facts.At)
		one.Stuck = stuck[c.Config.Name]
		if !interesting && len(one.Stuck) == 0 {
			continue
		}
		if in.DryRun {
			one.Policy.Mode = api.HealingDryRun
		}
		wrong, err := a.complete(ctx, &one, facts.At)
		if err != nil && (in.Cluster != "" || ctx.Err() != nil) {
			return found, err
		}
		if err != nil {
			found.Silent = append(found.Silent, one.Cluster)
		}
		if err != nil || !wrong {
			continue
		}
		one.PastFull = len(one.Past) == pastActions && !in.DryRun // who tries by hand wants to know
		found.Cases = append(found.Cases, one)
	}
	found.Shorten()
	a.Cycles.cycle(time.Since(began))
	return found, nil
}

// complete adds to a case what Temporal knows of its cluster's work and of earlier actions. It reports whether
// something is wrong: a cluster that was upset may be well.
func (a *Control) complete(ctx context.Context, c *healing.HealingCase, now time.Time) (wrong bool, err error) {
	limit := lookLimit
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !c.LastUpset.IsZero() {
		if c.Suspects, err = a.suspects(ctx, c, now); err != nil {
			return false, err
		}
	}
	if len(c.Agents) == 0 && c.Serving >= c.Wanted && len(c.Suspects) == 0 && len(c.Stuck) == 0 {
		return false, nil
	}
	c.Past, err = a.past(ctx, c.Cluster, now)
	return true, err
}

// past are the newest actions and recorded skips of a cluster within a day.
func (a *Control) past(ctx context.Context, cluster string, now time.Time) ([]healing.HealingPast, error) {
	var past []healing.HealingPast
	query := fmt.Sprintf("%s AND %s AND StartTime >= '%s'", contract.Equals("WorkflowType",
		contract.HealingActionWorkflow),
		contract.Equals(contract.AttrCluster.GetName(), cluster), now.Add(-24*time.Hour).UTC().Format(time.RFC3339))
	err := a.each(ctx, query, pastActions, func(info *workflowpb.WorkflowExecutionInfo) {
		var note contract.HealingNote
		if contract.Decode(info.GetMemo().GetFields()[contract.MemoHealing], &note) {
			past = append(past, healing.HealingPast{Type: note.Type, TargetID: note.TargetID, Verdict: note.Verdict,
				At:      note.At,
				Running: info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING})
		}
	})
	return past, err
}

// suspects are the attempts of a cluster's open tasks that count as running and gave no sign of life for long.
func (a *Control) suspects(ctx context.Context, c *healing.HealingCase, now time.Time) ([]api.Orphan, error) {
	least := max(c.Policy.Patience.Std(), suspectAge)
	var mu sync.Mutex
	var suspects []api.Orphan
	_, err := a.tasks().Delivering(ctx, c.Cluster, suspectTasks, func(t *store.Task) bool {
		mu.Lock()
		defer mu.Unlock()
		if s := runningAlone(t, now.Add(-least)); s != nil && len(suspects) < mostSuspects {
			suspects = append(suspects, *s)
		}
		return false // with its checkpoint it may be large
	})
	if err != nil {
		return nil, fmt.Errorf("look for what is wrong: %w", err)
	}
	slices.SortFunc(suspects, func(a, b api.Orphan) int {
		return cmp.Or(strings.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Attempt, b.Attempt))
	})
	return suspects, nil
}

// runningAlone is the attempt of a task that counts as running and gave its last sign of life before a time; nil: none.
// One whose agent may be away for long has a heartbeat timeout for that.
func runningAlone(task *store.Task, before time.Time) *api.Orphan {
	d := task.Delivery
	if d == nil || d.State != enumspb.PENDING_ACTIVITY_STATE_STARTED || !d.SeenAt.Before(before) || d.Report.Awaits {
		return nil
	}
	return &api.Orphan{
		TaskID:  task.ID,
		Attempt: d.Attempt.Number,
		RunID:   task.RunID,
		Since:   d.SeenAt,
		Hub:     d.Hub,
		AgentID: d.Attempt.AgentID,
	}
}

// each calls do for the workflows that a visibility query finds, up to a bound.
func (a *Control) each(ctx context.Context, query string, most int, do func(*workflowpb.WorkflowExecutionInfo)) error {
	n := 0
	for info, err := range a.store().Workflows(ctx, query) {
		if err != nil {
			return fmt.Errorf("look for what is wrong: %w", err)
		}
		do(info)
		if n++; n == most {
			break
		}
	}
	return nil
}

// TuneHealing brings the schedule to an interval, if it is another.
func (a *Control) TuneHealing(ctx context.Context, every api.Duration) error {
	handle := a.Client.ScheduleClient().GetHandle(ctx, contract.HealingScheduleID)
	err := handle.Update(ctx,
		client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			s := in.Description.Schedule
			action, ok := s.Action.(*client.ScheduleWorkflowAction)
			if !ok {
				return nil, fmt.Errorf("the schedule's action is not Mainstay's")
			}
			action.Args = []any{contract.HealingCycleInput{Every: every}}
			s.Spec = &client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every.Std()}}}
			return &client.ScheduleUpdate{Schedule: &s}, nil
		}})
	if err != nil {
		return fmt.Errorf("change the interval of the schedule %s: %w", contract.HealingScheduleID, err)
	}
	return nil
}

// AwaitFailover watches a failover that was asked for until it has ended, and returns its record. It changes nothing.
func (a *Control) AwaitFailover(ctx context.Context, in contract.AwaitFailoverInput) (api.FailoverRecord, error) {
	var record api.FailoverRecord
	since, id := time.Now(), contract.FailoverID(in.Cluster, in.AgentID, in.Epoch)
	err := watchUntil(ctx, watchMost, func() (ended bool, err error) {
		view, err := a.view(ctx, in.Cluster)
		if err != nil {
			return false, err
		}
		if m := view.Member(in.AgentID); m != nil && m.Epoch == in.Epoch && m.Failovers > 0 {
			id = contract.NextFailoverID(in.Cluster, m, m.Failovers-1)
		}
		record, ended, err = a.failover(ctx, contract.FailoverWorkflowID(id), &in, since)
		return ended, err
	})
	return record, err
}

// beginLimit is how long a cluster may take to begin a failover. One that was not begun then was refused, for a reason
// that may be gone by now.
const beginLimit = 5 * time.Second

// failover looks at the failover once. One that was under way before it was asked for takes its place, since a session
// has only one at a time.
func (a *Control) failover(
	ctx context.Context, id string, in *contract.AwaitFailoverInput, since time.Time,
) (record api.FailoverRecord, ended bool, err error) {
	info, err := a.store().Describe(ctx, id)
	switch {
	case err != nil && store.KindOf(err) != store.NotFound:
		return record, false, fmt.Errorf("look at the failover: %w", err)
	case err == nil && info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		in.After = info.GetStartTime().AsTime()
		return record, false, nil
	case err != nil, info.GetStartTime().AsTime().Before(in.After):
		if err := a.stillThere(ctx, *in); err != nil || time.Since(since) < beginLimit {
			return record, false, err
		}
		return record, false, temporal.NewNonRetryableApplicationError(
			"the cluster did not begin the failover; the next cycle decides again", contract.Refused, nil)
	}
	record, why := store.EndRecord[api.FailoverRecord](ctx, a.store(), id, info.GetExecution().GetRunId())
	if why != "" {
		return record, false, fmt.Errorf("read the failover: %s", why)
	}
	return record, true, nil
}

// stillThere fails when the cluster refuses the failover, as when the agent's session is not what it was: it does not
// come then.
func (a *Control) stillThere(ctx context.Context, in contract.AwaitFailoverInput) error {
	view, err := a.view(ctx, in.Cluster)
	if err != nil {
		return err
	}
	if err := healing.CheckHealing(&view.Cluster, in.AgentID, "", healing.HealingCheck{Type: api.HealFailover,
		Epoch: in.Epoch}); err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), contract.Refused, nil)
	}
	return nil
}

// EndOrphan ends an attempt that no agent runs, unless it has given a sign of life since. Its task then passes the same
// gate as every redelivery. It returns the outcome.
func (a *Control) EndOrphan(ctx context.Context, in contract.EndOrphanInput) (string, error) {
	o := in.Orphan
	id, _ := contract.Locate(o.TaskID)
	tasks, err := a.tasks().DeliveringIn(ctx, id, o.RunID)
	if store.KindOf(err) == store.NotFound {
		return "the task has ended meanwhile", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at task %s: %w", o.TaskID, err)
	}
	var now *api.Orphan
	for i := range tasks {
		if tasks[i].ID == o.TaskID {
			now = runningAlone(&tasks[i], time.Now())
		}
	}
	if now == nil || now.Attempt != o.Attempt || !now.Since.Equal(o.Since) {
		return "the attempt has ended or gave a sign of life meanwhile", nil
	}
	ended := time.Now().UTC()
	report := contract.AttemptReport{AgentID: o.AgentID, Hub: o.Hub, Outcome: api.AttemptLost, Begun: true,
		EndedAt: &ended,
		Reason:  "healing found that no agent runs it, since " + o.Since.Format(time.RFC3339)}
	switch here, err := a.tasks().EndAttempt(ctx, o.TaskID, o.RunID, o.Attempt, "healing", report); {
	case err != nil:
		return "", err
	case !here:
		return "the attempt has ended meanwhile", nil
	}
	return "the attempt was ended; the task goes on as its retry_safety says", nil
}

// AskScale asks a cluster to check the number of its agents, and to act if it is wrong.
func (a *Control) AskScale(ctx context.Context, clusterName string) (cluster.ScalingDecision, error) {
	return askCluster(ctx, a.Client, clusterName, contract.ScaleUpdate, contract.ScaleRequest{})
}

// oldTasks bounds the old open tasks that one cycle looks at.
const oldTasks = 1000

// stuck finds what waits for a person, and lanes that move nothing, by cluster. While no run waits for a person and no
// open task is old, it costs one list and one count.
func (a *Control) stuck(
	ctx context.Context, clusters []*healing.ClusterFacts, after time.Duration, now time.Time,
) (map[string][]healing.Stuck, error) {
	old := fmt.Sprintf("%s AND %s AND StartTime < '%s'", contract.Equals("WorkflowType", contract.TaskWorkflow),
		contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), now.Add(-after).UTC().Format(time.RFC3339))
	count, err := a.store().Count(ctx, old)
	if err != nil {
		return nil, fmt.Errorf("count the old tasks: %w", err)
	}
	waiting := map[string]*waitingTasks{}
	note := func(info *workflowpb.WorkflowExecutionInfo) { noteOld(waiting, info) }
	if err := a.each(ctx, contract.UndecidedRuns(""), oldTasks, note); err != nil {
		return nil, err
	}
	if count > 0 {
		if err := a.each(ctx, old, oldTasks, note); err != nil {
			return nil, err
		}
	}
	found := map[string][]healing.Stuck{}
	for _, c := range clusters {
		w := waiting[c.Config.Name]
		if w == nil {
			continue
		}
		limit := now.Add(-c.Config.SelfHealing.WithDefaults().StuckAfter.Std())
		if w.reviews > 0 && w.firstReview.Before(limit) {
			what := waitingTasksText(w.reviews)
			if w.runs > 0 {
				what = fmt.Sprintf("%s and %s wait", api.Count(w.reviews-w.runs, "task"), api.Count(w.runs, "run"))
			}
			found[c.Config.Name] = append(found[c.Config.Name],
				healing.Stuck{What: healing.StuckReviews, Count: w.reviews, Since: w.firstReview,
					Reason: fmt.Sprintf("%s for a person's decision, the first since %s", what,
						w.firstReview.UTC().Format(time.RFC3339))})
		}
		if w.others == 0 {
			continue
		}
		for _, lane := range lanesOfCluster(&c.Cluster, w.pinned) {
			if len(found[c.Config.Name]) >= mostStuck {
				break
			}
			if s, stuck := a.stuckLane(ctx, c.Config.Name, lane, now.Sub(limit), now); stuck {
				found[c.Config.Name] = append(found[c.Config.Name], s)
			}
		}
	}
	return found, ctx.Err()
}

// waitingTasks are the old open tasks of one cluster, and the runs that wait for a person.
type waitingTasks struct {
	reviews, others int64           // reviews has the runs too
	runs            int64           // that wait for a person
	firstReview     time.Time       // since when the first of them waits for a person
	pinned          map[string]bool // agents that tasks are pinned to
}

func noteOld(waiting map[string]*waitingTasks, info *workflowpb.WorkflowExecutionInfo) {
	task := store.OfInfo(info)
	w := waiting[task.Cluster]
	if w == nil {
		w = &waitingTasks{pinned: map[string]bool{}}
		waiting[task.Cluster] = w
	}
	run := info.GetType().GetName() == contract.RunWorkflow
	switch {
	case run, task.Status == api.TaskReview:
		w.reviews++
		if run {
			w.runs++
		}
		since := task.MarkedAt
		if since.IsZero() {
			since = info.GetStartTime().AsTime()
		}
		if w.firstReview.IsZero() || since.Before(w.firstReview) {
			w.firstReview = since
		}
	case task.Status == api.TaskDeadLetter: // kept on purpose
	default:
		w.others++
		if task.Agent != "" {
			w.pinned[task.Agent] = true
		}
	}
}

// lanesOfCluster are the lanes in which old tasks may wait and that nobody has paused.
func lanesOfCluster(c *cluster.Cluster, pinned map[string]bool) []string {
	whole, paused := c.Pauses.Lanes()
	if whole {
		return nil
	}
	lanes := []string{task.DefaultLane}
	for _, set := range c.CapabilitySets {
		lanes = append(lanes, task.CapabilityLane(set))
	}
	for i := range c.Fits {
		lanes = append(lanes, c.Fits[i].Lane)
	}
	for shard := range c.Shards {
		lanes = append(lanes, task.ShardLane(shard))
	}
	for _, agent := range slices.Sorted(maps.Keys(pinned)) {
		lanes = append(lanes, task.AgentLane(agent))
	}
	held := map[string]bool{}
	for _, lane := range paused {
		held[lane] = true
	}
	kept := lanes[:0]
	for _, lane := range lanes {
		if !held[lane] {
			kept = append(kept, lane)
		}
	}
	return kept
}

// waitingTasksText is "1 task waits" or "2 tasks wait".
func waitingTasksText(n int64) string {
	return api.Count(n, "task") + api.Plural(n, " waits", " wait")
}

// stuckLane reports whether tasks wait in a lane for long and nothing takes them.
func (a *Control) stuckLane(
	ctx context.Context, cluster, lane string, after time.Duration, now time.Time,
) (healing.Stuck, bool) {
	read, err := a.store().LaneStats(ctx, contract.LaneQueue(cluster, lane))
	stats := read.Total
	age := stats.GetApproximateBacklogAge().AsDuration()
	if err != nil || stats.GetApproximateBacklogCount() == 0 || age < after || stats.GetTasksDispatchRate() > 0 {
		return healing.Stuck{}, false
	}
	return healing.Stuck{What: healing.StuckLane + lane, Count: stats.GetApproximateBacklogCount(),
		Since: now.Add(-age).UTC(),
		Reason: fmt.Sprintf("about %s in lane %s, the first for %s, and no agent takes any",
			waitingTasksText(stats.GetApproximateBacklogCount()), lane, age.Round(time.Second))}, true
}
