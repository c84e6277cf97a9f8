package registry

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/limit"
)

const (
	// Looks for one agent id: how many a second, and at once. Beyond that one look at all ids serves onlineFor.
	onlineRate, onlineBurst = 10.0, 20
	onlineFor               = time.Second
)

// Online knows in which clusters agent ids are online, by the registry. That goes through all agents for each question,
// so registrations that come together share one.
type Online struct {
	hub   part.Hub
	alone *limit.Rate

	mu       sync.Mutex
	readAt   time.Time
	clusters map[string][]string // by agent
}

// NewOnline knows nothing yet.
func NewOnline(hub part.Hub) *Online {
	return &Online{hub: hub, alone: limit.NewRate(onlineRate, onlineBurst)}
}

// ClustersOf are the clusters in which an agent id is online.
func (o *Online) ClustersOf(ctx context.Context, agent string, now time.Time) ([]string, error) {
	if o.alone.Take("", 1, now) == 0 {
		found, err := o.hub.OnlineIn(ctx, agent)
		return found[agent], err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.readAt) >= onlineFor {
		all, err := o.hub.OnlineIn(ctx, "")
		if err != nil {
			return nil, err
		}
		o.readAt, o.clusters = time.Now(), all
	}
	return o.clusters[agent], nil
}
