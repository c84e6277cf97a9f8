package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/sdk/api"
)

// heldLooks bounds the open tasks and runs of a cluster that HeldAt describes, and heldBytes the checkpoints of the
// attempts that it finds.
const heldLooks, heldBytes = 5000, 64 << 20

// Held are tasks with an attempt that a hub had.
type Held []Task

// HeldAt finds the attempts that a hub had by its last report: the only trace of them when the hub is gone. The agent
// is unknown for attempts that began in the hub's last second or that no agent had yet. It looks at heldLooks open
// tasks and runs of the cluster at most, the newest first, and leaves out attempts whose checkpoints do not fit: to end
// one without its newest checkpoint would lose work. Those that it leaves out wait for their backstop.
func (s Tasks) HeldAt(ctx context.Context, cluster, hub string) (Held, error) {
	var mu sync.Mutex
	room := heldBytes
	return s.Delivering(ctx, cluster, heldLooks, func(t *Task) bool {
		a := t.Running()
		if a == nil || a.Hub != hub {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		n := len(t.Delivery.Report.Checkpoint)
		if n > room {
			return false
		}
		room -= n
		return true
	})
}

// mostAttempts bounds what Attempts gives beside one of each agent, in bytes of JSON: a signal has 2 MiB.
const mostAttempts = 512 << 10

// Attempts are those of known agents, by agent, for the records of their failovers: as many as fit into a signal, and
// one of each agent.
func (h Held) Attempts() map[string][]cluster.HeldAttempt {
	if len(h) == 0 {
		return nil
	}
	attempts, bytes := map[string][]cluster.HeldAttempt{}, 0
	for i := range h {
		a := h[i].Running()
		known := attempts[a.AgentID]
		if a.AgentID == "" || len(known) == api.MaxTransfers || len(known) > 0 && bytes > mostAttempts {
			continue
		}
		if len(known) > 0 {
			bytes += api.JSONSize(h[i].ID) + 32
		}
		attempts[a.AgentID] = append(known, cluster.HeldAttempt{TaskID: h[i].ID, Attempt: a.Number})
	}
	return attempts
}

// HolderOf is the hub whose heartbeat of an attempt Temporal took last, and when; empty: none did. open is false of an
// attempt that has ended.
func (s Tasks) HolderOf(
	ctx context.Context, id string, number int,
) (hub string, seen time.Time, open bool, err error) {
	workflowID, key := contract.Locate(id)
	tasks, err := s.DeliveringIn(ctx, workflowID, "")
	for i := range tasks {
		_, of := contract.Locate(tasks[i].ID)
		if running := tasks[i].Running(); of == key && running != nil && running.Number == number {
			return running.Hub, tasks[i].Delivery.SeenAt, true, nil
		}
	}
	return "", seen, false, err
}

// EndHeld ends attempts that their hub no longer knows, except those of agents with a disconnect grace: their heartbeat
// timeout is longer by the grace, and ends them if no agent brings them back. lease is how long their agents may go on
// with fenced work; nil: unknown. It returns how many it ended.
func (s Tasks) EndHeld(
	ctx context.Context, held Held, by, reason string, lease *api.Duration,
) (ended int, err error) {
	var count atomic.Int64
	errs := make([]error, len(held))
	parallel.Each(len(held), atOnce, func(i int) {
		t, now := &held[i], time.Now().UTC()
		if t.Delivery.Report.Awaits {
			return
		}
		report := t.Delivery.Report // with its newest checkpoint
		report.Hub, report.Outcome, report.Begun, report.Reason = t.Running().Hub, api.AttemptLost, true, reason
		report.EndedAt, report.NoticedAt, report.LeaseRemaining = &now, &now, lease
		here, err := s.EndAttempt(ctx, t.ID, t.RunID, t.Running().Number, by, report)
		if errs[i] = err; here {
			count.Add(1)
		}
	})
	for _, failed := range errs {
		if failed != nil {
			err = failed
		}
	}
	return int(count.Load()), err
}

// EndAttempt ends a task's attempt without its hub: its task goes through the one gate of every redelivery then. It
// reports false when the attempt had ended.
func (s Tasks) EndAttempt(
	ctx context.Context, task, workflowRunID string, number int, by string, report contract.AttemptReport,
) (bool, error) {
	details, err := AttemptPayloads(report, nil)
	if err != nil {
		return false, err
	}
	workflowID, _ := contract.Locate(task)
	activity := contract.AttemptActivityID(task, number)
	_, err = s.Client.WorkflowService().RespondActivityTaskFailedById(ctx,
		&workflowservice.RespondActivityTaskFailedByIdRequest{
			Namespace:  s.Namespace,
			WorkflowId: workflowID,
			RunId:      workflowRunID,
			ActivityId: activity,
			Identity:   by,
			Failure:    attemptFailure("mainstay", "lost: "+report.Reason, details),
		})
	if err != nil && KindOf(err) != NotFound {
		return false, fmt.Errorf("end %s of task %s: %w", activity, task, err)
	}
	return err == nil, nil
}
