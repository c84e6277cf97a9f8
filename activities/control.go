// Package activities holds the activities that call anything but agents, one struct for each set of dependencies. Its
// methods are the activities of their names. The activities that call agents run in hubs.
package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
)

const (
	// announceTimeout bounds one try to announce a lost hub. It leaves time for the heartbeat that lists who is left.
	announceTimeout = 22 * time.Second
	// heldTimeout bounds the search for the work of a lost hub's agents.
	heldTimeout = 10 * time.Second
	// signalTimeout bounds one signal to a cluster.
	signalTimeout = 5 * time.Second
)

// Control does what workflows ask of Temporal and of other workflows.
type Control struct {
	Client    client.Client
	Namespace string
	// Lost counts the hubs that were announced; nil: nobody counts.
	Lost prometheus.Counter
	// Cycles measures the healing cycles; nil: nobody measures.
	Cycles *HealingMetrics

	looks looks
	views views
	pages turns // of bulk operations
	pins  store.Pins
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

// heldAt finds the attempts of a cluster at a lost hub. Not to know them must not hold the failovers up.
func (a *Control) heldAt(ctx context.Context, cluster, hub string) store.Held {
	view, err := a.view(ctx, cluster)
	if err != nil || !slices.Contains(view.Hubs(), hub) {
		return nil
	}
	held, err := a.tasks().HeldAt(ctx, cluster, hub)
	if err != nil {
		activity.GetLogger(ctx).Info("The work of a lost hub's agents is not known", "cluster", cluster, "error", err)
	}
	return held
}

// endHeld ends the attempts of a lost hub's agents, except agents that are with another hub now, so that the work need
// not wait for its backstop. How long fenced work may still go on is unknown.
func (a *Control) endHeld(ctx context.Context, cluster, hub string, held store.Held) {
	view, err := a.view(ctx, cluster)
	if err == nil {
		held = slices.DeleteFunc(held, func(t store.Task) bool {
			m := view.Member(t.Running().AgentID)
			return m != nil && m.Serving()
		})
		_, err = a.tasks().EndHeld(ctx, held, "worker", "its hub was lost", nil)
	}
	if err != nil {
		activity.GetLogger(ctx).Info("Attempts of a lost hub wait for their backstop", "cluster", cluster, "hub", hub,
			"error", err)
	}
}

// AnnounceHubLost signals every open cluster that a hub is lost, or only the one whose brake held its agents. Clusters
// without agents on it ignore the signal. One unreachable cluster does not stop the others. A repeated try signals only
// the rest, which the heartbeat lists: the others' agents may be with a new process of the hub by then.
func (a *Control) AnnounceHubLost(ctx context.Context, lost contract.HubLost) error {
	telling, stop := context.WithTimeout(ctx, announceTimeout)
	defer stop()
	names, err := a.untold(telling, lost)
	if err != nil {
		return err
	}
	search, cancel := context.WithTimeout(telling, heldTimeout)
	defer cancel()
	var untried, left []string
	var failed []error
	for i, name := range names {
		if telling.Err() != nil {
			untried, failed = names[i:], append(failed, telling.Err())
			break
		}
		if err := a.tellHubLost(telling, search, name, lost); err != nil {
			left, failed = append(left, name), append(failed, fmt.Errorf("signal cluster %s: %w", name, err))
		}
	}
	if err := errors.Join(failed...); err != nil {
		activity.RecordHeartbeat(ctx, slices.Concat(untried, left))
		return err
	}
	if a.Lost != nil && !lost.Held {
		a.Lost.Inc()
	}
	return nil
}

// untold are the clusters without the signal about a lost hub: all, or those that an earlier try left.
func (a *Control) untold(ctx context.Context, lost contract.HubLost) (names []string, err error) {
	switch {
	case activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &names) == nil:
		return names, nil
	case lost.Held:
		return []string{lost.Cluster}, nil
	}
	return a.clusters().Names(ctx)
}

// tellHubLost signals one cluster that a hub is lost. A cluster that refuses the signal would refuse it for ever, and
// the hub gets no lease before all have it: so the signal is given up, unless only this cluster waits for it.
func (a *Control) tellHubLost(ctx, search context.Context, cluster string, lost contract.HubLost) error {
	held := a.heldAt(search, cluster, lost.Hub)
	lost.Attempts = held.Attempts()
	signal, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	err := contract.HubLostSignal.Send(signal, a.Client, contract.ClusterWorkflowID(cluster), lost)
	if kind := store.KindOf(err); kind == store.Invalid && !lost.Held {
		activity.GetLogger(ctx).Error("A cluster refuses to be told that a hub is lost", "cluster", cluster,
			"hub", lost.Hub, "error", err)
	} else if err != nil && kind != store.NotFound {
		return err
	}
	if len(held) > 0 {
		a.endHeld(search, cluster, lost.Hub, held)
	}
	return nil
}
