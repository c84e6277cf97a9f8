package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// settingsKnown is how long a change of a cluster's settings may be unknown to the steps of runs.
const settingsKnown = 2 * time.Second

// ClusterPlaces asks clusters where tasks go. It keeps their answers for a moment.
type ClusterPlaces struct {
	Control *Control
	views   views
}

func (p *ClusterPlaces) view(ctx context.Context, cluster string) (contract.ClusterView, error) {
	return p.views.since(ctx, cluster, time.Now().Add(-settingsKnown), 0, p.Control.view)
}

// Place says where a step's task goes; see Places.
func (p *ClusterPlaces) Place(
	ctx context.Context, id string, spec api.TaskSpec,
) (place contract.TaskPlace, problem string, err error) {
	view, err := p.view(ctx, spec.Cluster)
	switch {
	case store.KindOf(err) == store.NotFound, err == nil && !view.Config.IsFor(spec.Tenant):
		return place, "there is no cluster " + spec.Cluster, nil
	case err != nil:
		return place, "", err
	}
	place, err = p.Control.placeIn(ctx, &view, spec, cmp.Or(spec.ShardKey, id))
	if store.KindOf(err) == store.Refused {
		return place, store.Refusal(err), nil
	}
	return place, "", err
}

// mostResults bounds the results of an array's elements that expressions see.
const mostResults = 4 << 20

// Results are what the elements of an array returned; see Places.
func (p *ClusterPlaces) Results(ctx context.Context, id string) (map[int]json.RawMessage, string, error) {
	arrays := store.Store{Client: p.Control.Client, Namespace: p.Control.Namespace}.Arrays()
	a, err := arrays.Describe(ctx, id)
	if err != nil {
		return nil, "", err
	}
	found, bytes := map[int]json.RawMessage{}, 0
	for at, more := (*store.ResultsAt)(nil), true; more; more = at != nil {
		page, next, err := arrays.Results(ctx, &a, at, api.MaxElements)
		if at = next; err != nil {
			return nil, "", err
		}
		for _, r := range page {
			if bytes += len(r.Output); bytes > mostResults {
				return nil, "the results of its elements have more than 4 MiB: declare no output, and read them with mainstay array results", nil
			}
			found[r.Element] = r.Output
		}
	}
	return found, "", nil
}
