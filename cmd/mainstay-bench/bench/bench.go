// Package bench has the benchmarks of Mainstay, beside bare Temporal where there is something to compare.
// Both sides do the same work on the same server in one run, in turns, so that a slow minute of the machine hits both;
// what counts is the ratio.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/cli/app"
)

// Command is the program's root command, with the hidden processes that the benchmarks start.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "mainstay-bench",
		Short:   "Measure Mainstay on this machine",
		Version: a.Version,
		Long: `Measure Mainstay on this machine. Each benchmark starts a control plane with an embedded Temporal of its own,
on free ports and in a temporary folder, and leaves nothing behind. What is measured, and how, is in
docs/BENCHMARKS.md. The program mainstay is the one beside this one, else the one in the PATH.`,
	}
	command.PersistentPreRunE = a.StopUnread
	for _, b := range []benchmark{throughputBenchmark(), runsBenchmark(), arraysBenchmark(), failoverBenchmark(),
		idleBenchmark(), queueBenchmark(), gatewayBenchmark(), attackBenchmark(), fleetBenchmark(),
		servicesBenchmark(), typesBenchmark()} {
		command.AddCommand(b.command(a))
	}
	command.AddCommand(agentCommand(a), temporalCommand(a))
	return command
}

// benchmark is one of the commands, with its options. Numbers and durations have the bounds of package app.
type benchmark struct {
	*cobra.Command
	flags   func(*pflag.FlagSet)
	only    *[]string                  // names of parts; nil: it has none
	parts   []string                   // that only may name
	check   func(*pflag.FlagSet) error // of the options; nil: nothing to check
	measure func(context.Context, *run) error
}

// command makes the command. Its options are checked before anything starts.
func (b *benchmark) command(a *app.App) *cobra.Command {
	flags := b.Flags()
	b.flags(flags)
	if b.only != nil {
		flags.StringSliceVar(b.only, "only", nil, "what to measure (default: all)")
	}
	a.OutputFlag(b.Command)
	b.Args = app.Exactly()
	b.RunE = func(c *cobra.Command, _ []string) error {
		if err := b.refuse(c.Flags()); err != nil {
			return err
		}
		p, err := findPrograms(a)
		if err != nil {
			return err
		}
		machine, err := thisMachine(c.Context(), p.mainstay, a.Now())
		if err != nil {
			return err
		}
		return runBench(a, p, machine, func(r *run) error { return b.measure(c.Context(), r) })
	}
	return b.Command
}

// refuse checks the options.
func (b *benchmark) refuse(flags *pflag.FlagSet) error {
	if b.only != nil {
		for _, name := range *b.only {
			if !slices.Contains(b.parts, name) {
				return app.UsageError("--only must name some of %s", strings.Join(b.parts, ", "))
			}
		}
	}
	if b.check == nil {
		return nil
	}
	return b.check(flags)
}

// wanted reports whether a part is to be measured.
func wanted(only []string, part string) bool { return len(only) == 0 || slices.Contains(only, part) }

// report begins what a benchmark prints as JSON.
type report struct {
	Machine Machine `json:"machine"` // what its numbers depend on
}

// run is one benchmark under way.
type run struct {
	*app.App
	programs
	report
	story io.Writer // takes its progress
	dir   string    // for data and logs
}

// runBench prints machine, version and day, and measures. Output written before a failure stays.
func runBench(a *app.App, p programs, machine Machine, measure func(*run) error) error {
	dir, err := os.MkdirTemp("", "mainstay-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	r := &run{App: a, programs: p, report: report{machine}, story: a.Storyteller(), dir: dir}
	fmt.Fprintln(r.story, r.Machine)
	if err := measure(r); err != nil {
		return fmt.Errorf("%w\nLogs are kept in %s", err, dir)
	}
	_ = os.RemoveAll(dir)
	return nil
}

// programs are files of programs that benchmarks start.
type programs struct{ mainstay, self string }

func findPrograms(a *app.App) (p programs, err error) {
	if p.self, err = os.Executable(); err != nil {
		return p, fmt.Errorf("find this program's file, to start it again: %w", err)
	}
	p.mainstay, err = a.Program("mainstay")
	return p, err
}

// print prints what was measured: as JSON, or as a table.
func (r *run) print(data any, write func(io.Writer)) error {
	return r.Print(data, func() error {
		fmt.Fprintln(r.Stdout)
		write(r.Stdout)
		return nil
	})
}

// table is one of docs/BENCHMARKS.md.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)}
	t.row(header...)
	fmt.Fprintln(t.w, strings.Repeat("|---\t", len(header))+"|")
	return t
}

func (t table) row(cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(t.w, "| %v\t", cell)
	}
	fmt.Fprintln(t.w, "|")
}

// compare adds a row with bare Temporal, Mainstay and their ratio. format is that of one number.
func (t table) compare(name, format string, bare, mainstay float64) {
	t.row(name, fmt.Sprintf(format, bare), fmt.Sprintf(format, mainstay), fmt.Sprintf("%.2f", mainstay/bare))
}

// latencies adds the rows of some latencies.
func (t table) latencies(name string, bare, mainstay Times) {
	t.compare(name+", p50", "%.1f ms", bare.P50, mainstay.P50)
	t.compare(name+", p99", "%.1f ms", bare.P99, mainstay.P99)
	t.compare(name+", max", "%.1f ms", bare.Max, mainstay.Max)
}

func (t table) flush() { _ = t.w.Flush() }

func ofACore(percent float64) string { return fmt.Sprintf("%.1f %% of a core", percent) }
