// Package bulk acts on many tasks at once.
package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	starts *limit.Rate // by tenant
}

// New makes the handlers.
func New(core *rest.Core) *Handlers {
	return &Handlers{Core: core, starts: limit.NewRate(1, mostOpen)}
}

// mostOpen is how many operations of a tenant may be open: one acts at a time, and each may act on thousands of tasks.
const mostOpen = 10

type getInput struct {
	rest.ByID
	Wait string `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the operation has ended, or this time is over. At most 60s."`
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Bulk operations").Scoped()
	rest.Respond(r, "bulk-tasks", "POST /tasks/bulk", "Act on many tasks",
		"Cancels, retries, discards, decides or reprioritizes all tasks that the filter selects. Answers 202 once "+
			"the operation is durable, or 200 to a dry run. "+
			"Tasks submitted within the last second may be left out. Each task is asked once; what it refuses "+
			"counts as skipped.",
		func(ctx context.Context, in *rest.Body[api.BulkRequest]) (*rest.StatusOutput[api.Bulk], error) {
			bulk, err := h.start(ctx, &in.Body)
			return rest.Begun(bulk, bulk.DryRun, err)
		}, rest.Status(http.StatusAccepted), rest.Also(http.StatusOK, "What a dry run found"))
	rest.List(r, "bulks", "list-bulks", "GET /tasks/bulk", "List bulk operations",
		"Newest first. An operation appears within about a second of its start.", h.list)
	rest.Serve(r, "get-bulk", "GET /tasks/bulk/{id}", "Get a bulk operation, or wait for it",
		"Its counts grow a page of tasks at a time.",
		func(ctx context.Context, in *getInput) (api.Bulk, error) {
			wait, err := rest.ParseWait(in.Wait)
			if err != nil {
				return api.Bulk{}, err
			}
			return h.wait(ctx, in.ID, wait)
		}, rest.Held)
	rest.Serve(r, "cancel-bulk", "POST /tasks/bulk/{id}/cancel", "Stop a bulk operation",
		"What it has done stays done. The page of tasks under way is finished first. Answers 409 conflict when it has ended.",
		h.cancel, rest.Held)
}

const (
	// sampleSize is how many ids a dry run shows.
	sampleSize = 20
	// lookLimit bounds how many tasks a dry run reads one by one.
	lookLimit = 200
)

// start starts an operation, or says what it would act on.
func (h *Handlers) start(ctx context.Context, r *api.BulkRequest) (api.Bulk, error) {
	for i, id := range r.Filter.IDs {
		if full, ok := rest.OwnID(ctx, id); ok { // the operation reports another tenant's task as unknown
			r.Filter.IDs[i] = full
		}
	}
	spec, err := bulkSpec(r)
	spec.By = rest.Who(ctx)
	if err != nil {
		return api.Bulk{}, err
	}
	if spec.Filter.Tenant, err = rest.OwnTenant(ctx, spec.Filter.Tenant); err != nil {
		return api.Bulk{}, err
	}
	if spec.Filter.Cluster != "" {
		if _, err := h.KnownCluster(ctx, spec.Filter.Cluster); err != nil {
			return api.Bulk{}, err
		}
	}
	bulk := bulkOf(&spec)
	if err := h.preview(ctx, &bulk, &spec); err != nil {
		return api.Bulk{}, err
	}
	if r.DryRun {
		bulk.DryRun = true
		return bulk, nil
	}
	if err := h.room(ctx, spec.Filter.Tenant); err != nil {
		return api.Bulk{}, err
	}
	bulk.Sample = nil
	bulk.ID, bulk.Status = "b"+strings.TrimPrefix(api.NewTaskID(), "t"), api.BulkRunning
	access.Touch(ctx, "bulk", bulk.ID)
	bulk.WorkflowID = contract.BulkWorkflowID(bulk.ID)
	short := spec
	short.IDs = nil
	_, err = h.Store.Start(ctx, &store.Start{
		Type:    contract.BulkWorkflow,
		ID:      bulk.WorkflowID,
		Summary: string(spec.Action) + " tasks: " + spec.Reason,
		Cluster: spec.Filter.Cluster,
		Tenant:  spec.Filter.Tenant,
		Memo:    map[string]any{contract.MemoBulk: short},
	}, contract.BulkInput{ID: bulk.ID, Spec: spec, Expected: bulk.Expected})
	return bulk, h.Answer(err, "start a bulk operation", protocol.CodeInternal)
}

