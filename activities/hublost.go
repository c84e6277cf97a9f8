package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/contract"
)

// NewHubsLost makes and registers the counter of lost hubs.
func NewHubsLost(r prometheus.Registerer) prometheus.Counter {
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mainstay_worker_hubs_lost_total", Help: "Hubs that were given up: their lease ran out and nothing took it again."})
	r.MustRegister(lost)
	return lost
}

// AnnounceHubLost signals every open cluster that a hub is lost. Clusters without agents on it ignore the signal, so
// repeating it does no harm.
func (a *Control) AnnounceHubLost(ctx context.Context, lost contract.HubLost) error {
	err := contract.EachCluster(ctx, a.Client, a.Namespace, func(ctx context.Context, id string) error {
		err := contract.HubLostSignal.Send(ctx, a.Client, id, lost)
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("signal %s: %w", id, err)
		}
		return nil
	})
	if err == nil && a.Lost != nil {
		a.Lost.Inc()
	}
	return err
}
