// Package activities holds the activities that call anything but agents, one struct per set of dependencies. The
// activities that call agents run in hubs.
package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
)

// Clusters acts on all Cluster workflows of a namespace.
type Clusters struct {
	Client    client.Client
	Namespace string
}

// AnnounceHubLost signals every open cluster that a hub is lost. Clusters without agents on it ignore the signal, so
// repeating it does no harm.
func (a *Clusters) AnnounceHubLost(ctx context.Context, lost contract.HubLost) error {
	var page []byte
	for {
		found, err := a.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: a.Namespace,
			Query:     fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", contract.ClusterWorkflow),
			PageSize:  200, NextPageToken: page,
		})
		if err != nil {
			return fmt.Errorf("list clusters: %w", err)
		}
		for _, cluster := range found.GetExecutions() {
			id := cluster.GetExecution().GetWorkflowId()
			err := a.Client.SignalWorkflow(ctx, id, "", contract.HubLostSignal, lost)
			var gone *serviceerror.NotFound
			if err != nil && !errors.As(err, &gone) {
				return fmt.Errorf("signal %s: %w", id, err)
			}
		}
		if page = found.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}
