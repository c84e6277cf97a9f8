package contract

import (
	"context"
	"fmt"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// EachCluster calls do with the workflow id of every open cluster of a namespace, as visibility knows them: one that was
// made within the last second may be missing. It ends with the first error.
func EachCluster(ctx context.Context, c client.Client, namespace string, do func(ctx context.Context, workflowID string) error) error {
	var page []byte
	for {
		found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: namespace, NextPageToken: page, PageSize: 200,
			Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", ClusterWorkflow),
		})
		if err != nil {
			return fmt.Errorf("list clusters: %w", err)
		}
		for _, cluster := range found.GetExecutions() {
			if err := do(ctx, cluster.GetExecution().GetWorkflowId()); err != nil {
				return err
			}
		}
		if page = found.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}