// room refuses another operation when the tenant has too many open. The count is about a second old.
func (h *Handlers) room(ctx context.Context, tenant string) error {
	open, err := h.Store.Count(ctx, rest.OfType(contract.BulkWorkflow,
		contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), contract.OfTenant(tenant)))
	if err != nil {
		return h.Answer(err, "count bulk operations", protocol.CodeInternal)
	}
	if open >= mostOpen {
		return httpapi.Problem(protocol.CodeConflict, fmt.Sprintf(
			"%d bulk operations of the tenant have not ended, and no more may be open: wait for them, or cancel them", open))
	}
	if wait := h.starts.Take(tenant, 1, time.Now()); wait > 0 {
		return httpapi.RetryAfter(wait, "bulk operations of a tenant begin once a second, and ten at once")
	}
	return nil
}

// preview counts the tasks and names some of them.
func (h *Handlers) preview(ctx context.Context, bulk *api.Bulk, spec *contract.BulkSpec) error {
	if len(spec.IDs) > 0 {
		bulk.Expected, bulk.Sample = len(spec.IDs), spec.IDs[:min(sampleSize, len(spec.IDs))]
		return nil
	}
	done, err := httpapi.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	query := spec.Query()
	count, err := h.Store.Count(ctx, query)
	if err != nil {
		return h.Answer(err, "count tasks", protocol.CodeNotFound)
	}
	look := store.LooksAlike(spec.Filter.Status) || len(spec.Filter.Labels) > 0 || spec.Filter.Cause != ""
	size := sampleSize
	if look {
		size = lookLimit
	}
	page, next, err := h.Store.Tasks().Page(ctx, query, size, nil)
	if err != nil {
		return h.Answer(err, "list tasks", protocol.CodeNotFound)
	}
	matched := h.look(ctx, page, &spec.Filter)
	bulk.Expected = int(count)
	switch {
	case look && len(next) == 0:
		bulk.Expected = len(matched)
	case look:
		bulk.AtMost = true
	}
	bulk.Sample = matched[:min(sampleSize, len(matched))]
	return nil
}

// look leaves out the tasks that visibility found and the filter does not mean.
func (h *Handlers) look(ctx context.Context, tasks []store.Task, filter *api.TaskFilter) []string {
	tasks = slices.DeleteFunc(tasks, func(t store.Task) bool { return !t.Matches(filter) })
	alike := store.LooksAlike(filter.Status)
	if alike {
		h.Store.Tasks().RefineAll(ctx, tasks)
	}
	ids := make([]string, 0, len(tasks))
	for i := range tasks {
		if !alike || tasks[i].Status == filter.Status {
			ids = append(ids, tasks[i].ID)
		}
	}
	return ids
}

// wait returns an operation once it has ended, or as it stands when wait is over.
func (h *Handlers) wait(ctx context.Context, id string, wait time.Duration) (bulk api.Bulk, err error) {
	workflowID := contract.BulkWorkflowID(id)
	const doing = "wait for a bulk operation"
	err = h.WaitForEnd(ctx, wait, doing, workflowID, func(ctx context.Context, last bool) (bool, error) {
		info, err := h.describe(ctx, id)
		if err != nil || !last && info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return false, err
		}
		ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
		defer cancel()
		bulk = h.bulk(ctx, info)
		return true, nil
	})
	return bulk, err
}

func (h *Handlers) describe(ctx context.Context, id string) (*workflowpb.WorkflowExecutionInfo, error) {
	if api.ValidateID("id", id) != nil {
		return nil, rest.Unknown(protocol.CodeUnknownBulk)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	info, err := h.Store.Describe(ctx, contract.BulkWorkflowID(id))
	if err != nil {
		return nil, h.Answer(err, "describe a bulk operation", protocol.CodeUnknownBulk)
	}
	if !rest.Sees(ctx, contract.Keyword(info.GetSearchAttributes().GetIndexedFields(), contract.AttrTenant)) {
		return nil, rest.Unknown(protocol.CodeUnknownBulk)
	}
	return info, nil
}

// bulk reads an operation from its memo, and its counts from its workflow.
func (h *Handlers) bulk(ctx context.Context, info *workflowpb.WorkflowExecutionInfo) api.Bulk {
	var spec contract.BulkSpec
	contract.Decode(info.GetMemo().GetFields()[contract.MemoBulk], &spec)
	bulk := bulkOf(&spec)
	bulk.WorkflowID, bulk.StartedAt, bulk.ClosedAt = info.GetExecution().GetWorkflowId(), store.TimeOf(
		info.GetStartTime()), store.TimeOf(info.GetCloseTime())
	bulk.ID, _ = contract.BulkOfWorkflowID(bulk.WorkflowID)
	states := store.Records[contract.BulkState]{Store: h.Store, Query: contract.BulkQuery, Partial: partialBulk}
	state, _ := states.Of(ctx, info)
	takeBulk(&bulk, &state)
	return bulk
}

// partialBulk is what Temporal itself knows of an operation.
func partialBulk(k store.Known) (contract.BulkState, bool) {
	state := contract.BulkState{
		Status: api.BulkFailed, Why: "its counts are not known now; the Temporal Web UI may show more",
	}
	switch k.Status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		state.Status = api.BulkRunning
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		state.Status = api.BulkCompleted
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		state.Status = api.BulkCancelled
	}
	return state, true
}

