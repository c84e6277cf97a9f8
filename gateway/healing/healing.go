// Package healing shows what healing does, and lets people pause it and ask for a cycle.
package healing

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type listInput struct {
	Cluster rest.Slug          `query:"cluster"`
	Agent   rest.Slug          `query:"agent"`
	Type    api.HealingType    `query:"type" enum:"failover_agent,reassign_task,rebalance_cluster,drain_agent,reduce_load,restore_agent,report"`
	Status  api.HealingOutcome `query:"status" enum:"running,succeeded,failed,planned,skipped,reported" doc:"Those that have ended are told apart after the page is read, so a page may hold fewer than page_size."`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Healing")
	rest.Serve(r, "get-healing", "GET /healing/status", "Get how healing stands",
		"Whether it runs, its last cycle with what that decided and why, and the actions under way.",
		func(ctx context.Context, _ *struct{}) (api.HealingStatus, error) { return h.status(ctx) })
	rest.List(r, "actions", "list-healing-actions", "GET /healing/actions", "List healing actions",
		"Newest first: what was done, what was deliberately not done, and what needs a person, each with the facts "+
			"that led to it.",
		h.list)
	rest.Respond(r, "trigger-healing", "POST /healing/trigger", "Run a healing cycle now",
		"Also while healing is paused; clusters whose mode is off or dry_run stay so. Answers 200 with what the "+
			"cycle decided, or 202 when it takes longer than a few seconds.",
		h.trigger, rest.Also(http.StatusAccepted, "It is under way"))
	rest.Serve(r, "pause-healing", "POST /healing/pause", "Pause healing",
		"No cycle begins by itself until it is resumed. What is under way goes on.", h.pauses(true))
	rest.Serve(r, "resume-healing", "POST /healing/resume", "Resume healing", "Cycles begin by themselves again.",
		h.pauses(false))
}

// runningHealing bounds the actions under way that the status lists.
const runningHealing = 50

const noHealing = "healing has no schedule in this namespace: start a worker (mainstay serve --roles worker), which " +
	"makes it"

// status reports the state of healing.
func (h *Handlers) status(ctx context.Context) (api.HealingStatus, error) {
	status := api.HealingStatus{State: api.HealingMissing, Running: []api.HealingRecord{},
		Clusters: []api.HealingCluster{}}
	d, err := h.describeHealing(ctx)
	code, _ := rest.Code(err)
	switch {
	case code == protocol.CodeConflict: // no schedule
	case err != nil:
		return status, err
	default:
		h.readHealingSchedule(ctx, &status, d)
	}
	listed, err := h.ListClusters(ctx)
	if err != nil {
		return status, err
	}
	for i := range listed {
		policy := listed[i].Config.SelfHealing.WithDefaults()
		status.Clusters = append(status.Clusters, api.HealingCluster{Cluster: listed[i].Name, Mode: policy.Mode,
			CycleInterval: policy.CycleInterval})
	}
	slices.SortFunc(status.Clusters, func(a, b api.HealingCluster) int { return strings.Compare(a.Cluster, b.Cluster) })
	query := healingQuery(&listInput{Status: api.HealingRunning})
	running, err := rest.PageOf(ctx, h.Core, "list healing actions", h.actions().Page, query,
		rest.RecordPageInput{PageSize: runningHealing})
	status.Running = append(status.Running, running.Items...)
	return status, err
}

// readHealingSchedule takes what Temporal knows of the schedule, and its newest cycle that has ended.
func (h *Handlers) readHealingSchedule(
	ctx context.Context, status *api.HealingStatus, d *workflowservice.DescribeScheduleResponse,
) {
	s, info := d.GetSchedule(), d.GetInfo()
	status.State, status.Note, status.Cycles = api.HealingActive, s.GetState().GetNotes(), info.GetActionCount()
	if s.GetState().GetPaused() {
		status.State = api.HealingPaused
	}
	if intervals := s.GetSpec().GetInterval(); len(intervals) == 1 {
		status.CycleInterval = api.Duration(intervals[0].GetInterval().AsDuration())
	}
	if next := info.GetFutureActionTimes(); len(next) > 0 && status.State == api.HealingActive {
		status.NextCycleAt = store.TimeOf(next[0])
	}
	recent := info.GetRecentActions()
	for i := len(recent) - 1; i >= 0 && status.LastCycle == nil; i-- {
		started := recent[i].GetStartWorkflowResult()
		if record, why := store.EndRecord[api.HealingCycleRecord](ctx, h.Store, started.GetWorkflowId(),
			started.GetRunId()); why == "" {
			status.LastCycle = &record
		}
	}
}

func (h *Handlers) describeHealing(ctx context.Context) (*workflowservice.DescribeScheduleResponse, error) {
	d, err := h.DescribeLoop(ctx, contract.HealingScheduleID)
	if store.KindOf(err) == store.NotFound {
		return nil, httpapi.Problem(protocol.CodeConflict, noHealing)
	}
	return d, h.Answer(err, "describe the healing schedule", protocol.CodeInternal)
}

