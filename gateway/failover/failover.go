// Package failover moves agents' work and roles away, and shows how that went.
package failover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.uber.org/zap"

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
	Cluster rest.Slug          `query:"cluster"`
	Agent   rest.Slug          `query:"agent" doc:"The agent whose work was moved."`
	Status  api.FailoverStatus `query:"status" enum:"running,succeeded,not_in_cluster,no_target_available,failed" doc:"Those that have ended are told apart after the page is read, so a page may hold fewer than page_size."`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Failovers")
	rest.Serve(r, "failover-agent", "POST /{id}/failover", "Move an agent's work and roles away",
		"Answers 202 once the request is durable. Answers 409 conflict when the agent is offline, as its work has moved "+
			"already, when another failover of it is under way, and when the target cannot take work now, has no free slot, "+
			"or can run none of the agent's.", h.start, rest.Status(http.StatusAccepted))
	rest.List(r, "failovers", "list-failovers", "GET /failovers", "List failovers",
		"Newest first. A failover appears within about a second of its start.", h.list)
	rest.Serve(r, "get-failover", "GET /failovers/{id}", "Get a failover",
		"Its trigger, each task that was moved and to whom, the roles that were moved, and when.", h.failover)
}

// start signals the agent's cluster, as a person with tctl would.
func (h *Handlers) start(
	ctx context.Context, in *rest.To[*api.FailoverRequest],
) (accepted api.FailoverAccepted, err error) {
	view, _, err := h.ClusterOfAgent(ctx, in.ID)
	if err != nil {
		return accepted, err
	}
	if err := checkFailed(view.Member(in.ID)); err != nil {
		return accepted, err
	}
	cluster := view.Config.Name
	if err := h.checkUnderWay(ctx, cluster, view.Member(in.ID)); err != nil {
		return accepted, err
	}
	body := rest.Given(in.Body)
	request := contract.ManualFailover{AgentID: in.ID, TargetAgentID: body.TargetAgentID, Reason: body.Reason,
		RequiredCapabilities: body.RequiredCapabilities, Affinity: body.Affinity}
	work := h.work(ctx, view, in.ID)
	if err := checkTarget(&view.Cluster, &request, work); err != nil {
		return accepted, err
	}
	if request.TargetAgentID != "" && len(work) > 0 && view.Config.ReplicationMode == api.ActiveActive {
		target := view.Member(request.TargetAgentID)
		if runs := len(h.work(ctx, view, target.AgentID)); runs >= max(target.MaxTasks, 1) {
			return accepted, httpapi.Problem(protocol.CodeConflict, fmt.Sprintf("the target has no free slot: it runs %d "+
				"of %s%s", runs, api.Count(target.MaxTasks, "task"), otherTarget))
		}
	}
	for _, task := range work {
		request.TaskTypes = append(request.TaskTypes, task.Type)
	}
	request.TaskTypes = api.SortedSet(request.TaskTypes)
	err = h.Store.Clusters().FailOver(ctx, cluster, request)
	return api.FailoverAccepted{Cluster: cluster, AgentID: in.ID,
			FailoverID: contract.NextFailoverID(cluster, view.Member(in.ID), view.Member(in.ID).Failovers)},
		h.Answer(err, "ask for a failover", protocol.CodeUnknownAgent)
}

// checkFailed refuses an agent whose work a failover would not move.
func checkFailed(m *cluster.Member) error {
	since := " since " + m.StatusSince.UTC().Format(time.RFC3339)
	switch {
	case m.Serving():
		return nil
	case !m.Connected():
		return httpapi.Problem(protocol.CodeConflict, "the agent is offline"+since+
			": its work and roles were moved when it was given up; GET /api/v1/agents/failovers?agent=<id> shows it")
	case m.Status == api.AgentDraining:
		return httpapi.Problem(protocol.CodeConflict, "the agent is being drained"+since+": its work moves with that")
	}
	return httpapi.Problem(protocol.CodeConflict, "the agent is in maintenance"+since+
		" and is given no work; what it still runs moves with POST /api/v1/agents/{id}/drain")
}

// checkUnderWay refuses a failover while another of the same session is under way.
func (h *Handlers) checkUnderWay(ctx context.Context, clusterName string, m *cluster.Member) error {
	if m.Failovers == 0 {
		return nil
	}
	id := contract.NextFailoverID(clusterName, m, m.Failovers-1)
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	record, err := h.failovers().Get(ctx, contract.FailoverWorkflowID(id))
	switch {
	case store.KindOf(err) == store.NotFound: // it is kept no more
		return nil
	case err == nil && record.Status == api.FailoverRunning:
		err = httpapi.Problem(protocol.CodeConflict,
			"failover "+id+" of the agent is under way; ask again when it has ended: GET /api/v1/agents/failovers/"+id)
	}
	return h.Answer(err, "look at the failover before", protocol.CodeUnknownFailover)
}

// otherTarget is what to do about a target that cannot take over.
const otherTarget = "; choose another (GET /api/v1/agents?task_type= and capability= find some), or leave " +
	"target_agent_id out"

// work lists what an agent runs; nothing when its hub does not answer.
func (h *Handlers) work(ctx context.Context, view *contract.ClusterView, agent string) (held []api.HeldTask) {
	answers, err := rest.AskHubs(ctx, h.Core, contract.ReadTasksActivity, &view.Cluster, agent, "tasks",
		contract.ReadTasksID, contract.ReadTasksInput{Cluster: view.Config.Name, AgentID: agent})
	if err != nil {
		h.Logger.Debug("what an agent runs is not known", zap.String("agent", agent), zap.Error(err))
	}
	for _, answer := range answers {
		held = answer.Agents[agent]
	}
	return held
}

