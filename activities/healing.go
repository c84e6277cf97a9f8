package activities

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

const (
	// suspectTasks bounds the open tasks of one cluster that one cycle looks at for attempts that nobody runs.
	suspectTasks = 1000
	// suspectAge is how long an attempt must at least have given no sign of life: in the hub it may be on its way.
	suspectAge = 5 * time.Second
	// pastActions bounds the earlier actions of one cluster that count.
	pastActions = 500
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
	shortest, stuckAfter := time.Duration(0), fleet.MaxReduceFor
	var due []*fleet.ClusterFacts
	for i := range facts.Clusters {
		c := &facts.Clusters[i]
		policy := c.Config.SelfHealing.WithDefaults()
		if policy.Mode == fleet.HealingOff {
			continue
		}
		if interval := policy.CycleInterval.Std(); shortest == 0 || interval < shortest {
			shortest = interval
		}
		if in.Every != 0 && !fleet.DueForHealing(policy.CycleInterval.Std(), in.Every.Std(), in.At) {
			continue
		}
		stuckAfter = min(stuckAfter, policy.StuckAfter.Std())
		found.Clusters++
		found.Agents += len(c.Members)
		due = append(due, c)
	}
	if shortest == 0 {
		shortest = fleet.DefaultHealingInterval
	}
	if in.Every != 0 && shortest != in.Every.Std() {
		found.Every = fleet.Duration(shortest)
	}
	stuck, err := a.stuck(ctx, due, stuckAfter, facts.At)
	if err != nil {
		return found, err
	}
	for _, c := range due {
		one, interesting := fleet.ExamineForHealing(c, facts.At)
		one.Stuck = stuck[c.Config.Name]
		if !interesting && len(one.Stuck) == 0 {
			continue
		}
		if in.DryRun {
			one.Policy.Mode = fleet.HealingDryRun
		}
		if !one.LastUpset.IsZero() {
			if one.Suspects, err = a.suspects(ctx, &one, facts.At); err != nil {
				return found, err
			}
		}
		if len(one.Agents) == 0 && one.Serving >= one.Wanted && len(one.Suspects) == 0 && len(one.Stuck) == 0 {
			continue // it was upset and is well
		}
		if one.Past, err = a.past(ctx, c.Config.Name, facts.At); err != nil {
			return found, err
		}
		found.Cases = append(found.Cases, one)
	}
	a.Cycles.cycle(time.Since(began))
	return found, nil
}

// past are the newest actions and recorded skips of a cluster within a day.
func (a *Control) past(ctx context.Context, cluster string, now time.Time) ([]fleet.HealingPast, error) {
	var past []fleet.HealingPast
	query := fmt.Sprintf("%s AND %s AND StartTime >= '%s'", contract.Equals("WorkflowType",
		contract.HealingActionWorkflow),
		contract.Equals(contract.AttrCluster.GetName(), cluster), now.Add(-24*time.Hour).UTC().Format(time.RFC3339))
	err := a.each(ctx, query, pastActions, func(info *workflowpb.WorkflowExecutionInfo) {
		var note contract.HealingNote
		if contract.Decode(info.GetMemo().GetFields()[contract.MemoHealing], &note) {
			past = append(past, fleet.HealingPast{Type: note.Type, TargetID: note.TargetID, Verdict: note.Verdict,
				At:      note.At,
				Running: info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING})
		}
	})
	return past, err
}

// suspects are the attempts of a cluster's open tasks that count as running and gave no sign of life for long.
func (a *Control) suspects(ctx context.Context, c *fleet.HealingCase, now time.Time) ([]fleet.Orphan, error) {
	tasks, err := a.tasks().Delivering(ctx, c.Cluster, suspectTasks)
	if err != nil {
		return nil, fmt.Errorf("look for what is wrong: %w", err)
	}
	least := max(c.Policy.Patience.Std(), suspectAge)
	var suspects []fleet.Orphan
	for i := range tasks {
		if s := runningAlone(&tasks[i], now.Add(-least)); s != nil {
			suspects = append(suspects, *s)
		}
	}
	return suspects, nil
}

// runningAlone is the attempt of a task that counts as running and gave its last sign of life before a time; nil: none.
func runningAlone(task *store.Task, before time.Time) *fleet.Orphan {
	d := task.Delivery
	if d == nil || d.State != enumspb.PENDING_ACTIVITY_STATE_STARTED || !d.SeenAt.Before(before) {
		return nil
	}
	return &fleet.Orphan{
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
func (a *Control) TuneHealing(ctx context.Context, every fleet.Duration) error {
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
