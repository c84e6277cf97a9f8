// Package drain takes agents out of service.
package drain

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type listInput struct {
	Cluster rest.Slug `query:"cluster"`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r, planned := rest.On(routes, "Drains"), rest.Also(http.StatusOK, "A dry run: what would happen")
	rest.Respond(r, "drain-agent", "POST /{id}/drain", "Take an agent out of service",
		"Nothing new is given to it, what it has may finish until the deadline, and it ends in maintenance with "+
			"nothing in flight. Answers 409 conflict when it is being drained already. A dry run answers 200 with "+
			"what would happen.",
		h.drainAgent, rest.Status(http.StatusAccepted), planned)
	rest.Respond(r, "drain-agents", "POST /clusters/{id}/drain",
		"Take agents of a cluster out of service, some at a time", "",
		h.drainAgents, rest.Status(http.StatusAccepted), planned)
	rest.List(r, "drains", "list-drains", "GET /drains", "List drains",
		"Newest first, dry runs among them. A drain appears within about a second of its start.", h.list)
	rest.Serve(r, "get-drain", "GET /drains/{id}", "Get a drain",
		"How far it is with each agent, what the agent had, and how that ended.", h.drain)
	rest.Serve(r, "cancel-drain", "POST /drains/{id}/cancel", "Cancel a drain",
		"Agents that are not done are given work again; those that are done stay in maintenance.",
		h.cancel, rest.Status(http.StatusAccepted))
}

type drainOutput = rest.StatusOutput[api.DrainRecord]

func (h *Handlers) drainAgent(ctx context.Context, in *rest.To[*api.DrainRequest]) (*drainOutput, error) {
	view, _, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	request := api.DrainAgentsRequest{Agents: []string{in.ID}, DrainRequest: rest.Given(in.Body)}
	return h.start(ctx, &view.Cluster, &request)
}

func (h *Handlers) drainAgents(ctx context.Context, in *rest.To[api.DrainAgentsRequest]) (*drainOutput, error) {
	view, err := h.View(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	for i, agent := range in.Body.Agents {
		if view.Member(agent) == nil {
			return nil, rest.Invalid(fmt.Sprintf("body.agents[%d]", i), fmt.Errorf("must be a member of the cluster"))
		}
	}
	return h.start(ctx, &view.Cluster, &in.Body)
}

// start starts a Drain workflow, and waits for the end of a dry run.
func (h *Handlers) start(ctx context.Context, c *cluster.Cluster, r *api.DrainAgentsRequest) (*drainOutput, error) {
	timeout := api.Duration(api.DefaultDrainTimeout)
	if r.Deadline != "" {
		d, err := api.ParseDuration(r.Deadline)
		if err == nil && (d < 0 || d > api.MaxDrainTimeout) {
			err = fmt.Errorf("must be between 0s and %s", api.MaxDrainTimeout)
		}
		if err != nil {
			return nil, rest.Invalid("body.deadline", err)
		}
		timeout = api.Duration(d)
	}
	for _, agent := range r.Agents {
		if k := c.Cordons.Of(agent); !r.DryRun && k != nil && k.Status == api.AgentDraining {
			return nil, httpapi.Problem(protocol.CodeConflict,
				"agent "+agent+" is being drained by "+k.Drain+": cancel that first, or wait for its end")
		}
	}
	in := contract.DrainInput{ID: contract.DrainID(c.Config.Name, "d-"+strings.TrimPrefix(api.NewTaskID(), "t-")),
		Cluster: c.Config.Name, Agents: r.Agents,
		Reason: r.Reason, Timeout: timeout, MaxParallel: cmp.Or(r.MaxParallel, 1), DryRun: r.DryRun,
		IncludeSystem: r.IncludeSystem}
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	_, err := h.Store.Start(ctx, &store.Start{
		Type: contract.DrainWorkflow, ID: workflowID, Summary: drainSummary(&in), Cluster: in.Cluster,
	}, in)
	if err != nil {
		return nil, h.Answer(err, "start a drain", protocol.CodeInternal)
	}
	if r.DryRun {
		return h.awaitDryRun(ctx, in.ID)
	}
	return rest.Begun(newDrainRecord(&in, time.Now()), false, nil)
}

func drainSummary(in *contract.DrainInput) string {
	what := "drain "
	if in.DryRun {
		what = "dry run: drain "
	}
	if len(in.Agents) == 1 {
		return what + in.Agents[0]
	}
	return fmt.Sprintf("%s%d agents of %s", what, len(in.Agents), in.Cluster)
}

// newDrainRecord is a drain as it stands when it starts.
func newDrainRecord(in *contract.DrainInput, now time.Time) api.DrainRecord {
	record := api.DrainRecord{ID: in.ID, Cluster: in.Cluster, Status: api.DrainRunning, Reason: in.Reason,
		Timeout: in.Timeout, MaxParallel: in.MaxParallel, RequestedAt: now.UTC()}
	for _, agent := range in.Agents {
		record.Agents = append(record.Agents, api.AgentDrain{AgentID: agent, Status: api.DrainWaiting})
	}
	return record
}

func (h *Handlers) awaitDryRun(ctx context.Context, id string) (*drainOutput, error) {
	var record api.DrainRecord
	err := h.WaitUntil(ctx, rest.CallTimeout, "wait for a dry run",
		func(ctx context.Context, _ bool) (_ bool, err error) {
			record, err = h.drain(ctx, &rest.RecordID{ID: id})
			return record.CompletedAt != nil, err
		})
	return rest.Begun(record, true, err)
}

// drains are the records of drains.
func (h *Handlers) drains() store.Records[api.DrainRecord] {
	return store.Records[api.DrainRecord]{Store: h.Store, Query: contract.DrainQuery, Partial: partialDrain}
}

func (h *Handlers) drain(ctx context.Context, in *rest.RecordID) (api.DrainRecord, error) {
	workflowID, ok := contract.DrainWorkflowID(in.ID)
	return rest.RecordOf(ctx, h.Core, h.drains(), workflowID, ok, protocol.CodeUnknownDrain)
}

// partialDrain is what Temporal itself knows of a drain.
func partialDrain(k store.Known) (api.DrainRecord, bool) {
	id, ok := contract.DrainOfWorkflowID(k.WorkflowID)
	return api.DrainRecord{ID: id, Status: store.Standing(k, api.DrainRunning, api.DrainFailed), Error: k.Why,
		Agents: []api.AgentDrain{}, RequestedAt: k.StartedAt}, ok
}

func (h *Handlers) list(ctx context.Context, in *listInput) (rest.Page[api.DrainRecord], error) {
	query := rest.OfType(contract.DrainWorkflow, rest.Filter(contract.AttrCluster, in.Cluster))
	return rest.PageOf(ctx, h.Core, "list drains", h.drains().Page, query, in.RecordPageInput)
}

func (h *Handlers) cancel(ctx context.Context, in *rest.RecordID) (api.DrainRecord, error) {
	record, err := h.drain(ctx, in)
	if err != nil {
		return record, err
	}
	if record.CompletedAt != nil {
		return record, httpapi.Problem(protocol.CodeConflict, "the drain has ended: it is "+string(record.Status))
	}
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	err = h.Store.Cancel(ctx, workflowID)
	return record, h.Answer(err, "cancel a drain", protocol.CodeUnknownDrain)
}
