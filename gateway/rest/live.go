package rest

import (
	"context"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// LiveTimeout bounds reading the worker registry: it is an extra, never worth waiting for.
const LiveTimeout = 2 * time.Second

// Live reads the agents' heartbeats that hubs publish. When that fails there are none.
func (c *Core) Live(ctx context.Context) store.Live {
	return c.readLive(ctx, c.Store.Live)
}

// LiveAgent reads the heartbeats of one agent id.
func (c *Core) LiveAgent(ctx context.Context, agent string) store.Live {
	return c.readLive(ctx, func(ctx context.Context) (store.Live, error) { return c.Store.LiveAgent(ctx, agent) })
}

func (c *Core) readLive(ctx context.Context, read func(context.Context) (store.Live, error)) store.Live {
	ctx, cancel := context.WithTimeout(ctx, LiveTimeout)
	defer cancel()
	live, err := read(ctx)
	if err != nil {
		c.Logger.Debug("the worker registry did not answer", zap.Error(err))
	}
	return live
}

// LaneStats reads the backlog of a lane's task queue.
func (c *Core) LaneStats(ctx context.Context, queue string) (store.LaneStats, error) {
	stats, err := c.Store.LaneStats(ctx, queue)
	return stats, c.Answer(err, "read a lane's backlog", protocol.CodeNotFound)
}

// ClusterOfAgent finds the cluster that an agent is a member of, through the live registry, else through all clusters.
func (c *Core) ClusterOfAgent(ctx context.Context, id string) (*contract.ClusterView, store.Live, error) {
	if api.ValidateAgentID(id) != nil {
		return nil, nil, Unknown(protocol.CodeUnknownAgent)
	}
	live := c.LiveAgent(ctx, id)
	if cluster, ok := live.ClusterOf(id); ok {
		if view, err := c.View(ctx, cluster); err == nil && view.Member(id) != nil {
			return &view, live, nil
		}
	}
	views, missing, err := c.Views(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	best := -1
	for i := range views {
		if m := views[i].Member(id); m != nil && (best < 0 || m.StatusSince.After(views[best].Member(id).StatusSince)) {
			best = i
		}
	}
	switch {
	case best < 0 && len(missing) > 0:
		return nil, nil, httpapi.Problem(protocol.CodeUnavailable,
			"no cluster that answers has this agent, and not all clusters answer now: try again")
	case best < 0:
		return nil, nil, Unknown(protocol.CodeUnknownAgent)
	}
	return &views[best], live, nil
}

const (
	// runFresh is how old a schedule's state may be in an overview: overviews are read often, and schedules seldom
	// change.
	runFresh = 5 * time.Second
	// runTimeout bounds reading one: the overview does not wait longer for it.
	runTimeout = time.Second
	// describePatience is how long to ask again for a schedule that Temporal cannot describe yet.
	describePatience = 600 * time.Millisecond
)

// DescribeLoop describes the schedule of healing or scaling. It asks again when Temporal cannot answer, as it does for
// a moment after a schedule was paused, resumed or triggered.
func (c *Core) DescribeLoop(ctx context.Context, id string) (*workflowservice.DescribeScheduleResponse, error) {
	var d *workflowservice.DescribeScheduleResponse
	err := c.WaitUntil(ctx, describePatience, "describe a schedule",
		func(ctx context.Context, last bool) (_ bool, err error) {
			d, err = c.Store.DescribeSchedule(ctx, id)
			if store.KindOf(err) == store.Unavailable && !last {
				return false, nil
			}
			return true, err
		})
	return d, err
}

// ForgetRun makes the next request read a schedule anew.
func (c *Core) ForgetRun(id string) { c.runs.forget(id) }

// ScheduleRun reports whether a schedule runs. A missing one is not remembered, because it will be made soon.
func (c *Core) ScheduleRun(ctx context.Context, id string) (diagnosis.ScheduleRun, error) {
	if run, known := c.runs.get(id); known {
		return run, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	d, err := c.DescribeLoop(ctx, id)
	if store.KindOf(err) == store.NotFound {
		return diagnosis.ScheduleRun{Missing: true}, nil
	}
	if err != nil {
		return diagnosis.ScheduleRun{}, c.Answer(err, "describe a schedule", protocol.CodeInternal)
	}
	run := diagnosis.ScheduleRun{Paused: d.GetSchedule().GetState().GetPaused(),
		Note: d.GetSchedule().GetState().GetNotes()}
	if recent := d.GetInfo().GetRecentActions(); len(recent) > 0 {
		run.Last = recent[len(recent)-1].GetActualTime().AsTime()
	}
	c.runs.put(id, run)
	return run, nil
}
