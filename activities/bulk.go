package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

const (
	// bulkRest bounds how long a tenant's next page waits after one, which is as long as that took. It is less than the
	// next waits for its turn.
	bulkRest = turnWait * 9 / 10
	// bulkTaskTimeout bounds one call about one task; a call that could not be made is repeated bulkTries times.
	bulkTaskTimeout = 10 * time.Second
	bulkTries       = 4
	bulkFirstPause  = 250 * time.Millisecond
)

// bulkPage is a page under way, and the activity's heartbeat: the next try goes on from it. The page is kept because
// visibility shows another one once tasks have changed.
type bulkPage struct {
	IDs      []string                   `json:"ids"`
	Next     []byte                     `json:"next,omitempty"`
	Outcomes map[string]api.BulkExample `json:"outcomes"`
	mu       sync.Mutex
}

// BulkPage acts on one page of tasks. A try after a crash may ask a task again: the update has the same id then, so the
// task answers what it answered before.
func (a *Control) BulkPage(ctx context.Context, in contract.BulkPageInput) (contract.BulkPageResult, error) {
	turn, err := a.pages.take(ctx, in.Spec.Filter.Tenant)
	if err != nil {
		return contract.BulkPageResult{}, err
	}
	began := time.Now()
	defer func() { turn.rest(min(time.Since(began), bulkRest)) }()
	page := &bulkPage{}
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, page) != nil || page.Outcomes == nil {
		if page.IDs, page.Next, err = a.read(ctx, in); err != nil {
			return contract.BulkPageResult{}, err
		}
		page.Outcomes = map[string]api.BulkExample{}
		activity.RecordHeartbeat(ctx, page)
	}
	var left []string
	for _, id := range page.IDs {
		if _, known := page.Outcomes[id]; !known {
			left = append(left, id)
		}
	}
	if err := a.actOnAll(ctx, in, page, left); err != nil {
		return contract.BulkPageResult{}, err
	}
	result := contract.BulkPageResult{Next: page.Next}
	for _, id := range page.IDs {
		result.Counts.Count(page.Outcomes[id])
	}
	return result, nil
}

// read finds the tasks of the page.
func (a *Control) read(ctx context.Context, in contract.BulkPageInput) (ids []string, next []byte, err error) {
	if len(in.IDs) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(in.IDs))), nil, nil
	}
	found, next, err := a.store().Page(ctx, in.Spec.Query(), contract.BulkPageSize, in.Token)
	if store.KindOf(err) == store.Invalid {
		return nil, nil, temporal.NewNonRetryableApplicationError("Temporal refuses the filter", contract.Refused, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list tasks: %w", err)
	}
	for _, info := range found {
		task := store.OfInfo(info)
		if task.ID != "" && task.Matches(&in.Spec.Filter) && !slices.Contains(ids, task.ID) {
			ids = append(ids, task.ID)
		}
	}
	return ids, next, nil
}

// actOnAll acts on the tasks side by side and records each outcome in the page. It ends early only with its context.
func (a *Control) actOnAll(ctx context.Context, in contract.BulkPageInput, page *bulkPage, ids []string) error {
	parallel.Each(len(ids), store.BatchFanOut(), func(i int) {
		outcome := a.actOn(ctx, in, ids[i])
		if ctx.Err() != nil {
			return // its outcome is not known
		}
		page.mu.Lock()
		page.Outcomes[ids[i]] = outcome
		activity.RecordHeartbeat(ctx, page)
		page.mu.Unlock()
	})
	return ctx.Err()
}

