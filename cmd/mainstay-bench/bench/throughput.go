package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/controlplane/dev"
)

// throughputPlan is how much to measure, and on what.
type throughputPlan struct {
	rounds  int // of each side, in turns
	tasks   int // in each throughput round
	clients int // that submit at a time in a throughput round
	slots   int // of the agent
	// latencyTasks are submitted in each latency round, one every latencyEvery.
	latencyTasks int
	latencyEvery time.Duration
	// cpu is the processor time used so far, to charge throughput rounds.
	cpu func() CPU

	durability string
	memory     bool
	cpuProfile string
}

// CPU is processor time.
type CPU struct {
	Server time.Duration // of the process with Temporal and the control plane
	All    time.Duration // of all processes that take part, this one included
	Busy   time.Duration // of all programs of the machine
}

// measured is what one side did.
type measured struct {
	Name      string    `json:"name"`
	PerSecond []float64 `json:"tasks_per_second"` // by round
	Median    float64   `json:"median_tasks_per_second"`
	Latencies int       `json:"latencies"`
	P50       float64   `json:"submit_to_begin_p50_ms"`
	P99       float64   `json:"submit_to_begin_p99_ms"`
	Max       float64   `json:"submit_to_begin_max_ms"`
	ServerCPU float64   `json:"server_cpu_ms_per_task"`
	AllCPU    float64   `json:"all_cpu_ms_per_task"`

	latency []time.Duration
	cpu     CPU // of the throughput rounds, for tasks
	tasks   int
}

// sumUp fills what follows from the rest.
func (m *measured) sumUp() {
	latency, tasks := timesOf(m.latency), time.Duration(max(m.tasks, 1))
	m.Median, m.Latencies, m.P50, m.P99, m.Max = median(
		m.PerSecond,
	), latency.Count, latency.P50, latency.P99, latency.Max
	m.ServerCPU, m.AllCPU = milliseconds(m.cpu.Server/tasks), milliseconds(m.cpu.All/tasks)
}

// comparison is one run of all sides.
type comparison struct {
	Storage  string   `json:"storage"`
	Bare     measured `json:"bare"`
	Mainstay measured `json:"mainstay"`
	Stock    measured `json:"bare_on_stock_database"`
}

type throughputReport struct {
	report
	Runs []comparison `json:"runs"`
}

