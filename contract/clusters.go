package contract

import (
	"context"
	"fmt"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/fleet"
)

// ConfigOf is a cluster's configuration by its memo. A cluster that was started by other means than the gateway may have
// none there.
func ConfigOf(cluster *workflowpb.WorkflowExecutionInfo) (config fleet.ClusterConfig, ok bool) {
	ok = Decode(cluster.GetMemo().GetFields()[MemoConfig], &config)
	return config, ok
}

// EachCluster calls do with the workflow id of every open cluster of a namespace, as visibility knows them: one that was
// made within the last second may be missing. It ends with the first error.
func EachCluster(ctx context.Context, c client.Client, namespace string, do func(ctx context.Context, workflowID string) error) error {
	for cluster, err := range Workflows(ctx, c, namespace, OpenClusters()) {
		if err != nil {
			return fmt.Errorf("list clusters: %w", err)
		}
		if err := do(ctx, cluster.GetExecution().GetWorkflowId()); err != nil {
			return err
		}
	}
	return nil
}
