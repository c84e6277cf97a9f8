package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
)

// queuePlan is how much of the durable queue to measure.
type queuePlan struct {
	tasks      int // of mixed priority; of two lanes; of two tenants
	slots      int // that come to them
	depth      int // of the deep queue
	depthSlots int // that drain it; also the slots of the latency benchmark
	pollers    int // of the bare side's worker for activities
	// rounds of each side, of latencyTasks each, at rate tasks a second; 0: half of what the slower side can do.
	rounds       int
	latencyTasks int
	rate         float64
	cancels      int
	returns      int
	only         []string // parts, by name; empty: all
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

// queueParts are the names of all parts, in the order in which they are measured. Depth is the last: nothing else may
// run beside it.
var queueParts = []string{"order", "lanes", "fairness", "latency", "control", partDepth}

const partDepth = "depth"

// fairWeights are the tenants' weights, the big one's first.
var fairWeights = [][2]int{{1, 1}, {3, 1}}

func queueBenchmark() benchmark {
	p := &queuePlan{pollers: config.Default().Hub.LanePollers}
	return benchmark{
		Command: &cobra.Command{
			Use:   "queue",
			Short: "Measure the durable queue: order, fairness, latency, obedience, depth",
			Long: `Measure the durable queue with real processes.

order     tasks of mixed priority queue up while nobody serves them, then a few slots come: in which order they begin
lanes     likewise with an agent that serves two lanes, which Temporal orders each by itself
fairness  likewise with two tenants, one with nine times as many tasks, at equal weights and at 3 : 1
latency   from a task's acknowledgement to its first instruction, at half load, beside bare Temporal
control   from a cancel to the end of the running command, and from an offline agent's return to its waiting task
depth     a deep queue is filled through /tasks/batch and drained, beside bare Temporal: rates, and its memory`,
			Example: "  mainstay bench queue\n  mainstay bench queue --only depth --depth 50000\n" +
				"  mainstay bench queue --only order,fairness,control",
		},
		numbers: []number{
			{"tasks", &p.tasks, 1000, 20, 100_000, "tasks of order, of lanes and of fairness"},
			{"slots", &p.slots, 4, 1, 1000, "slots that come to them"},
			{"depth", &p.depth, 10_000, 10, 1_000_000, "tasks of the deep queue"},
			{"depth-slots", &p.depthSlots, 32, 1, 1000, "slots that drain it, and slots of latency"},
			{"rounds", &p.rounds, 5, 1, 1000, "rounds of latency, of each side"},
			{"latency-tasks", &p.latencyTasks, 200, 1, 100_000, "tasks in a round of latency"},
			{"cancels", &p.cancels, 30, 1, 1000, "running commands to cancel"},
			{"returns", &p.returns, 20, 1, 1000, "returns of an offline agent"},
		},
		only:  &p.only,
		parts: queueParts,
		flags: func(flags *pflag.FlagSet) {
			flags.Float64Var(&p.rate, "rate", 0,
				"tasks a second in a round of latency (default: half of what the slower side can do)")
			app.MayBeZero(flags, "rate")
		},
		check: func(*pflag.FlagSet) error {
			if p.rate < 0 || p.rate > 10_000 {
				return app.UsageError("--rate must be 0 to 10000")
			}
			return nil
		},
		measure: func(ctx context.Context, r *run) error {
			result := struct {
				report
				*Queue
			}{r.report, &Queue{}}
			err := result.measure(ctx, r, p)
			return errors.Join(r.Print(result, func() error { result.write(r.Stdout); return nil }), err)
		},
	}
}

// measure measures the parts of the plan. The deep queue has installations of its own, each with its own
// Temporal. The other parts share one. What was measured before an error stays.
func (q *Queue) measure(ctx context.Context, r *run, p *queuePlan) error {
	var shared *Installation
	stop := func() {
		if shared != nil {
			shared.Stop()
			shared = nil
		}
	}
	defer stop()
	for _, part := range queueParts {
		if !wanted(p.only, part) {
			continue
		}
		var err error
		switch {
		case part == partDepth:
			stop()
			q.Depth, err = r.measureDepth(ctx, p)
		case shared == nil:
			if shared, err = r.install(ctx, Setting{}); err != nil {
				return err
			}
			fallthrough
		default:
			err = q.measurePart(ctx, part, shared, p, r.story)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// measurePart measures one of the parts that share an installation.
func (q *Queue) measurePart(
	ctx context.Context, part string, i *Installation, p *queuePlan, progress io.Writer,
) (err error) {
	switch part {
	case "order":
		q.Order, err = measureOrder(ctx, i, p, progress)
	case "lanes":
		q.Lanes, err = measureLanes(ctx, i, p, progress)
	case "fairness":
		for _, weights := range fairWeights {
			f, err := measureFairness(ctx, i, p, weights[0], weights[1], progress)
			if err != nil {
				return err
			}
			q.Fairness = append(q.Fairness, *f)
		}
	case "latency":
		q.Latency, err = measureDispatch(ctx, i, p, progress)
	case "control":
		q.Control, err = measureControl(ctx, i, p, progress)
	}
	return err
}

// write prints what was measured as tables.
func (q *Queue) write(w io.Writer) {
	for _, part := range []struct {
		measured bool
		title    string
		write    func(io.Writer)
	}{
		{q.Order != nil, "Order", q.Order.write},
		{q.Lanes != nil, "Two lanes, priority 1 for a capability and 5 for any agent", q.Lanes.write},
		{len(q.Fairness) > 0, "Fairness", func(w io.Writer) { writeFairness(w, q.Fairness) }},
		{q.Latency != nil, "Dispatch latency", q.Latency.write},
		{q.Control != nil, "Control", q.Control.write},
		{q.Depth != nil, "Depth", q.Depth.write},
	} {
		if part.measured {
			fmt.Fprintf(w, "\n%s:\n\n", part.title)
			part.write(w)
		}
	}
}
