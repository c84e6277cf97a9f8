package gateway

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

type submitInput struct {
	Body TaskRequest
}

type submitOutput struct {
	Status int
	Body   Task
}

func (g *Gateway) registerSubmit(api huma.API) {
	task := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Task](), true, "Task")
	huma.Register(api, huma.Operation{
		OperationID: "submit-task", Method: http.MethodPost, Path: "/api/v1/agents/tasks", Tags: []string{"Tasks"},
		Summary: "Submit a task", DefaultStatus: http.StatusAccepted,
		Description: "Answers 202 once the task is durable. A task whose id or idempotency key was submitted before is answered as it stands, with 200 and \"duplicate\": true; with another body it is refused with 409 idempotency_conflict.",
		Responses: map[string]*huma.Response{"200": {
			Description: "It was submitted before", Content: map[string]*huma.MediaType{"application/json": {Schema: task}},
		}},
	}, func(ctx context.Context, in *submitInput) (*submitOutput, error) {
		task, err := g.submit(ctx, &in.Body)
		if err != nil {
			return nil, err
		}
		status := http.StatusAccepted
		if task.Duplicate {
			status = http.StatusOK
		}
		return &submitOutput{Status: status, Body: task}, nil
	})
	g.registerBatch(api)
}

// submit starts the task's workflow, or answers the task that was started under its id before.
func (g *Gateway) submit(ctx context.Context, r *TaskRequest) (task Task, err error) {
	defer func() { g.count(task, err) }()
	spec := r.spec()
	if err := spec.Validate(); err != nil {
		return Task{}, invalid("body", err)
	}
	if err := fleet.ValidateStartAt(spec.StartAt, time.Now()); err != nil {
		return Task{}, invalid("body.start_at", err)
	}
	digest, err := spec.Digest()
	if err != nil {
		return Task{}, invalid("body.payload", err)
	}
	id, err := r.taskID(g.newID)
	if err != nil {
		return Task{}, invalid("body.id", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	facts, err := g.knownCluster(ctx, spec.Cluster)
	if err != nil {
		return Task{}, err
	}
	if facts.shards > 0 && spec.ShardKey == "" {
		spec.ShardKey = id
	}
	lane := contract.Lane(&spec, facts.shards)
	if len(spec.RequiredCapabilities) > 0 && lane == contract.CapabilityLane(spec.Cluster, spec.RequiredCapabilities) {
		if err := g.openLane(ctx, spec.Cluster, spec.RequiredCapabilities); err != nil {
			return Task{}, err
		}
	}
	run, err := g.client.ExecuteWorkflow(ctx, startOptions(id, &spec, digest, facts.weights[spec.Tenant]), contract.TaskWorkflow,
		contract.TaskInput{TaskID: id, Spec: spec, Lane: lane, DeadLetterRetention: facts.deadLetterRetention})
	if isAny[*serviceerror.WorkflowExecutionAlreadyStarted](err) {
		return g.duplicate(ctx, id, digest)
	}
	if err != nil {
		return Task{}, g.answer(err, "start a task", protocol.CodeInternal)
	}
	return newTask(id, &spec, run.GetRunID()), nil
}

// duplicate answers the task that was submitted before, unless that was with another body.
func (g *Gateway) duplicate(ctx context.Context, id, digest string) (Task, error) {
	description, err := g.describeTask(ctx, id)
	if err != nil {
		return Task{}, err
	}
	if first := taskOf(description.GetWorkflowExecutionInfo()).digest; first != "" && first != digest {
		return Task{}, httpapi.Problem(protocol.CodeIdempotency,
			"a task with this id or idempotency key was submitted before with another body: submit the same body, or use another id or key")
	}
	task, err := g.complete(ctx, description)
	task.Duplicate = true
	return task, err
}

func (g *Gateway) count(task Task, err error) {
	switch {
	case err != nil:
		g.submitted.WithLabelValues("rejected").Inc()
	case task.Duplicate:
		g.submitted.WithLabelValues("duplicate").Inc()
	default:
		g.submitted.WithLabelValues("accepted").Inc()
	}
}

// startOptions start a task; weight is its tenant's in the cluster, 0 if it has none.
func startOptions(id string, spec *fleet.TaskSpec, digest string, weight float64) client.StartWorkflowOptions {
	attributes := []temporal.SearchAttributeUpdate{
		contract.AttrCluster.ValueSet(spec.Cluster),
		contract.AttrTaskType.ValueSet(spec.Type),
	}
	if spec.Agent != "" {
		attributes = append(attributes, contract.AttrAgent.ValueSet(spec.Agent))
	}
	if spec.Tenant != "" {
		attributes = append(attributes, contract.AttrTenant.ValueSet(spec.Tenant))
	}
	if len(spec.Labels) > 0 {
		attributes = append(attributes, contract.AttrLabels.ValueSet(labelList(spec.Labels)))
	}
	memo := map[string]any{contract.MemoDigest: digest}
	if len(spec.RequiredCapabilities) > 0 {
		memo[memoCapabilities] = spec.RequiredCapabilities
	}
	if !spec.StartAt.IsZero() {
		memo[contract.MemoStartAt] = spec.StartAt
	}
	return client.StartWorkflowOptions{
		ID:                                       contract.TaskWorkflowID(id),
		TaskQueue:                                contract.WorkerQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         true,
		TypedSearchAttributes:                    temporal.NewSearchAttributes(attributes...),
		Memo:                                     memo,
		StaticSummary:                            spec.Type + " in " + spec.Cluster,
		Priority:                                 temporal.Priority{PriorityKey: int(spec.Priority), FairnessKey: spec.Tenant, FairnessWeight: float32(weight)},
	}
}

// memoCapabilities is the memo field with a task's required capabilities; it says why a task waits without reading its
// history.
const memoCapabilities = "required_capabilities"

// labelList is the labels as the search attribute has them, sorted.
func labelList(labels map[string]string) []string {
	list := make([]string, 0, len(labels))
	for name, value := range labels {
		list = append(list, contract.LabelTerm(name, value))
	}
	slices.Sort(list)
	return list
}