// cancel stops an operation.
func (h *Handlers) cancel(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Bulk, error) {
	info, err := h.describe(ctx, in.ID)
	if err != nil {
		return api.Bulk{}, err
	}
	request := contract.CancelRequest{Reason: cmp.Or(in.Body.Text(), "cancelled by request")}
	updateCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	_, err = store.Update(updateCtx, h.Store, contract.BulkCancelUpdate, info.GetExecution().GetWorkflowId(), request)
	if store.KindOf(err) == store.NotFound {
		return api.Bulk{}, httpapi.Problem(protocol.CodeConflict, "the bulk operation has ended")
	}
	if err != nil {
		return api.Bulk{}, h.Answer(err, "cancel a bulk operation", protocol.CodeUnknownBulk)
	}
	return h.wait(ctx, in.ID, rest.QueryTimeout)
}

func (h *Handlers) list(ctx context.Context, in *rest.RecordPageInput) (bulks rest.Page[api.Bulk], err error) {
	query := rest.OfType(contract.BulkWorkflow, "ExecutionStatus != 'ContinuedAsNew'",
		rest.Filter(contract.AttrTenant, access.From(ctx).Tenant))
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	page, err := rest.PageOf(ctx, h.Core, "list bulk operations", h.Store.Page, query, *in)
	if err != nil {
		return bulks, err
	}
	bulks = rest.Page[api.Bulk]{Items: make([]api.Bulk, len(page.Items)), Next: page.Next}
	parallel.Each(len(page.Items), rest.FanOut, func(i int) { bulks.Items[i] = h.bulk(ctx, page.Items[i]) })
	return bulks, nil
}

// bulkSpec checks a request.
func bulkSpec(r *api.BulkRequest) (contract.BulkSpec, error) {
	filter := api.TaskFilter{
		Cluster: r.Filter.Cluster,
		Status:  r.Filter.Status,
		Type:    r.Filter.Type,
		Tenant:  r.Filter.Tenant,
		Agent:   r.Filter.Agent,
		Labels:  r.Filter.Labels,
		Cause:   r.Filter.Cause,
	}
	if r.Filter.SubmittedAfter != nil {
		filter.SubmittedAfter = *r.Filter.SubmittedAfter
	}
	if r.Filter.SubmittedBefore != nil {
		filter.SubmittedBefore = *r.Filter.SubmittedBefore
	}
	ids := slices.Compact(slices.Sorted(slices.Values(r.Filter.IDs)))
	bulk := task.Bulk{Action: r.Action, Filter: filter, IDs: ids, All: r.All, Decision: r.Decision,
		Priority: r.Priority, Reason: r.Reason}
	if err := bulk.Validate(); err != nil {
		if field, ok := errors.AsType[*api.FieldError](err); ok {
			return contract.BulkSpec{}, rest.Invalid("body."+field.Field, field.Err)
		}
		return contract.BulkSpec{}, rest.Invalid("body", err)
	}
	return contract.BulkSpec(bulk), nil
}

// bulkOf is the requested operation.
func bulkOf(spec *contract.BulkSpec) api.Bulk {
	b := api.Bulk{Action: spec.Action, All: spec.All, Decision: spec.Decision, Priority: int(spec.Priority),
		Reason: spec.Reason}
	if !spec.Filter.Empty() {
		b.Filter = new(spec.Filter)
	}
	return b
}

func takeBulk(b *api.Bulk, s *contract.BulkState) {
	b.Status, b.Why, b.Expected = s.Status, s.Why, s.Expected
	b.Matched, b.Done, b.Skipped, b.Failed, b.Examples = s.Matched, s.Done, s.Skipped, s.Failed, s.Examples
}
