package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// Types is how soon tasks of one type begin while many of another wait for their own agents, of Mainstay and of bare
// Temporal: from just before the submission to the first instruction.
type Types struct {
	Backlog  int   `json:"backlog"` // that waits
	Agents   int   `json:"agents"`  // of each type
	Slots    int   `json:"slots"`   // of each agent
	Rate     int   `json:"tasks_per_second"`
	Mainstay Times `json:"mainstay"`
	Bare     Times `json:"bare"`
}

func (t *Types) write(w io.Writer) {
	fmt.Fprintf(w, "%d tasks of another type wait; each type has %d agents of %d slots\n\n", t.Backlog, t.Agents, t.Slots)
	table := newTable(w, fmt.Sprintf("%d tasks of each at %d tasks/s", t.Mainstay.Count, t.Rate), "bare Temporal",
		"Mainstay", "ratio")
	table.latencies("submitted → begin", t.Bare, t.Mainstay)
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
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.backlog, "backlog", 10_000, "tasks of the other type that wait")
			flags.IntVar(&p.tasks, "tasks", 400, "tasks that are measured")
			flags.IntVar(&p.rate, "rate", 20, "of these a second")
			flags.IntVar(&p.agents, "agents", 3, "agents of each type")
			flags.IntVar(&p.slots, "slots", 4, "slots of each agent")
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
	if err := t.measureBare(ctx, r, p); err != nil {
		return fmt.Errorf("bare Temporal: %w", err)
	}
	if err := t.measureMainstay(ctx, r, p); err != nil {
		return fmt.Errorf("side mainstay: %w", err)
	}
	return nil
}

func (t *Types) measureBare(ctx context.Context, r *run, p *typesPlan) error {
	i, err := r.install(ctx, Setting{temporalOnly: true})
	if err != nil {
		return err
	}
	defer i.Stop()
	waiting, err := startBareQueue(i)
	if err != nil {
		return err
	}
	if err := waiting.startMany(ctx, 0, p.backlog); err != nil {
		return err
	}
	if err := i.awaitBacklog(ctx, bareQueue, p.backlog); err != nil {
		return err
	}
	free, err := startBare(i, bareQueue+"-free")
	if err != nil {
		return err
	}
	t.Bare, err = p.timed(ctx, free)
	return err
}

func (t *Types) measureMainstay(ctx context.Context, r *run, p *typesPlan) error {
	i, err := r.install(ctx, Setting{temporalOnly: true, roles: "hub,gateway,worker"})
	if err != nil {
		return err
	}
	defer i.Stop()
	c := newCrew(i, "bench-types", 2*p.agents)
	c.slots, c.types = p.slots, []string{workType}
	if err := c.create(ctx, api.ActiveActive); err != nil {
		return err
	}
	if err := c.startAgents(ctx, c.ids[:p.agents]...); err != nil {
		return err
	}
	busy := p.agents * p.slots
	if err := c.submitBatches(ctx, 0, p.backlog+busy, api.TaskSpec{Type: workType, Payload: work(noLimit),
		ExpiresIn: api.Duration(noLimit)}); err != nil {
		return err
	}
	if err := i.awaitBacklog(ctx, contract.ClusterLane(c.cluster), p.backlog); err != nil {
		return err
	}
	c.types = []string{taskType}
	if err := c.startAgents(ctx, c.ids[p.agents:]...); err != nil {
		return err
	}
	t.Mainstay, err = p.timed(ctx, mainstay{i, c.cluster, taskType})
	return err
}

// typesWarmup is how many tasks go through before any counts.
const typesWarmup = 20

// timed submits tasks of the type whose agents are free.
func (p *typesPlan) timed(ctx context.Context, s side) (Times, error) {
	every := time.Second / time.Duration(p.rate)
	if _, err := dispatch(ctx, s, typesWarmup, every); err != nil {
		return Times{}, err
	}
	tasks, err := dispatch(ctx, s, p.tasks, every)
	return timesOf(tasks.waits()), err
}