// actOn acts on one task. An example without outcome is a task that does not match after all.
func (a *Control) actOn(ctx context.Context, in contract.BulkPageInput, id string) api.BulkExample {
	example := api.BulkExample{TaskID: id}
	if tenant := in.Spec.Filter.Tenant; tenant != "" && len(in.IDs) > 0 { // ids that anybody may have named
		task, err := a.look(ctx, id)
		if err != nil || task.Tenant != tenant {
			example.Outcome, example.Reason = api.BulkTaskFailed, noSuchTask
			if err != nil {
				example.Outcome, example.Reason = failure(ctx, err)
			}
			return example
		}
	}
	if status := in.Spec.Filter.Status; store.LooksAlike(status) {
		task, err := a.look(ctx, id)
		task.Refine(time.Now())
		switch {
		case err != nil:
			example.Outcome, example.Reason = failure(ctx, err)
			return example
		case task.Status != status:
			if activity.GetInfo(ctx).Attempt > 1 && a.asked(ctx, in.Bulk, id) {
				example.Outcome = api.BulkTaskDone
			}
			return example
		}
	}
	err := again(ctx, func(ctx context.Context) error {
		_, err := in.Spec.Send(ctx, a.Client, id, contract.BulkUpdateID(in.Bulk))
		if in.Spec.Action == api.BulkCancel {
			workflowID, key := contract.Locate(id)
			err = store.CancelFull(ctx, a.store(), contract.CancelUpdate, workflowID,
				contract.CancelRequest{ForTask: contract.ForTask{Task: key}}, err)
		}
		return err
	})
	switch kind := store.KindOf(err); {
	case err == nil:
		example.Outcome = api.BulkTaskDone
	case kind == store.Refused:
		example.Outcome, example.Reason = api.BulkTaskSkipped, store.Refusal(err)
	case kind == store.NotFound:
		example.Outcome, example.Reason = a.ended(ctx, id)
	default:
		example.Outcome, example.Reason = failure(ctx, err)
	}
	return example
}

// noSuchTask is also said of a task of another tenant.
const noSuchTask = "there is no task with this id, or its retention has ended"

// look describes a task.
func (a *Control) look(ctx context.Context, id string) (task store.Task, err error) {
	err = again(ctx, func(ctx context.Context) error {
		task, err = a.tasks().Describe(ctx, id)
		return err
	})
	return task, err
}

// asked reports whether an earlier try has acted on the task, which is why it is in another status now.
func (a *Control) asked(ctx context.Context, bulk, id string) bool {
	return again(ctx, func(ctx context.Context) error {
		workflowID, _ := contract.Locate(id)
		return a.Client.GetWorkflowUpdateHandle(client.GetWorkflowUpdateHandleOptions{
			WorkflowID: workflowID, UpdateID: contract.BulkUpdateID(bulk),
		}).Get(ctx, nil)
	}) == nil
}

// ended distinguishes a task that has ended from one that never was: Temporal has one answer for both.
func (a *Control) ended(ctx context.Context, id string) (api.BulkOutcome, string) {
	ctx, cancel := context.WithTimeout(ctx, bulkTaskTimeout)
	defer cancel()
	if _, err := a.tasks().Describe(ctx, id); err != nil {
		return failure(ctx, err)
	}
	return api.BulkTaskSkipped, "the task has ended"
}

// failure says why a task could not be asked. The error itself goes to the log: people outside read the reason.
func failure(ctx context.Context, err error) (api.BulkOutcome, string) {
	switch store.KindOf(err) {
	case store.NotFound:
		return api.BulkTaskFailed, noSuchTask
	case store.Blocked:
		return api.BulkTaskFailed, "Temporal does not allow it now: its workflow may be paused"
	case store.Full:
		return api.BulkTaskFailed, "it has been changed as often as Temporal allows"
	case store.Unavailable:
		return api.BulkTaskFailed, "Temporal, or a worker for it, did not answer in time"
	}
	activity.GetLogger(ctx).Error("A bulk operation failed on a task", "error", err)
	return api.BulkTaskFailed, "it failed on our side; the worker's log says why"
}

// again makes a call until it was answered, at most bulkTries times.
func again(ctx context.Context, call func(context.Context) error) (err error) {
	for pause, tries := bulkFirstPause, 1; ; pause, tries = 2*pause, tries+1 {
		callCtx, cancel := context.WithTimeout(ctx, bulkTaskTimeout)
		err = call(callCtx)
		cancel()
		if err == nil || tries == bulkTries || store.KindOf(err) != store.Unavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