// pauses makes the handler that pauses or resumes the schedule, and answers once it shows.
func (h *Handlers) pauses(pause bool) func(context.Context, *rest.Body[*api.ReasonRequest]) (api.HealingStatus, error) {
	return func(ctx context.Context, in *rest.Body[*api.ReasonRequest]) (status api.HealingStatus, err error) {
		if _, err := h.describeHealing(ctx); err != nil {
			return status, err
		}
		err = h.Store.PauseSchedule(ctx, contract.HealingScheduleID, pause, in.Body.Text())
		defer h.ForgetRun(contract.HealingScheduleID)
		if err != nil {
			return status, h.Answer(err, "pause or resume healing", protocol.CodeInternal)
		}
		err = h.WaitUntil(ctx, rest.QueryTimeout, "wait for the healing schedule",
			func(ctx context.Context, _ bool) (bool, error) {
				d, err := h.describeHealing(ctx)
				return d.GetSchedule().GetState().GetPaused() == pause, err
			})
		if err != nil {
			return status, err
		}
		return h.status(ctx)
	}
}

// trigger runs a cycle beside the schedule, so that it may be for one cluster or change nothing.
func (h *Handlers) trigger(
	ctx context.Context, in *rest.Body[*api.HealingTrigger],
) (*rest.StatusOutput[api.HealingCycleRecord], error) {
	body := rest.Given(in.Body)
	request := contract.HealingCycleInput{Cluster: body.Cluster, DryRun: body.DryRun,
		Reason: cmp.Or(body.Reason, "asked for by hand")}
	if request.Cluster != "" {
		if _, err := h.ClusterConfig(ctx, request.Cluster); err != nil {
			return nil, err
		}
	}
	id := contract.HealingCycleWorkflowID(strings.TrimPrefix(api.NewTaskID(), "t-"))
	run, err := h.Store.Start(ctx, &store.Start{
		Type:    contract.HealingCycleWorkflow,
		ID:      id,
		Summary: "healing cycle: " + request.Reason,
		Cluster: request.Cluster,
		Timeout: contract.HealingCycleTimeout,
	}, request)
	if err != nil {
		return nil, h.Answer(err, "start a healing cycle", protocol.CodeInternal)
	}
	ended, cycle := false, api.HealingCycleRecord{ID: id, DryRun: request.DryRun, StartedAt: time.Now().UTC()}
	err = h.WaitUntil(ctx, rest.QueryTimeout, "wait for a healing cycle",
		func(ctx context.Context, _ bool) (bool, error) {
			info, err := h.Store.Describe(ctx, id)
			if err != nil {
				return false, h.Answer(err, "look at a healing cycle", protocol.CodeInternal)
			}
			if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
				return false, nil
			}
			record, why := store.EndRecord[api.HealingCycleRecord](ctx, h.Store, id, run)
			if why != "" {
				return false, httpapi.Problem(protocol.CodeUnavailable, "the cycle did not come to its end: "+why)
			}
			ended, cycle = true, record
			return true, nil
		})
	return rest.Begun(cycle, ended, err)
}

func (h *Handlers) list(ctx context.Context, in *listInput) (rest.Page[api.HealingRecord], error) {
	page, err := rest.PageOf(ctx, h.Core, "list healing actions", h.actions().Page, healingQuery(in), in.RecordPageInput)
	page.Items = slices.DeleteFunc(page.Items, func(r api.HealingRecord) bool {
		return in.Status != "" && r.Status != in.Status
	})
	return page, err
}

// healingQuery is the visibility query of a list.
func healingQuery(in *listInput) string {
	running := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	status := ""
	switch in.Status {
	case "":
	case api.HealingRunning:
		status = contract.ExecutionIs(running)
	default:
		status = "ExecutionStatus != " + contract.Quoted(running.String())
	}
	return rest.OfType(contract.HealingActionWorkflow, rest.Filter(contract.AttrCluster, in.Cluster),
		rest.Filter(contract.AttrAgent, in.Agent), rest.Filter(contract.AttrTaskType, in.Type), status)
}

// actions are the records of healing actions.
func (h *Handlers) actions() store.Records[api.HealingRecord] {
	return store.Records[api.HealingRecord]{
		Store: h.Store, Query: contract.HealingQuery, Partial: partialHealing,
		Locate: func(r *api.HealingRecord, run *commonpb.WorkflowExecution) {
			r.WorkflowID, r.RunID = run.GetWorkflowId(), run.GetRunId()
		},
	}
}

// partialHealing is what Temporal itself knows of an action.
func partialHealing(k store.Known) (api.HealingRecord, bool) {
	cluster, kind, target, ok := contract.HealingActionOfWorkflowID(k.WorkflowID)
	return api.HealingRecord{ID: contract.HealingActionID(cluster, kind, target, k.StartedAt), Cluster: cluster,
		Type: kind, TargetID: target, Outcome: k.Why, DecidedAt: k.StartedAt, CompletedAt: k.ClosedAt,
		Status: store.Standing(k, api.HealingRunning, api.HealingFailed)}, ok
}
