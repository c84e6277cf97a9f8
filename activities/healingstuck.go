package activities

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

// oldTasks bounds the old open tasks that one cycle looks at.
const oldTasks = 1000

// stuck finds what waits for a person, and lanes that move nothing, by cluster. While no run waits for a person and no
// open task is old, it costs one list and one count.
func (a *Control) stuck(
	ctx context.Context, clusters []*fleet.ClusterFacts, after time.Duration, now time.Time,
) (map[string][]fleet.Stuck, error) {
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
	found := map[string][]fleet.Stuck{}
	for _, c := range clusters {
		w := waiting[c.Config.Name]
		if w == nil {
			continue
		}
		limit := now.Add(-c.Config.SelfHealing.WithDefaults().StuckAfter.Std())
		if w.reviews > 0 && w.firstReview.Before(limit) {
			what := waitingTasksText(w.reviews)
			if w.runs > 0 {
				what = fmt.Sprintf("%s and %s wait", fleet.Count(w.reviews-w.runs, "task"), fleet.Count(w.runs, "run"))
			}
			found[c.Config.Name] = append(found[c.Config.Name],
				fleet.Stuck{What: fleet.StuckReviews, Count: w.reviews, Since: w.firstReview,
					Reason: fmt.Sprintf("%s for a person's decision, the first since %s", what,
						w.firstReview.UTC().Format(time.RFC3339))})
		}
		if w.others == 0 {
			continue
		}
		for _, lane := range lanesOfCluster(&c.Cluster, w.pinned) {
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
	case run, task.Status == fleet.TaskReview:
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
	case task.Status == fleet.TaskDeadLetter: // kept on purpose
	default:
		w.others++
		if task.Agent != "" {
			w.pinned[task.Agent] = true
		}
	}
}

// lanesOfCluster are the lanes in which old tasks may wait and that nobody has paused.
func lanesOfCluster(c *fleet.Cluster, pinned map[string]bool) []string {
	whole, paused := c.Pauses.Lanes()
	if whole {
		return nil
	}
	lanes := []string{fleet.DefaultLane}
	for _, set := range c.CapabilitySets {
		lanes = append(lanes, fleet.CapabilityLane(set))
	}
	for i := range c.Fits {
		lanes = append(lanes, c.Fits[i].Lane)
	}
	for shard := range c.Shards {
		lanes = append(lanes, fleet.ShardLane(shard))
	}
	for agent := range pinned {
		lanes = append(lanes, fleet.AgentLane(agent))
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
	return fleet.Count(n, "task") + fleet.Plural(n, " waits", " wait")
}

// stuckLane reports whether tasks wait in a lane for long and nothing takes them.
func (a *Control) stuckLane(
	ctx context.Context, cluster, lane string, after time.Duration, now time.Time,
) (fleet.Stuck, bool) {
	read, err := a.store().LaneStats(ctx, contract.LaneQueue(cluster, lane))
	stats := read.Total
	age := stats.GetApproximateBacklogAge().AsDuration()
	if err != nil || stats.GetApproximateBacklogCount() == 0 || age < after || stats.GetTasksDispatchRate() > 0 {
		return fleet.Stuck{}, false
	}
	return fleet.Stuck{What: fleet.StuckLane + lane, Count: stats.GetApproximateBacklogCount(),
		Since: now.Add(-age).UTC(),
		Reason: fmt.Sprintf("about %s in lane %s, the first for %s, and no agent takes any",
			waitingTasksText(stats.GetApproximateBacklogCount()), lane, age.Round(time.Second))}, true
}
