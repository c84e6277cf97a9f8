package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// QueuePlan is how much of the durable queue to measure.
type QueuePlan struct {
	Tasks      int // of mixed priority; of two lanes; of two tenants
	Slots      int // that come to them
	Depth      int // of the deep queue
	DepthSlots int // that drain it; also the slots of the latency benchmark
	Pollers    int // of the bare side's worker for activities
	// Rounds of each side, of LatencyTasks each, at Rate tasks a second; 0: half of what the slower side can do.
	Rounds       int
	LatencyTasks int
	Rate         float64
	Cancels      int
	Returns      int
	Only         []string // parts, by name; empty: all
}

// DefaultQueuePlan takes about fifteen minutes on two cores.
func DefaultQueuePlan() QueuePlan {
	return QueuePlan{Tasks: 1000, Slots: 4, Depth: 10_000, DepthSlots: 32, Rounds: 5, LatencyTasks: 200, Cancels: 30,
		Returns: 20}
}

// The parts of the benchmark.
const (
	partOrder    = "order"
	partLanes    = "lanes"
	partFairness = "fairness"
	partDepth    = "depth"
	partLatency  = "latency"
	partControl  = "control"
)

// QueueParts are the names of all parts, in the order in which they are measured.
func QueueParts() []string {
	return []string{partOrder, partLanes, partFairness, partLatency, partControl, partDepth}
}

// Queue is what was measured of the durable queue. Parts that were not asked for are nil.
type Queue struct {
	Order    *Order     `json:"order,omitempty"`
	Lanes    *Order     `json:"lanes,omitempty"` // the same of two lanes
	Fairness []Fairness `json:"fairness,omitempty"`
	Depth    *Depth     `json:"depth,omitempty"`
	Latency  *Dispatch  `json:"latency,omitempty"`
	Control  *Control   `json:"control,omitempty"`
}

// fairWeights are the tenants' weights, the big one's first.
var fairWeights = [][2]int{{1, 1}, {3, 1}}

// MeasureQueue measures the parts of the plan. The deep queue has installations of its own, with Temporal in a process
// of its own; the other parts share one. What was measured before an error is returned with it.
func MeasureQueue(ctx context.Context, p *QueuePlan, install,
	installTemporal func(context.Context) (*Installation, error), progress io.Writer) (*Queue, error) {
	q := &Queue{}
	var shared *Installation
	stop := func() {
		if shared != nil {
			shared.Stop()
			shared = nil
		}
	}
	defer stop()
	for _, part := range QueueParts() {
		if len(p.Only) > 0 && !slices.Contains(p.Only, part) {
			continue
		}
		var err error
		if part == partDepth {
			stop() // nothing else may run beside it
			q.Depth, err = measureDepth(ctx, p, installTemporal, progress)
		} else {
			if shared == nil {
				if shared, err = install(ctx); err != nil {
					return q, err
				}
			}
			err = q.measure(ctx, part, shared, p, progress)
		}
		if err != nil {
			return q, fmt.Errorf("%s: %w", part, err)
		}
	}
	return q, nil
}

// measure measures one of the parts that share an installation.
func (q *Queue) measure(
	ctx context.Context, part string, i *Installation, p *QueuePlan, progress io.Writer,
) (err error) {
	switch part {
	case partOrder:
		q.Order, err = measureOrder(ctx, i, p, progress)
	case partLanes:
		q.Lanes, err = measureLanes(ctx, i, p, progress)
	case partFairness:
		for _, weights := range fairWeights {
			f, err := measureFairness(ctx, i, p, weights[0], weights[1], progress)
			if err != nil {
				return err
			}
			q.Fairness = append(q.Fairness, *f)
		}
	case partLatency:
		q.Latency, err = measureDispatch(ctx, i, p, progress)
	case partControl:
		q.Control, err = measureControl(ctx, i, p, progress)
	}
	return err
}
