package contract

import (
	"context"
	"iter"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// readPage is how many entries one call to visibility or to the live registry brings.
const readPage = 1000

// Workflows are all workflows that a visibility query finds; what changed within the last second may be missing. An error
// ends them.
func Workflows(ctx context.Context, c client.Client, namespace, query string) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		var page []byte
		for {
			found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
				Namespace: namespace, PageSize: readPage, NextPageToken: page, Query: query,
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range found.GetExecutions() {
				if !yield(info, nil) {
					return
				}
			}
			if page = found.GetNextPageToken(); len(page) == 0 {
				return
			}
		}
	}
}

// OpenClusters is the visibility query for the clusters that there are.
func OpenClusters() string {
	return Equals("WorkflowType", ClusterWorkflow) + " AND " + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
}

// LiveAgents are the entries of agents in the live registry that a query finds. An error ends them.
func LiveAgents(ctx context.Context, c client.Client, namespace, query string) iter.Seq2[*workerpb.WorkerHeartbeat, error] {
	return func(yield func(*workerpb.WorkerHeartbeat, error) bool) {
		var page []byte
		for {
			found, err := c.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
				Namespace: namespace, PageSize: readPage, NextPageToken: page, Query: query,
			})
			if err != nil {
				yield(nil, err)
				return
			}
			//nolint:staticcheck // deprecated, but what replaces it has no load and no slots, and needs a call for each agent
			for _, worker := range found.GetWorkersInfo() {
				heartbeat := worker.GetWorkerHeartbeat()
				if _, _, ok := AgentOfIdentity(heartbeat.GetWorkerIdentity()); ok && !yield(heartbeat, nil) {
					return
				}
			}
			if page = found.GetNextPageToken(); len(page) == 0 {
				return
			}
		}
	}
}

// AllAgents is the query of the live registry for every agent.
const AllAgents = "WorkerIdentity STARTS_WITH 'agent/'"

// Decode reads a field of a memo or a search attribute. It reports whether it is there and can be read.
func Decode(field *commonpb.Payload, into any) bool {
	return field != nil && converter.GetDefaultDataConverter().FromPayload(field, into) == nil
}

// Keyword is the value of a search attribute, "" where it is not set.
func Keyword(fields map[string]*commonpb.Payload, attribute temporal.SearchAttributeKeyKeyword) string {
	var value string
	Decode(fields[attribute.GetName()], &value)
	return value
}
