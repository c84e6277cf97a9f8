package hub

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/part"
	"mainstay.dev/mainstay/store"
)

// reclaimer gives up the members that the clusters count on this hub and that did not come back after it started, or
// after it was out of touch with Temporal. No other part would notice that they died meanwhile.
type reclaimer struct {
	hub  *Hub
	soon part.Signal // asks for another look
}

func newReclaimer(h *Hub) *reclaimer { return &reclaimer{hub: h, soon: part.NewSignal()} }

// Run looks once the agents had the failure threshold to come back, and then after each request.
func (r *reclaimer) Run(ctx context.Context) {
	for {
		backoff.Pause(ctx, r.hub.config.Timing.FailureThreshold)
		retry := backoff.Backoff{First: time.Second, Limit: 30 * time.Second}
		for ; ctx.Err() == nil; retry.Pause(ctx) {
			err := r.giveUpMissing(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			r.hub.log.Warn("The members of an earlier run were not looked at; trying again", zap.Error(err))
		}
		select {
		case <-r.soon:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reclaimer) giveUpMissing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	clusters := store.Store{Client: r.hub.client, Namespace: r.hub.namespace}.Clusters()
	names, err := clusters.Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		view, err := clusters.View(ctx, name)
		if store.KindOf(err) == store.NotFound {
			continue // deleted since it was listed
		}
		if err != nil {
			return fmt.Errorf("query cluster %s: %w", name, err)
		}
		var held map[string][]fleet.HeldAttempt
		if (facts{r.hub}).anyMissing(&view) {
			held, err = (store.Store{Client: r.hub.client, Namespace: r.hub.namespace}).Tasks().HeldAt(
				ctx,
				name,
				r.hub.id,
			)
			if err != nil {
				return err
			}
		}
		if !(facts{r.hub}).giveUpMissing(&view, held) {
			r.soon.Send()
		}
	}
	return nil
}
