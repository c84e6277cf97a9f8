package gateway

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
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
func (g *Gateway) startBulk(ctx context.Context, r *api.BulkRequest) (api.Bulk, error) {
	for i, id := range r.Filter.IDs {
		if full, ok := ownID(ctx, id); ok { // of another tenant's the operation says that there is no such task
			r.Filter.IDs[i] = full
		}
	}
	spec, err := bulkSpec(r)
	if err != nil {
		return api.Bulk{}, err
	}
	if spec.Filter.Tenant, err = ownTenant(ctx, spec.Filter.Tenant); err != nil {
		return api.Bulk{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if spec.Filter.Cluster != "" {
		if _, err := g.knownCluster(ctx, spec.Filter.Cluster); err != nil {
			return api.Bulk{}, err
		}
	}
	bulk := bulkOf(&spec)
	if err := g.preview(ctx, &bulk, &spec); err != nil {
		return api.Bulk{}, err
	}
	if r.DryRun {
		bulk.DryRun = true
		return bulk, nil
	}
	bulk.Sample = nil
	bulk.ID, bulk.Status = "b"+strings.TrimPrefix(newTaskID(), "t"), fleet.BulkRunning
	access.Touch(ctx, "bulk", bulk.ID)
	bulk.WorkflowID = contract.BulkWorkflowID(bulk.ID)
	short := spec
	short.IDs = nil
	_, err = g.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: bulk.WorkflowID, TaskQueue: contract.WorkerQueue, WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true, Memo: map[string]any{contract.MemoBulk: short},
		TypedSearchAttributes: bulkAttributes(&spec), StaticSummary: string(spec.Action) + " tasks: " + spec.Reason,
	}, contract.BulkWorkflow, contract.BulkInput{ID: bulk.ID, Spec: spec, Expected: bulk.Expected})
	return bulk, g.answer(err, "start a bulk operation", protocol.CodeInternal)
}

func bulkAttributes(spec *contract.BulkSpec) temporal.SearchAttributes {
	var attributes []temporal.SearchAttributeUpdate
	if spec.Filter.Cluster != "" {
		attributes = append(attributes, contract.AttrCluster.ValueSet(spec.Filter.Cluster))
	}
	if spec.Filter.Tenant != "" {
		attributes = append(attributes, contract.AttrTenant.ValueSet(spec.Filter.Tenant))
	}
	return temporal.NewSearchAttributes(attributes...)
}

// preview counts the tasks and names some of them.
func (g *Gateway) preview(ctx context.Context, bulk *api.Bulk, spec *contract.BulkSpec) error {
	if len(spec.IDs) > 0 {
		bulk.Expected, bulk.Sample = len(spec.IDs), spec.IDs[:min(sampleSize, len(spec.IDs))]
		return nil
	}
	query := spec.Query()
	count, err := g.store.Count(ctx, query)
	if err != nil {
		return g.answer(err, "count tasks", protocol.CodeNotFound)
	}
	look := store.LooksAlike(spec.Filter.Status) || len(spec.Filter.Labels) > 0
	size := sampleSize
	if look {
		size = lookLimit
	}
	page, next, err := g.store.Tasks().Page(ctx, query, size, nil)
	if err != nil {
		return g.answer(err, "list tasks", protocol.CodeNotFound)
	}
	matched := g.look(ctx, page, &spec.Filter)
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
func (g *Gateway) look(ctx context.Context, tasks []store.Task, filter *fleet.TaskFilter) []string {
	tasks = slices.DeleteFunc(tasks, func(t store.Task) bool { return !t.HasLabels(filter.Labels) })
	alike := store.LooksAlike(filter.Status)
	if alike {
		g.store.Tasks().RefineAll(ctx, tasks)
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
func (g *Gateway) waitForBulk(ctx context.Context, id string, wait time.Duration) (bulk api.Bulk, err error) {
	err = g.waitUntil(ctx, wait, "wait for a bulk operation", func(ctx context.Context, last bool) (bool, error) {
		info, err := g.describeBulk(ctx, id)
		if err != nil || !last && info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return false, err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		bulk = g.bulk(ctx, info)
		return true, nil
	})
	return bulk, err
}

func (g *Gateway) describeBulk(ctx context.Context, id string) (*workflowpb.WorkflowExecutionInfo, error) {
	if fleet.ValidateID("id", id) != nil {
		return nil, unknown(protocol.CodeUnknownBulk)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := g.store.Describe(ctx, contract.BulkWorkflowID(id))
	if err != nil {
		return nil, g.answer(err, "describe a bulk operation", protocol.CodeUnknownBulk)
	}
	if !sees(ctx, contract.Keyword(info.GetSearchAttributes().GetIndexedFields(), contract.AttrTenant)) {
		return nil, unknown(protocol.CodeUnknownBulk)
	}
	return info, nil
}

// bulk is an operation as its memo tells it, with the counts, which its workflow knows.
func (g *Gateway) bulk(ctx context.Context, info *workflowpb.WorkflowExecutionInfo) api.Bulk {
	var spec contract.BulkSpec
	contract.Decode(info.GetMemo().GetFields()[contract.MemoBulk], &spec)
	bulk := bulkOf(&spec)
	bulk.WorkflowID, bulk.StartedAt, bulk.ClosedAt = info.GetExecution().GetWorkflowId(), store.TimeOf(info.GetStartTime()), store.TimeOf(info.GetCloseTime())
	bulk.ID, _ = contract.BulkOfWorkflowID(bulk.WorkflowID)
	states := store.Records[contract.BulkState]{Store: g.store, Query: contract.BulkQuery, Partial: partialBulk}
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
func (g *Gateway) cancelBulk(ctx context.Context, id string, why *api.ReasonRequest) (api.Bulk, error) {
	info, err := g.describeBulk(ctx, id)
	if err != nil {
		return api.Bulk{}, err
	}
	request := contract.CancelRequest{Reason: "cancelled by request"}
	if why != nil && why.Reason != "" {
		request.Reason = why.Reason
	}
	updateCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = store.Update(updateCtx, g.store, contract.BulkCancelUpdate, info.GetExecution().GetWorkflowId(), request)
	if store.KindOf(err) == store.NotFound {
		return api.Bulk{}, httpapi.Problem(protocol.CodeConflict, "the bulk operation has ended")
	}
	if err != nil {
		return api.Bulk{}, g.answer(err, "cancel a bulk operation", protocol.CodeUnknownBulk)
	}
	return g.waitForBulk(ctx, id, queryTimeout)
}

func (g *Gateway) listBulks(ctx context.Context, in *listBulksInput) (*listBulksOutput, error) {
	query := allOf(contract.Equals("WorkflowType", contract.BulkWorkflow), "ExecutionStatus != 'ContinuedAsNew'",
		filter(contract.AttrTenant.GetName(), access.From(ctx).Tenant))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, next, err := pageOf(ctx, g, "list bulk operations", g.store.Page, query, in.PageSize, in.PageToken)
	if err != nil {
		return nil, err
	}
	out := &listBulksOutput{}
	out.Body.Bulks = make([]api.Bulk, len(page))
	parallel.Each(len(out.Body.Bulks), fanOut, func(i int) { out.Body.Bulks[i] = g.bulk(ctx, page[i]) })
	out.Body.NextPageToken = next
	return out, nil
}
