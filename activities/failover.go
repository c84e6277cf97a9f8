package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// watchFirst and watchMost space the looks at tasks that have not moved yet.
const (
	watchFirst = 100 * time.Millisecond
	watchMost  = 2 * time.Second
	// watchRest is how many times as long as it took a look at a cluster is followed by none.
	watchRest = 3
	// awaitedMargin is how long after its time an attempt that was held for its agent has ended, if the agent is away.
	awaitedMargin = 5 * time.Second
)

// AwaitTransfers looks at the failed agent's tasks and roles until all have moved, or the time is over. It changes
// nothing, so it may be repeated.
func (a *Control) AwaitTransfers(
	ctx context.Context, in contract.AwaitTransfersInput,
) (contract.AwaitTransfersResult, error) {
	deadline := time.Now().Add(in.Timeout.Or(api.DefaultTransferTimeout))
	w := watch{Control: a, in: in, looked: time.Now(), transfers: make([]api.Transfer, len(in.Attempts)),
		moved: make([]bool, len(in.Attempts))}
	err := watchUntil(ctx, watchMost, func() (bool, error) {
		late := time.Now().After(deadline)
		missing, err := w.look(ctx, late)
		if err != nil {
			return false, err
		}
		if missing == "" || late {
			w.result.Incomplete, w.result.Transfers = missing, w.transfers
			w.result.ResumedAt = w.resumedAt()
		}
		return missing == "" || late, nil
	})
	return w.result, err
}

// watch is one call of AwaitTransfers.
type watch struct {
	*Control
	in        contract.AwaitTransfersInput
	looked    time.Time // at the roles, or when the watch began
	transfers []api.Transfer
	moved     []bool
	ledAt     time.Time // when the new leader was elected
	result    contract.AwaitTransfersResult
}

// look updates the result and names what has not moved yet. If late, it leaves out work that still waits for its agent.
func (w *watch) look(ctx context.Context, late bool) (missing string, err error) {
	if w.in.WasLeader || len(w.in.Shards) > 0 {
		if missing, err = w.lookAtRoles(ctx); err != nil {
			return missing, err
		}
	}
	waiting := 0
	for i, held := range w.in.Attempts {
		if w.moved[i] {
			continue
		}
		if w.transfers[i], w.moved[i], err = w.lookAtTask(ctx, held); err != nil {
			return missing, err
		}
		if !w.moved[i] && !(late && time.Now().Before(held.AwaitedUntil)) {
			waiting++
		}
	}
	if waiting > 0 {
		missing = fmt.Sprintf("%d of %d tasks wait for an agent", waiting, len(w.in.Attempts))
	}
	return missing, nil
}

func (w *watch) lookAtRoles(ctx context.Context) (missing string, err error) {
	view, err := w.views.since(ctx, w.in.Cluster, w.looked, watchRest, w.view)
	if err != nil {
		return "", err
	}
	w.looked = time.Now()
	if w.in.WasLeader {
		if view.Leader == "" || view.LeaderEpoch <= w.in.Epoch {
			missing = "the cluster has no new leader"
		} else if view.Leader != w.in.FailedAgent {
			w.result.Promoted, w.result.Epoch, w.ledAt = view.Leader, view.LeaderEpoch, view.LeaderSince
		}
	}
	w.result.Shards = nil
	for _, shard := range w.in.Shards {
		if shard >= len(view.Shards) || view.Shards[shard].Owner == "" {
			missing = "not every shard has a new owner"
			continue
		}
		w.result.Shards = append(w.result.Shards, api.ShardMove{Shard: shard, From: w.in.FailedAgent,
			To: view.Shards[shard].Owner, Epoch: view.Shards[shard].Epoch})
	}
	if missing != "" && len(w.in.Attempts) == 0 && !w.in.WasLeader && view.ServingCount() == 0 {
		w.result.NoTarget = true
		return "", nil
	}
	return missing, nil
}

// resumedAt is when the last of the tasks that moved was begun and the new leader led; nil: something has not moved, or
// only shards have.
func (w *watch) resumedAt() *time.Time {
	last := w.ledAt
	for i := range w.transfers {
		if at := w.transfers[i].At; at != nil && at.After(last) {
			last = *at
		}
	}
	if w.result.Incomplete != "" || last.IsZero() {
		return nil
	}
	return &last
}

func isArray(workflowID string) bool {
	_, is := contract.ArrayOfWorkflowID(workflowID)
	return is
}

// lookAtTask finds out where a task is now. It has moved when an agent has begun another attempt, when it has ended, or
// when it waits for a person.
func (w *watch) lookAtTask(ctx context.Context, held cluster.HeldAttempt) (api.Transfer, bool, error) {
	t := api.Transfer{TaskID: held.TaskID, From: w.in.FailedAgent, Why: w.in.Reason, RetryCount: held.Attempt}
	task, err := w.tasks().Describe(ctx, held.TaskID)
	if err == nil {
		err = w.tasks().Complete(ctx, &task)
	}
	if workflowID, _ := contract.Locate(held.TaskID); store.KindOf(err) == store.NotFound && isArray(workflowID) {
		t.Status = api.TaskQueued // a bundle that has ended: its elements come in others
		return t, true, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("read task %s: %w", held.TaskID, err)
	}
	t.Status = task.Status
	for i := range task.Attempts {
		if at := &task.Attempts[i]; at.Number <= held.Attempt && at.Outcome == api.AttemptReturned {
			t.RetryCount--
		}
	}
	later := slices.IndexFunc(task.Attempts, func(at api.Attempt) bool {
		return at.Number > held.Attempt && at.AgentID != "" && at.Outcome != api.AttemptReturned
	})
	switch {
	case later >= 0:
		next := task.Attempts[later]
		t.To, t.Epoch, t.At = next.AgentID, next.Epoch, next.StartedAt
	case !task.Status.Settled():
		last := len(task.Attempts) - 1
		if same := last >= 0 && task.Attempts[last].Number == held.Attempt; held.AwaitedUntil.IsZero() || !same {
			return t, false, nil
		}
		// Its hub ends it when the time is over, unless its agent is back with it.
		t.Why = "it is held for its agent until " + held.AwaitedUntil.UTC().Format(time.RFC3339)
		if time.Now().Before(held.AwaitedUntil.Add(awaitedMargin)) {
			return t, false, nil
		}
		t.Why = "its agent came back with it"
	}
	return t, true, nil
}
