package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

func (g *Gateway) drainAgent(ctx context.Context, in *drainAgentInput) (*drainOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, _, err := g.clusterOfAgent(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	request := api.DrainAgentsRequest{Agents: []string{in.ID}}
	if in.Body != nil {
		request.DrainRequest = *in.Body
	}
	return g.startDrain(ctx, &view.Cluster, &request)
}

func (g *Gateway) drainAgents(ctx context.Context, in *drainAgentsInput) (*drainOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, err := g.view(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	for i, agent := range in.Body.Agents {
		if view.Member(agent) == nil {
			return nil, invalid(fmt.Sprintf("body.agents[%d]", i), fmt.Errorf("must be a member of the cluster"))
		}
	}
	return g.startDrain(ctx, &view.Cluster, &in.Body)
}

// startDrain starts a Drain workflow, and waits for the end of a dry run.
func (g *Gateway) startDrain(ctx context.Context, c *fleet.Cluster, r *api.DrainAgentsRequest) (*drainOutput, error) {
	timeout := fleet.Duration(fleet.DefaultDrainTimeout)
	if r.Deadline != "" {
		d, err := fleet.ParseDuration(r.Deadline)
		if err == nil && (d < 0 || d > fleet.MaxDrainTimeout) {
			err = fmt.Errorf("must be between 0s and %s", fleet.MaxDrainTimeout)
		}
		if err != nil {
			return nil, invalid("body.deadline", err)
		}
		timeout = fleet.Duration(d)
	}
	for _, agent := range r.Agents {
		if k := c.Cordons.Of(agent); !r.DryRun && k != nil && k.Status == fleet.AgentDraining {
			return nil, httpapi.Problem(protocol.CodeConflict, "agent "+agent+" is being drained by "+k.Drain+": cancel that first, or wait for its end")
		}
	}
	in := contract.DrainInput{ID: contract.DrainID(c.Config.Name, "d-"+strings.TrimPrefix(g.newID(), "t-")), Cluster: c.Config.Name, Agents: r.Agents,
		Reason: r.Reason, Timeout: timeout, MaxParallel: cmp.Or(r.MaxParallel, 1), DryRun: r.DryRun}
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	_, err := g.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflowID, TaskQueue: contract.WorkerQueue, StaticSummary: drainSummary(&in),
		TypedSearchAttributes: temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(in.Cluster)),
	}, contract.DrainWorkflow, in)
	if err != nil {
		return nil, g.answer(err, "start a drain", protocol.CodeInternal)
	}
	if r.DryRun {
		return g.awaitDryRun(ctx, in.ID)
	}
	return &drainOutput{Status: http.StatusAccepted, Body: newDrainRecord(&in, time.Now())}, nil
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
func newDrainRecord(in *contract.DrainInput, now time.Time) fleet.DrainRecord {
	record := fleet.DrainRecord{ID: in.ID, Cluster: in.Cluster, Status: fleet.DrainRunning, Reason: in.Reason,
		Timeout: in.Timeout, MaxParallel: in.MaxParallel, RequestedAt: now.UTC()}
	for _, agent := range in.Agents {
		record.Agents = append(record.Agents, fleet.AgentDrain{AgentID: agent, Status: fleet.DrainWaiting})
	}
	return record
}

func (g *Gateway) awaitDryRun(ctx context.Context, id string) (*drainOutput, error) {
	out := &drainOutput{Status: http.StatusOK}
	err := g.waitUntil(ctx, callTimeout, "wait for a dry run", func(ctx context.Context, _ bool) (_ bool, err error) {
		out.Body, err = g.drain(ctx, id)
		return out.Body.CompletedAt != nil, err
	})
	return out, err
}

// drains are the records of drains.
func (g *Gateway) drains() store.Records[fleet.DrainRecord] {
	return store.Records[fleet.DrainRecord]{Store: g.store, Query: contract.DrainQuery, Partial: partialDrain}
}

func (g *Gateway) drain(ctx context.Context, id string) (fleet.DrainRecord, error) {
	workflowID, ok := contract.DrainWorkflowID(id)
	if !ok {
		return fleet.DrainRecord{}, unknown(protocol.CodeUnknownDrain)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	record, err := g.drains().Get(ctx, workflowID)
	return record, g.answer(err, "describe a drain", protocol.CodeUnknownDrain)
}

// partialDrain is what Temporal itself knows of a drain.
func partialDrain(info *workflowpb.WorkflowExecutionInfo, why string) (fleet.DrainRecord, bool) {
	id, ok := contract.DrainOfWorkflowID(info.GetExecution().GetWorkflowId())
	record := fleet.DrainRecord{ID: id, Status: fleet.DrainRunning, Error: why, Agents: []fleet.AgentDrain{}}
	if t := store.TimeOf(info.GetStartTime()); t != nil {
		record.RequestedAt = *t
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		record.Status = fleet.DrainFailed
	}
	return record, ok
}

func (g *Gateway) listDrains(ctx context.Context, in *listDrainsInput) (*listDrainsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	query := allOf(contract.Equals("WorkflowType", contract.DrainWorkflow), filter(contract.AttrCluster.GetName(), in.Cluster))
	out := &listDrainsOutput{}
	var err error
	out.Body.Drains, out.Body.NextPageToken, err = pageOf(ctx, g, "list drains", g.drains().Page, query, in.PageSize, in.PageToken)
	return out, err
}

func (g *Gateway) cancelDrain(ctx context.Context, in *drainInput) (*drainOutput, error) {
	record, err := g.drain(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if record.CompletedAt != nil {
		return nil, httpapi.Problem(protocol.CodeConflict, "the drain has ended: it is "+string(record.Status))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	workflowID, _ := contract.DrainWorkflowID(in.ID)
	if err := g.client.CancelWorkflow(ctx, workflowID, ""); err != nil {
		return nil, g.answer(err, "cancel a drain", protocol.CodeUnknownDrain)
	}
	return &drainOutput{Status: http.StatusAccepted, Body: record}, nil
}

// setMaintenance cordons an agent by hand, or lifts its cordon, and answers the agent as it stands then.
func (g *Gateway) setMaintenance(ctx context.Context, in *maintenanceInput) (*agentOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	view, live, err := g.clusterOfAgent(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	cluster := contract.ClusterWorkflowID(view.Config.Name)
	if in.Body.Enabled {
		_, err = store.Update(ctx, g.store, contract.CordonUpdate, cluster, contract.CordonRequest{
			AgentID: in.ID,
			Status:  fleet.AgentMaintenance,
			Reason:  in.Body.Reason,
		})
	} else {
		_, err = store.Update(ctx, g.store, contract.UncordonUpdate, cluster, contract.UncordonRequest{AgentID: in.ID})
	}
	if err != nil {
		return nil, g.answer(err, "set an agent's maintenance", protocol.CodeUnknownAgent)
	}
	after, err := g.view(ctx, view.Config.Name)
	if err != nil {
		return nil, err
	}
	member := after.Member(in.ID)
	if member == nil {
		return nil, unknown(protocol.CodeUnknownAgent)
	}
	return &agentOutput{Body: agentOf(&after.Cluster, member, live)}, nil
}
