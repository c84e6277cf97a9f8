package bulk

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

var bulkType = reflect.TypeFor[api.Bulk]()

const (
	// sampleSize is how many ids a dry run shows.
	sampleSize = 20
	// lookLimit bounds the tasks that are looked at one by one beforehand.
	lookLimit = 200
)

// startBulk starts an operation, or says what it would act on.
func (h *Handlers) startBulk(ctx context.Context, r *api.BulkRequest) (api.Bulk, error) {
	for i, id := range r.Filter.IDs {
		if full, ok := rest.OwnID(ctx, id); ok { // of another tenant's the operation says that there is no such task
			r.Filter.IDs[i] = full
		}
	}
	spec, err := bulkSpec(r)
	if err != nil {
		return api.Bulk{}, err
	}
	if spec.Filter.Tenant, err = rest.OwnTenant(ctx, spec.Filter.Tenant); err != nil {
		return api.Bulk{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
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
	bulk.Sample = nil
	bulk.ID, bulk.Status = "b"+strings.TrimPrefix(rest.NewTaskID(), "t"), fleet.BulkRunning
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

// preview counts the tasks and names some of them.
func (h *Handlers) preview(ctx context.Context, bulk *api.Bulk, spec *contract.BulkSpec) error {
	if len(spec.IDs) > 0 {
		bulk.Expected, bulk.Sample = len(spec.IDs), spec.IDs[:min(sampleSize, len(spec.IDs))]
		return nil
	}
	query := spec.Query()
	count, err := h.Store.Count(ctx, query)
	if err != nil {
		return h.Answer(err, "count tasks", protocol.CodeNotFound)
	}
	look := store.LooksAlike(spec.Filter.Status) || len(spec.Filter.Labels) > 0
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
func (h *Handlers) look(ctx context.Context, tasks []store.Task, filter *fleet.TaskFilter) []string {
	tasks = slices.DeleteFunc(tasks, func(t store.Task) bool { return !t.HasLabels(filter.Labels) })
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

// waitForBulk returns an operation once it has ended, or as it stands when wait is over.
func (h *Handlers) waitForBulk(ctx context.Context, id string, wait time.Duration) (bulk api.Bulk, err error) {
	err = h.WaitUntil(ctx, wait, "wait for a bulk operation", func(ctx context.Context, last bool) (bool, error) {
		info, err := h.describeBulk(ctx, id)
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

func (h *Handlers) describeBulk(ctx context.Context, id string) (*workflowpb.WorkflowExecutionInfo, error) {
	if fleet.ValidateID("id", id) != nil {
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

// bulk is an operation as its memo tells it, with the counts, which its workflow knows.
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
func partialBulk(info *workflowpb.WorkflowExecutionInfo, _ string) (contract.BulkState, bool) {
	state := contract.BulkState{
		Status: fleet.BulkFailed, Why: "its counts are not known now; the Temporal Web UI may show more",
	}
	switch info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		state.Status = fleet.BulkRunning
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		state.Status = fleet.BulkCompleted
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		state.Status = fleet.BulkCancelled
	}
	return state, true
}

// cancelBulk stops an operation.
func (h *Handlers) cancelBulk(ctx context.Context, id string, why *api.ReasonRequest) (api.Bulk, error) {
	info, err := h.describeBulk(ctx, id)
	if err != nil {
		return api.Bulk{}, err
	}
	request := contract.CancelRequest{Reason: "cancelled by request"}
	if why != nil && why.Reason != "" {
		request.Reason = why.Reason
	}
	updateCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	_, err = store.Update(updateCtx, h.Store, contract.BulkCancelUpdate, info.GetExecution().GetWorkflowId(), request)
	if store.KindOf(err) == store.NotFound {
		return api.Bulk{}, httpapi.Problem(protocol.CodeConflict, "the bulk operation has ended")
	}
	if err != nil {
		return api.Bulk{}, h.Answer(err, "cancel a bulk operation", protocol.CodeUnknownBulk)
	}
	return h.waitForBulk(ctx, id, rest.QueryTimeout)
}

func (h *Handlers) listBulks(ctx context.Context, in *listBulksInput) (*listBulksOutput, error) {
	query := rest.AllOf(contract.Equals("WorkflowType", contract.BulkWorkflow), "ExecutionStatus != 'ContinuedAsNew'",
		rest.Filter(contract.AttrTenant.GetName(), access.From(ctx).Tenant))
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	page, next, err := rest.PageOf(ctx, h.Core, "list bulk operations", h.Store.Page, query, in.RecordPageInput)
	if err != nil {
		return nil, err
	}
	out := &listBulksOutput{}
	out.Body.Bulks = make([]api.Bulk, len(page))
	parallel.Each(len(out.Body.Bulks), rest.FanOut, func(i int) { out.Body.Bulks[i] = h.bulk(ctx, page[i]) })
	out.Body.NextPageToken = next
	return out, nil
}
