package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
)

// throughputPlan is how much to measure, and on what.
type throughputPlan struct {
	rounds, tasks, clients, slots int
	durability                    string
	memory                        bool
	cpuProfile                    string
}

// A round at a low rate has this many tasks, or as many as the others if those have fewer.
const (
	quietTasks = 100
	quietEvery = 50 * time.Millisecond
)

// comparison is one run of all sides.
type comparison struct {
	Storage  string `json:"storage"`
	Bare     Side   `json:"bare"`
	Mainstay Side   `json:"mainstay"`
	Stock    Side   `json:"bare_on_stock_database"`
}

type throughputReport struct {
	report
	Runs []comparison `json:"runs"`
}

func throughputBenchmark() benchmark {
	p := throughputPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "throughput",
			Short: "Measure tasks a second and latency beside bare Temporal",
			Long: `Measure tasks a second, and the time from submission to the handler's first instruction, of Mainstay beside
bare Temporal: a workflow with one activity for each task, run by a worker of Temporal's SDK. Both use one embedded
server, in turns.`,
			Example: "  mainstay-bench throughput\n  mainstay-bench throughput --durability all --rounds 2",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.rounds, "rounds", 5, "rounds of each side")
			flags.IntVar(&p.tasks, "tasks", 400, "tasks in a round")
			flags.IntVar(&p.clients, "clients", 16, "clients that submit at a time")
			flags.IntVar(&p.slots, "slots", 32, "tasks that the agent runs at a time")
			flags.StringVar(&p.durability, "durability", string(config.DurableProcess),
				"as --durability of mainstay dev: process, power or none; all runs each")
			flags.BoolVar(&p.memory, "memory", false, "keep Temporal's data in memory")
			flags.StringVar(&p.cpuProfile, "cpu-profile", "", "write a CPU profile of the control plane to this file")
			_ = flags.MarkHidden("cpu-profile") // it exists
		},
		check: func(flags *pflag.FlagSet) error {
			switch p.durability {
			case "all", string(config.DurableProcess), string(config.DurablePower), string(config.DurableNone):
			default:
				return app.UsageError("--durability must be process, power, none or all")
			}
			if p.memory && flags.Changed("durability") {
				return app.UsageError("give --memory or --durability, not both")
			}
			return nil
		},
		measure: func(ctx context.Context, r *run) error { return r.throughput(ctx, &p) },
	}
}

// settings are the storages to measure.
func (p *throughputPlan) settings() (settings []Setting) {
	switch {
	case p.memory:
		return []Setting{{memory: true}}
	case p.durability != "all":
		return []Setting{{durability: p.durability}}
	}
	for _, d := range []config.Durability{config.DurablePower, config.DurableProcess, config.DurableNone} {
		settings = append(settings, Setting{durability: string(d)})
	}
	return append(settings, Setting{memory: true})
}

func (r *run) throughput(ctx context.Context, p *throughputPlan) error {
	result := throughputReport{report: r.report}
	for _, s := range p.settings() {
		fmt.Fprintf(r.story,
			"\nStorage: %s. %d rounds of each side, each of %d tasks from %d clients; an agent with %d slots.\n",
			s.storage(), p.rounds, p.tasks, p.clients, p.slots)
		sides, err := r.compareOn(ctx, p, s)
		if err != nil {
			return err
		}
		result.Runs = append(result.Runs, comparison{s.storage(), sides[0], sides[1], sides[2]})
	}
	return r.print(result, func(w io.Writer) {
		if len(result.Runs) > 1 {
			result.writeStorages(w)
		} else {
			result.Runs[0].write(w)
		}
	})
}

// compareOn measures the sides on one storage: bare Temporal and Mainstay on one embedded server, and bare Temporal on
// another whose database is as Temporal ships it.
func (r *run) compareOn(ctx context.Context, p *throughputPlan, s Setting) (sides []Side, err error) {
	if p.cpuProfile != "" {
		if s.cpuProfile, err = filepath.Abs(p.cpuProfile); err != nil {
			return nil, err
		}
	}
	i, err := r.install(ctx, s)
	if err != nil {
		return nil, err
	}
	defer i.Stop()
	c, err := i.oneAgent(ctx, p.slots)
	if err != nil {
		return nil, err
	}
	ofBare, err := startBare(i, bareQueue)
	if err != nil {
		return nil, err
	}
	s.temporalOnly, s.stock, s.cpuProfile = true, true, ""
	other, err := r.install(ctx, s)
	if err != nil {
		return nil, err
	}
	defer other.Stop()
	ofStock, err := startBare(other, bareQueue)
	if err != nil {
		return nil, err
	}
	stock := p.contender("bare, stock database", ofStock)
	stock.n = 0 // its server is not the one whose processor time is read
	return r.compare(ctx, p.rounds, "tasks/s", func() CPU { return i.used(append(c.pids(), os.Getpid())...) },
		p.contender("bare Temporal", ofBare), p.contender("Mainstay", mainstay{i, c.cluster, taskType}), stock)
}

// contender makes a side do tasks as fast as it can, and then some at a low rate.
func (p *throughputPlan) contender(name string, s side) contender {
	return contender{name: name, n: p.tasks,
		work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
			perSecond, err := throughput(ctx, s, some(part, p.tasks), p.clients)
			return perSecond, nil, err
		},
		rest: func(ctx context.Context) ([]time.Duration, error) {
			tasks, err := dispatch(ctx, s, min(quietTasks, p.tasks), quietEvery)
			return tasks.waits(), err
		}}
}

// write prints bare Temporal and Mainstay with their ratio, and Mainstay beside a stock database.
func (c *comparison) write(w io.Writer) {
	bare, mainstay := &c.Bare, &c.Mainstay
	t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
	t.sides("throughput", "%.1f tasks/s", "submit → begin", bare, mainstay)
	t.compare("processor time per task, server process", "%.1f ms", bare.ServerCPU, mainstay.ServerCPU)
	t.compare("processor time per task, all processes", "%.1f ms", bare.AllCPU, mainstay.AllCPU)
	t.others(bare, mainstay)
	t.compare("throughput beside bare Temporal on its stock database", "%.1f tasks/s", c.Stock.Median, mainstay.Median)
	t.flush()
}

// writeStorages compares the storages.
func (r *throughputReport) writeStorages(w io.Writer) {
	t := newTable(w, "storage", "bare, tasks/s", "Mainstay, tasks/s", "ratio", "bare p50", "Mainstay p50")
	for i := range r.Runs {
		b, m := &r.Runs[i].Bare, &r.Runs[i].Mainstay
		t.row(r.Runs[i].Storage, fmt.Sprintf("%.1f", b.Median), fmt.Sprintf("%.1f", m.Median),
			fmt.Sprintf("%.2f", m.Median/b.Median), fmt.Sprintf("%.1f ms", b.P50), fmt.Sprintf("%.1f ms", m.P50))
	}
	t.flush()
}
