package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// Types is how soon tasks of one type begin while many of another wait for their own agents, of Mainstay and of bare
// Temporal.
type Types struct {
	Backlog  int          `json:"backlog"` // that waits
	Agents   int          `json:"agents"`  // of each type
	Slots    int          `json:"slots"`   // of each agent
	Rate     int          `json:"tasks_per_second"`
	Mainstay DispatchSide `json:"mainstay"`
	Bare     DispatchSide `json:"bare"`
}

// DispatchSide is how long tasks of one side took.
type DispatchSide struct {
	Acknowledged Times `json:"acknowledged"`      // from the acknowledgement to the first instruction
	Submitted    Times `json:"submitted"`         // from just before the submission
	Early        int   `json:"begun_before_told"` // began before the acknowledgement: they count as 0
}

// judge sums up a side's tasks.
func (s *DispatchSide) judge(tasks []dispatched) {
	acknowledged, submitted := make([]time.Duration, len(tasks)), make([]time.Duration, len(tasks))
	for n, t := range tasks {
		submitted[n] = t.began.Sub(t.submitted)
		if acknowledged[n] = t.began.Sub(t.acknowledged); acknowledged[n] < 0 {
			acknowledged[n] = 0
			s.Early++
		}
	}
	s.Acknowledged, s.Submitted = timesOf(acknowledged), timesOf(submitted)
}

func (t *Types) write(w io.Writer) {
	fmt.Fprintf(w, "%d tasks of another type wait; each type has %d agents of %d slots\n\n", t.Backlog, t.Agents, t.Slots)
	b, m := &t.Bare, &t.Mainstay
	table := newTable(w, fmt.Sprintf("%d tasks of each at %d tasks/s", m.Acknowledged.Count, t.Rate), "bare Temporal",
		"Mainstay", "ratio")
	table.latencies("acknowledged → begin", b.Acknowledged, m.Acknowledged)
	table.latencies("submitted → begin", b.Submitted, m.Submitted)
	table.row("began before the acknowledgement was there (counted as 0)", b.Early, m.Early, "")
	table.flush()
}

// typesPlan is what to measure.
type typesPlan struct{ backlog, tasks, rate, agents, slots int }

func typesBenchmark() benchmark {
	p := &typesPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "types",
			Short: "Measure how soon a task begins while many of another type wait",
			Long: `Measure how soon tasks of one type begin on agents with free slots, while the agents of another type are all
busy and many of its tasks wait, beside bare Temporal with a task queue for each type. Each side has a Temporal of its
own.`,
			Example: "  mainstay-bench types\n  mainstay-bench types --backlog 100000",
		},
		numbers: []number{
			{"backlog", &p.backlog, 10_000, 100, 1_000_000, "tasks of the other type that wait"},
			{"tasks", &p.tasks, 400, 1, 100_000, "tasks that are measured"},
			{"rate", &p.rate, 20, 1, 1000, "of these a second"},
			{"agents", &p.agents, 3, 1, 100, "agents of each type"},
			{"slots", &p.slots, 4, 1, 100, "slots of each agent"},
		},
		measure: func(ctx context.Context, r *run) error {
			result := struct {
				report
				*Types
			}{r.report, &Types{Backlog: p.backlog, Agents: p.agents, Slots: p.slots, Rate: p.rate}}
			if err := result.measure(ctx, r, p); err != nil {
				return err
			}
			return r.print(result, result.write)
		},
	}
}

func (t *Types) measure(ctx context.Context, r *run, p *typesPlan) error {
	if err := r.inTemporal(ctx, func(i *Installation, c client.Client) error {
		workflows, err := startBareWorkflows(c)
		if err != nil {
			return err
		}
		defer workflows.Stop()
		if err := startMany(ctx, c, 0, p.backlog); err != nil {
			return err
		}
		if err := awaitBacklog(ctx, c, i.namespace, bareQueue, p.backlog); err != nil {
			return err
		}
		free, err := newBare(c, "bare Temporal", bareQueue+"-free", config.Default().Hub.LanePollers)
		if err != nil {
			return err
		}
		defer free.worker.Stop()
		return t.Bare.measure(ctx, free, p, r.story)
	}); err != nil {
		return fmt.Errorf("bare Temporal: %w", err)
	}
	if err := r.inTemporal(ctx, func(i *Installation, c client.Client) error {
		if err := i.startServe(ctx, "hub,gateway,worker"); err != nil {
			return err
		}
		crew := newCrew(i, "bench-types", 2*p.agents)
		crew.slots, crew.types = p.slots, []string{workType}
		if err := crew.create(ctx, fleet.ActiveActive, nil); err != nil {
			return err
		}
		defer crew.leave()
		if err := crew.startAgents(ctx, crew.ids[:p.agents]...); err != nil {
			return err
		}
		busy := p.agents * p.slots
		if err := crew.submitBatches(ctx, newTasks(crew.cluster, p.backlog+busy, func(_ int, task *api.TaskRequest) {
			task.Payload, task.ExpiresIn = work(noLimit), fleet.Duration(noLimit)
		}), r.story); err != nil {
			return err
		}
		lane := contract.ClusterLane(crew.cluster)
		if err := awaitBacklog(ctx, c, i.namespace, lane, p.backlog); err != nil {
			return err
		}
		crew.types = []string{taskType}
		if err := crew.startAgents(ctx, crew.ids[p.agents:]...); err != nil {
			return err
		}
		return t.Mainstay.measure(ctx, mainstay{i.Client, c, crew.cluster}, p, r.story)
	}); err != nil {
		return fmt.Errorf("side mainstay: %w", err)
	}
	return nil
}

// typesWarmup is how many tasks go through before any counts.
const typesWarmup = 20

// measure submits tasks of the type whose agents are free.
func (s *DispatchSide) measure(ctx context.Context, of side, p *typesPlan, progress io.Writer) error {
	every := time.Second / time.Duration(p.rate)
	if _, err := dispatch(ctx, of, typesWarmup, every); err != nil {
		return err
	}
	tasks, err := dispatch(ctx, of, p.tasks, every)
	s.judge(tasks)
	fmt.Fprintf(progress, "%s: p50 %.1f ms, p99 %.1f ms\n", of.Name(), s.Submitted.P50, s.Submitted.P99)
	return err
}
