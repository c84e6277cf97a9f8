// Package activities holds the activities that call anything but agents, one struct for each set of dependencies. Its
// methods are the activities of their names. The activities that call agents run in hubs.
package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// Control does what workflows ask of Temporal and of other workflows.
type Control struct {
	Client    client.Client
	Namespace string
	// Lost counts the hubs that were announced; nil: nobody counts.
	Lost prometheus.Counter
	// Cycles measures the healing cycles; nil: nobody measures.
	Cycles *HealingMetrics
}

func (a *Control) store() store.Store { return store.Store{Client: a.Client, Namespace: a.Namespace} }

func (a *Control) clusters() store.Clusters { return a.store().Clusters() }

func (a *Control) tasks() store.Tasks { return a.store().Tasks() }

// watchUntil looks again and again, ever more rarely, until look is done or fails; each look is a sign of life.
func watchUntil(ctx context.Context, most time.Duration, look func() (done bool, err error)) error {
	for wait := watchFirst; ; wait = min(wait*3/2, most) {
		if done, err := look(); done || err != nil {
			return err
		}
		activity.RecordHeartbeat(ctx)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AnnounceHubLost signals every open cluster that a hub is lost. Clusters without agents on it ignore the signal, so
// repeating it does no harm.
func (a *Control) AnnounceHubLost(ctx context.Context, lost contract.HubLost) error {
	names, err := a.clusters().Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := contract.HubLostSignal.Send(ctx, a.Client, contract.ClusterWorkflowID(name), lost)
		if err != nil && store.KindOf(err) != store.NotFound {
			return fmt.Errorf("signal cluster %s: %w", name, err)
		}
	}
	if a.Lost != nil {
		a.Lost.Inc()
	}
	return nil
}
