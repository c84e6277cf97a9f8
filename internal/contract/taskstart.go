package contract

import (
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// TaskStart is how the workflow of a task is started, whoever starts it: the gateway, or a schedule's firing.
type TaskStart struct {
	WorkflowID string
	Attributes temporal.SearchAttributes
	Memo       map[string]any
	Summary    string
	Priority   temporal.Priority
}

// StartOf makes the start of a task; weight is its tenant's in the cluster, 0 if it has none.
func StartOf(id string, spec *api.TaskSpec, weight float64) TaskStart {
	attributes := []temporal.SearchAttributeUpdate{AttrCluster.ValueSet(spec.Cluster), AttrTaskType.ValueSet(spec.Type)}
	if spec.Agent != "" {
		attributes = append(attributes, AttrAgent.ValueSet(spec.Agent))
	}
	if spec.Tenant != "" {
		attributes = append(attributes, AttrTenant.ValueSet(spec.Tenant))
	}
	terms := LabelList(spec.Labels)
	for _, needs := range task.LaneNeedsOf(spec, false) {
		if lane := task.LaneFor(&needs); task.IsOpened(lane) {
			terms = append(terms, LaneTerm(lane))
			if needs.Type = spec.Type; task.IsFitLane(lane) { // which of the two it waits in may change
				terms = append(terms, LaneTerm(task.LaneFor(&needs)))
			}
		}
	}
	if len(terms) > 0 {
		attributes = append(attributes, AttrLabels.ValueSet(terms))
	}
	memo := map[string]any{}
	if needs := task.CapabilitiesOf(spec); len(needs) > 0 {
		memo[MemoCapabilities] = needs
	}
	if !spec.Place.IsZero() {
		memo[MemoPlace] = spec.Place
	}
	if safety := spec.Safety(); safety != api.Idempotent {
		memo[MemoSafety] = safety
	}
	if !spec.StartAt.IsZero() {
		memo[MemoStartAt] = spec.StartAt
	}
	switch {
	case !spec.ExpiresAt.IsZero():
		memo[MemoExpiresAt] = spec.ExpiresAt
	case spec.KeepRunning:
		memo[MemoExpiresIn] = api.Duration(0)
	case spec.Expiration() != api.DefaultExpiration:
		memo[MemoExpiresIn] = api.Duration(spec.Expiration())
	}
	return TaskStart{
		WorkflowID: TaskWorkflowID(id), Attributes: temporal.NewSearchAttributes(attributes...), Memo: memo,
		Summary: spec.Type + " in " + spec.Cluster,
		Priority: temporal.Priority{PriorityKey: int(spec.Priority), FairnessKey: spec.Tenant,
			FairnessWeight: float32(weight)},
	}
}

// Repeat says in the start which task this one repeats.
func (s *TaskStart) Repeat(of string) {
	terms, _ := s.Attributes.GetKeywordList(AttrLabels)
	s.Attributes = temporal.NewSearchAttributes(s.Attributes.Copy(),
		AttrLabels.ValueSet(append(slices.Clone(terms), RerunTerm(of))))
}

// Options start the workflow once: a second start with the same id is refused.
func (s *TaskStart) Options() client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                                       s.WorkflowID,
		TaskQueue:                                WorkerQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         true,
		TypedSearchAttributes:                    s.Attributes,
		Memo:                                     s.Memo,
		StaticSummary:                            s.Summary,
		Priority:                                 s.Priority,
	}
}

// LabelList is the labels as the search attribute has them: sorted LabelTerms.
func LabelList(labels map[string]string) []string {
	list := make([]string, 0, len(labels))
	//workflowcheck:ignore
	for name, value := range labels { // in any order: they are sorted below
		list = append(list, LabelTerm(name, value))
	}
	slices.Sort(list)
	return list
}
