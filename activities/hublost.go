package activities

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// NewHubsLost makes and registers the counter of lost hubs.
func NewHubsLost(r prometheus.Registerer) prometheus.Counter {
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mainstay_worker_hubs_lost_total",
		Help: "Hubs that were given up: their lease ran out and nothing took it again."})
	r.MustRegister(lost)
	return lost
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