func throughputBenchmark() benchmark {
	p := throughputPlan{latencyEvery: 50 * time.Millisecond}
	return benchmark{
		Command: &cobra.Command{
			Use:   "throughput",
			Short: "Measure tasks a second and latency beside bare Temporal",
			Long: `Measure tasks a second, and the time from submission to the handler's first instruction, of Mainstay beside
bare Temporal: a workflow with one activity for each task, run by a worker of Temporal's SDK. Both use one embedded
server, in turns.`,
			Example: "  mainstay-bench throughput\n  mainstay-bench throughput --durability all --rounds 2",
		},
		numbers: []number{
			{"rounds", &p.rounds, 5, 1, 1000, "rounds of each side"},
			{"tasks", &p.tasks, 400, 1, 100_000, "tasks in a round"},
			{"clients", &p.clients, 16, 1, 1000, "clients that submit at a time"},
			{"slots", &p.slots, 32, 1, 1000, "tasks that the agent runs at a time"},
		},
		flags: func(flags *pflag.FlagSet) {
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
		measure: func(ctx context.Context, r *run) error { return r.throughput(ctx, p) },
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

func (r *run) throughput(ctx context.Context, p throughputPlan) error {
	result := throughputReport{report: r.report}
	for _, s := range p.settings() {
		fmt.Fprintf(r.story,
			"\nStorage: %s. %d rounds of each side, each of %d tasks from %d clients; an agent with %d slots.\n",
			s.storage(), p.rounds, p.tasks, p.clients, p.slots)
		sides, err := r.compare(ctx, p, s)
		if err != nil {
			return err
		}
		result.Runs = append(result.Runs, comparison{s.storage(), sides[0], sides[1], sides[2]})
	}
	return r.print(result, func(w io.Writer) {
		if len(result.Runs) > 1 {
			result.writeStorages(w)
		} else {
			writeThroughput(w, &result.Runs[0])
		}
	})
}

// compare measures the sides on one storage: bare Temporal and Mainstay on one embedded server, and bare Temporal on
// another whose database is as Temporal ships it.
func (r *run) compare(ctx context.Context, p throughputPlan, s Setting) (sides []measured, err error) {
	if p.cpuProfile != "" {
		if s.cpuProfile, err = filepath.Abs(p.cpuProfile); err != nil {
			return sides, err
		}
	}
	i, err := r.install(ctx, s)
	if err != nil {
		return sides, err
	}
	defer i.Stop()
	agents, err := i.Start("agent", "agent", "--hub", i.url, "--id", "bench", "--slots", strconv.Itoa(p.slots))
	if err != nil {
		return sides, err
	}
	temporal, err := i.dial(ctx)
	if err != nil {
		return sides, err
	}
	defer temporal.Close()
	pollers := config.Default().Hub.LanePollers
	bare, err := newBare(temporal, "bare Temporal", bareQueue, pollers)
	if err != nil {
		return sides, err
	}
	defer bare.worker.Stop()
	s.temporalOnly, s.stock, s.cpuProfile = true, true, ""
	other, err := r.install(ctx, s)
	if err != nil {
		return sides, err
	}
	defer other.Stop()
	untouched, err := other.dial(ctx)
	if err != nil {
		return sides, err
	}
	defer untouched.Close()
	stock, err := newBare(untouched, "bare, stock database", bareQueue, pollers)
	if err != nil {
		return sides, err
	}
	defer stock.worker.Stop()
	p.latencyTasks = min(100, p.tasks)
	p.cpu = func() CPU {
		server := cpuTimes(i.plane.PID())
		return CPU{Server: server, All: server + cpuTimes(agents.PID(), os.Getpid()), Busy: busyTime()}
	}
	return p.compare(ctx, []side{bare, mainstay{i.Client, temporal, dev.Cluster}, stock}, r.story)
}

// compare runs the sides in turns, after a round that does not count, and tells progress.
func (p *throughputPlan) compare(ctx context.Context, sides []side, progress io.Writer) ([]measured, error) {
	all := make([]measured, len(sides))
	for i, s := range sides {
		all[i].Name = s.Name()
		if _, err := throughput(ctx, s, p.tasks/4, p.clients); err != nil {
			return all, err
		}
	}
	err := inTurns(p.rounds, len(sides), func(round, i int) error {
		m, before := &all[i], p.cpu()
		perSecond, err := throughput(ctx, sides[i], p.tasks, p.clients)
		if err != nil {
			return err
		}
		after := p.cpu()
		m.tasks += p.tasks
		m.cpu.Server += after.Server - before.Server
		m.cpu.All += after.All - before.All
		m.cpu.Busy += after.Busy - before.Busy
		tasks, err := dispatch(ctx, sides[i], p.latencyTasks, p.latencyEvery)
		if err != nil {
			return err
		}
		times := make([]time.Duration, len(tasks))
		for n, t := range tasks {
			times[n] = t.began.Sub(t.submitted)
		}
		m.PerSecond, m.latency = append(m.PerSecond, perSecond), append(m.latency, times...)
		fmt.Fprintf(progress, "round %d/%d  %-20s %6.1f tasks/s  p50 %.1f ms\n", round, p.rounds, m.Name, perSecond,
			timesOf(times).P50)
		return nil
	})
	for i := range all {
		all[i].sumUp()
	}
	return all, err
}

// writeThroughput prints bare Temporal and Mainstay with their ratio, and Mainstay beside a stock database.
func writeThroughput(w io.Writer, c *comparison) {
	bare, mainstay := &c.Bare, &c.Mainstay
	t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
	t.compare(fmt.Sprintf("throughput, median of %d rounds", len(bare.PerSecond)), "%.1f tasks/s", bare.Median,
		mainstay.Median)
	t.row("throughput, median of the rounds' ratios", "", "",
		fmt.Sprintf("%.2f", medianRatio(mainstay.PerSecond, bare.PerSecond)))
	t.latencies("submit → begin", Times{P50: bare.P50, P99: bare.P99, Max: bare.Max},
		Times{P50: mainstay.P50, P99: mainstay.P99, Max: mainstay.Max})
	if bare.AllCPU > 0 && mainstay.AllCPU > 0 {
		t.compare("processor time per task, server process", "%.1f ms", bare.ServerCPU, mainstay.ServerCPU)
		t.compare("processor time per task, all processes", "%.1f ms", bare.AllCPU, mainstay.AllCPU)
	}
	if bare.cpu.Busy > 0 && mainstay.cpu.Busy > 0 {
		t.row("share of used processor time that other programs took", fmt.Sprintf("%.0f %%", bare.cpu.others()),
			fmt.Sprintf("%.0f %%", mainstay.cpu.others()), "")
	}
	t.compare("throughput beside bare Temporal on its stock database", "%.1f tasks/s", c.Stock.Median, mainstay.Median)
	t.flush()
}

// others is the share in percent of the used processor time that programs took which have no part in the measurement.
// With more than a few per cent, throughput tells little.
func (c CPU) others() float64 { return 100 * max(0, c.Busy-c.All).Seconds() / c.Busy.Seconds() }

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
