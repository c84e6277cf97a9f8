package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/testsuite/bench"
)

// throughput is the command line of `bench throughput`.
type throughput struct {
	rounds, tasks, clients, slots int
	durability                    string
	memory                        bool
	cpuProfile                    string
}

// sideReport is what one side did, for -o json.
type sideReport struct {
	Name           string    `json:"name"`
	TasksPerSecond []float64 `json:"tasks_per_second"`
	Median         float64   `json:"median_tasks_per_second"`
	Latencies      int       `json:"latencies"`
	P50            float64   `json:"submit_to_begin_p50_ms"`
	P99            float64   `json:"submit_to_begin_p99_ms"`
	Max            float64   `json:"submit_to_begin_max_ms"`
	ServerCPU      float64   `json:"server_cpu_ms_per_task"`
	AllCPU         float64   `json:"all_cpu_ms_per_task"`
}

// comparison is one run of both sides.
type comparison struct {
	Storage  string     `json:"storage"`
	Bare     sideReport `json:"bare"`
	Mainstay sideReport `json:"mainstay"`
	measured [2]bench.Measured
}

type throughputReport struct {
	Machine bench.Machine `json:"machine"`
	Runs    []comparison  `json:"runs"`
}

func throughputCommand(a *app.App) *cobra.Command {
	b := throughput{}
	command := &cobra.Command{
		Use:   "throughput",
		Short: "Measure tasks a second and latency beside bare Temporal",
		Long: `Measure tasks a second, and the time from submission to the handler's first instruction, of Mainstay beside bare
Temporal: a workflow with one activity for each task, run by a worker of Temporal's SDK. Both use one embedded server, in
turns.`,
		Example: "  mainstay bench throughput\n  mainstay bench throughput --durability all --rounds 2",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.check(c.Flags().Changed("durability")); err != nil {
				return err
			}
			return runBench(a, func(run *run) error { return run.throughput(c.Context(), b) })
		},
	}
	plan := bench.DefaultPlan()
	flags := command.Flags()
	flags.IntVar(&b.rounds, "rounds", plan.Rounds, "rounds of each side")
	flags.IntVar(&b.tasks, "tasks", plan.Tasks, "tasks in a round")
	flags.IntVar(&b.clients, "clients", plan.Clients, "clients that submit at a time")
	flags.IntVar(&b.slots, "slots", 32, "tasks that the agent runs at a time")
	flags.StringVar(&b.durability, "durability", string(config.DurableProcess),
		"as --durability of mainstay dev: process, power or none; all runs each")
	flags.BoolVar(&b.memory, "memory", false, "keep Temporal's data in memory")
	flags.StringVar(&b.cpuProfile, "cpu-profile", "", "write a CPU profile of the control plane to this file")
	_ = flags.MarkHidden("cpu-profile") // it exists
	a.OutputFlag(command)
	return command
}

func (b *throughput) check(durabilityGiven bool) error {
	for _, n := range []struct {
		flag       string
		value, max int
	}{{"--rounds", b.rounds, 1000}, {"--tasks", b.tasks, 100_000}, {"--clients", b.clients, 1000}, {"--slots", b.slots,
		1000}} {
		if n.value < 1 || n.value > n.max {
			return app.UsageError("%s must be 1 to %d", n.flag, n.max)
		}
	}
	switch b.durability {
	case "all", string(config.DurableProcess), string(config.DurablePower), string(config.DurableNone):
	default:
		return app.UsageError("--durability must be process, power, none or all")
	}
	if b.memory && durabilityGiven {
		return app.UsageError("give --memory or --durability, not both")
	}
	return nil
}

// settings are the storages to measure, with their names.
func (b *throughput) settings() (names []string, settings []bench.Setting) {
	switch {
	case b.memory:
		return []string{"memory"}, []bench.Setting{{Memory: true}}
	case b.durability != "all":
		return []string{b.durability}, []bench.Setting{{Durability: b.durability}}
	}
	for _, d := range []config.Durability{config.DurablePower, config.DurableProcess, config.DurableNone} {
		names, settings = append(names, string(d)), append(settings, bench.Setting{Durability: string(d)})
	}
	return append(names, "memory"), append(settings, bench.Setting{Memory: true})
}