// checkTarget refuses a target where the mode leaves no choice, and one that cannot take over or can run none of the
// work. The cluster decides again when it takes the signal.
func checkTarget(c *cluster.Cluster, request *contract.ManualFailover, work []api.HeldTask) error {
	if request.TargetAgentID != "" || len(request.RequiredCapabilities) > 0 || len(request.Affinity) > 0 {
		const remedy = "; leave target_agent_id, required_capabilities and affinity out"
		switch mode := c.Config.ReplicationMode; {
		case mode == api.Sharded:
			return httpapi.Problem(protocol.CodeConflict,
				"the cluster is sharded, so the agent's shards and tasks go to several agents"+remedy)
		case mode == api.ActivePassive && c.Leader != request.AgentID:
			return httpapi.Problem(protocol.CodeConflict, "the agent does not lead its cluster, so nobody takes over "+
				"from it: its tasks go to the agents that serve their lanes"+remedy+", or fail over the leader")
		}
	}
	if request.TargetAgentID == "" {
		return nil
	}
	const location = "body.target_agent_id"
	member, failed := c.Member(request.TargetAgentID), c.Member(request.AgentID)
	switch {
	case len(request.Affinity) > 0:
		return rest.Invalid("body.affinity", errors.New("has no effect with target_agent_id; leave one of them out"))
	case request.TargetAgentID == request.AgentID:
		return rest.Invalid(location, errors.New("must be another agent than the one whose work is moved"))
	case member == nil:
		return rest.Invalid(location, errors.New("must be a member of the agent's cluster"))
	case member.Status == api.AgentMaintenance:
		return httpapi.Problem(protocol.CodeConflict,
			"the target is in maintenance and takes no work; choose an online agent, or leave target_agent_id out")
	case member.Status != api.AgentOnline:
		return httpapi.Problem(protocol.CodeConflict, "the target is "+string(member.Status)+
			" and can take no work; choose an online agent, or leave target_agent_id out")
	case !api.HasAll(member.Capabilities, request.RequiredCapabilities):
		return httpapi.Problem(protocol.CodeConflict, "the target lacks some of required_capabilities"+otherTarget)
	case len(work) == 0 && !member.HandlesAny(failed.TaskTypes):
		return httpapi.Problem(protocol.CodeConflict, "the target handles none of the agent's task types"+otherTarget)
	case len(work) > 0 && !slices.ContainsFunc(work, member.CanRun):
		return httpapi.Problem(protocol.CodeConflict, "the target can run none of the agent's "+
			api.Count(len(work), "task")+": it lacks their types or capabilities"+otherTarget)
	}
	return nil
}

// failovers are the records of failovers.
func (h *Handlers) failovers() store.Records[api.FailoverRecord] {
	return store.Records[api.FailoverRecord]{Store: h.Store, Query: contract.FailoverQuery, Partial: partialFailover}
}

// failover returns the newest record with an id.
func (h *Handlers) failover(ctx context.Context, in *rest.RecordID) (api.FailoverRecord, error) {
	_, _, _, ok := contract.ParseFailoverID(in.ID)
	return rest.RecordOf(ctx, h.Core, h.failovers(), contract.FailoverWorkflowID(in.ID), ok,
		protocol.CodeUnknownFailover)
}

// Newest are the newest failovers, at most this many.
func (h *Handlers) Newest(ctx context.Context, most int) ([]api.FailoverRecord, error) {
	page, err := h.list(ctx, &listInput{RecordPageInput: rest.RecordPageInput{PageSize: most}})
	return page.Items, err
}

func (h *Handlers) list(ctx context.Context, in *listInput) (rest.Page[api.FailoverRecord], error) {
	page, err := rest.PageOf(ctx, h.Core, "list failovers", h.failovers().Page, failoverQuery(in), in.RecordPageInput)
	page.Items = slices.DeleteFunc(page.Items, func(r api.FailoverRecord) bool {
		return in.Status != "" && r.Status != in.Status
	})
	return page, err
}

// failoverQuery is the visibility query of a list.
func failoverQuery(in *listInput) string {
	running := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	var status string
	switch in.Status {
	case "", api.FailoverNoTarget: // which may still follow its tasks
	case api.FailoverRunning:
		status = contract.ExecutionIs(running)
	case api.FailoverFailed: // also of a workflow that failed itself
		status = "ExecutionStatus != " + contract.Quoted(running.String())
	default:
		status = contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	}
	return rest.OfType(contract.FailoverWorkflow, rest.Filter(contract.AttrCluster, in.Cluster),
		rest.Filter(contract.AttrAgent, in.Agent), status)
}

// partialFailover is what Temporal itself knows of a failover.
func partialFailover(k store.Known) (api.FailoverRecord, bool) {
	id, ok := contract.FailoverOfWorkflowID(k.WorkflowID)
	cluster, agent, epoch, _ := contract.ParseFailoverID(id)
	return api.FailoverRecord{ID: id, Cluster: cluster, FailedAgentID: agent, Epoch: epoch, Error: k.Why,
		Status:    store.Standing(k, api.FailoverRunning, api.FailoverFailed),
		StartedAt: k.StartedAt, NoticedAt: k.StartedAt, CompletedAt: k.ClosedAt}, ok
}
