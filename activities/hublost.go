// Package activities holds the activities that call anything but agents, one struct per set of dependencies. The
// activities that call agents run in hubs.
package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
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
	return contract.EachCluster(ctx, a.Client, a.Namespace, func(ctx context.Context, id string) error {
		err := a.Client.SignalWorkflow(ctx, id, "", contract.HubLostSignal, lost)
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("signal %s: %w", id, err)
		}
		return nil
	})
}