func (b *run) throughput(ctx context.Context, plan throughput) error {
	report := throughputReport{Machine: b.machine}
	names, settings := plan.settings()
	for i, s := range settings {
		fmt.Fprintf(b.story,
			"\nStorage: %s. %d rounds of each side, each of %d tasks from %d clients; an agent with %d slots.\n", names[i], plan.rounds, plan.tasks, plan.clients, plan.slots)
		run, err := b.compare(ctx, plan, s)
		if err != nil {
			return err
		}
		run.Storage = names[i]
		report.Runs = append(report.Runs, *run)
	}
	return b.Print(report, func() error {
		if len(report.Runs) > 1 {
			return report.writeStorages(b.App)
		}
		fmt.Fprintln(b.Stdout)
		bench.WriteTable(b.Stdout, report.Runs[0].measured[0], report.Runs[0].measured[1])
		return nil
	})
}

// compare measures both sides on one storage.
func (b *run) compare(ctx context.Context, t throughput, s bench.Setting) (_ *comparison, err error) {
	if t.cpuProfile != "" {
		if s.CPUProfile, err = filepath.Abs(t.cpuProfile); err != nil {
			return nil, err
		}
	}
	installation, err := b.install(ctx, s)
	if err != nil {
		return nil, err
	}
	defer installation.Stop()
	agentProcess, err := installation.Start("agent", "bench", "agent", "--hub", installation.URL, "--id", "bench",
		"--slots", strconv.Itoa(t.slots))
	if err != nil {
		return nil, err
	}
	client, err := installation.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	bare, err := bench.NewBare(client, config.Default().Hub.LanePollers)
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	mainstay, err := bench.NewMainstay(client, installation.URL, dev.Cluster, t.clients)
	if err != nil {
		return nil, err
	}
	plan := bench.DefaultPlan()
	plan.Rounds, plan.Tasks, plan.Clients = t.rounds, t.tasks, t.clients
	plan.LatencyTasks = min(plan.LatencyTasks, t.tasks)
	plan.CPU = func() bench.CPU {
		server := bench.CPUTimes(installation.PID())
		return bench.CPU{Server: server, All: server + bench.CPUTimes(agentProcess.PID(), os.Getpid()),
			Busy: bench.BusyTime()}
	}
	measured, err := bench.Compare(ctx, plan, [2]bench.Side{bare, mainstay}, b.story)
	if err != nil {
		return nil, err
	}
	return &comparison{Bare: sideOf(measured[0]), Mainstay: sideOf(measured[1]), measured: measured}, nil
}

func sideOf(m bench.Measured) sideReport {
	latency, tasks := bench.Summarize(m.Latency), time.Duration(max(m.Tasks, 1))
	return sideReport{
		Name: m.Name, TasksPerSecond: m.PerSecond, Median: bench.Median(m.PerSecond), Latencies: latency.Count,
		P50: milliseconds(latency.P50), P99: milliseconds(latency.P99), Max: milliseconds(latency.Max),
		ServerCPU: milliseconds(m.CPU.Server / tasks), AllCPU: milliseconds(m.CPU.All / tasks),
	}
}

// writeStorages compares the storages, ready for docs/BENCHMARKS.md.
func (r *throughputReport) writeStorages(a *app.App) error {
	t := app.NewTable(a.Stdout, "| storage", "| bare, tasks/s", "| Mainstay, tasks/s", "| ratio", "| bare p50",
		"| Mainstay p50", "|")
	t.Row("|---", "|---", "|---", "|---", "|---", "|---", "|")
	for _, run := range r.Runs {
		t.Row("| "+run.Storage, fmt.Sprintf("| %.1f", run.Bare.Median), fmt.Sprintf("| %.1f", run.Mainstay.Median),
			fmt.Sprintf("| %.2f", run.Mainstay.Median/run.Bare.Median),
			fmt.Sprintf("| %.1f ms", run.Bare.P50), fmt.Sprintf("| %.1f ms", run.Mainstay.P50), "|")
	}
	fmt.Fprintln(a.Stdout)
	return t.Flush()
}
