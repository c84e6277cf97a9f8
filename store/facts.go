package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// factsAnswer bounds how long one cluster may take to answer.
const factsAnswer = 5 * time.Second

// Facts asks every open cluster, or only those named, and the live registry. A cluster that does not answer is listed
// as silent; one that was deleted meanwhile is left out. It writes nothing: clusters are queried, and the live registry
// is in memory.
func (s Clusters) Facts(ctx context.Context, names ...string) (fleet.FleetFacts, error) {
	facts := fleet.FleetFacts{At: time.Now().UTC()}
	if len(names) == 0 {
		var err error
		if names, err = s.Names(ctx); err != nil {
			return facts, err
		}
	}
	live, err := s.Live(ctx)
	if err != nil {
		return facts, fmt.Errorf("list the agents in the live registry: %w", err)
	}
	views, errs := s.ViewEach(ctx, names, factsAnswer)
	for i := range views {
		switch v := &views[i]; {
		case errs[i] == nil:
			facts.Clusters = append(facts.Clusters, fleet.ClusterFacts{
				Cluster: v.Cluster, CreatedAt: v.CreatedAt, Live: live.Facts(&v.Cluster),
			})
		case KindOf(errs[i]) != NotFound:
			facts.Silent = append(facts.Silent, names[i])
		}
	}
	if ctx.Err() != nil {
		return facts, fmt.Errorf("read how the fleet stands: %w", ctx.Err())
	}
	slices.SortFunc(facts.Clusters, func(a, b fleet.ClusterFacts) int {
		return strings.Compare(a.Config.Name,
			b.Config.Name)
	})
	slices.Sort(facts.Silent)
	return facts, nil
}
