package gateway

import (
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// liveTimeout bounds reading the worker registry: it is an extra, never worth waiting for.
const liveTimeout = 2 * time.Second

// live reads the agents' heartbeats that hubs publish. When that fails there are none.
func (g *Gateway) live(ctx context.Context) store.Live {
	return g.readLive(ctx, g.store.Live)
}

// liveAgent reads the heartbeats of one agent id.
func (g *Gateway) liveAgent(ctx context.Context, agent string) store.Live {
	return g.readLive(ctx, func(ctx context.Context) (store.Live, error) { return g.store.LiveAgent(ctx, agent) })
}

func (g *Gateway) readLive(ctx context.Context, read func(context.Context) (store.Live, error)) store.Live {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	live, err := read(ctx)
	if err != nil {
		g.logger.Debug("the worker registry did not answer", zap.Error(err))
	}
	return live
}

// laneStats reads the backlog of a lane's task queue.
func (g *Gateway) laneStats(ctx context.Context, queue string) (store.LaneStats, error) {
	stats, err := g.store.LaneStats(ctx, queue)
	return stats, g.answer(err, "read a lane's backlog", protocol.CodeNotFound)
}
