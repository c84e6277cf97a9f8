package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/testsuite/bench"
)

// run is one benchmark under way.
type run struct {
	*app.App
	machine bench.Machine // what its numbers depend on; told before anything is measured
	story   io.Writer     // takes its progress
	dir     string        // for data and logs
}

// runBench tells which machine, commit and day this is, and measures. What was written stays if that fails.
func runBench(a *app.App, measure func(*run) error) error {
	dir, err := os.MkdirTemp("", "mainstay-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	b := &run{App: a, machine: bench.ThisMachine(a.Version, a.Now()), story: a.Storyteller(), dir: dir}
	fmt.Fprintln(b.story, b.machine)
	if err := measure(b); err != nil {
		return fmt.Errorf("%w\nLogs are kept in %s", err, dir)
	}
	_ = os.RemoveAll(dir)
	return nil
}

// install starts a control plane in a folder of its own.
func (b *run) install(ctx context.Context, s bench.Setting) (*bench.Installation, error) {
	var err error
	if s.Program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program's file, to start it again: %w", err)
	}
	if s.Dir, err = os.MkdirTemp(b.dir, "installation-"); err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	installation, err := bench.Install(ctx, s)
	if err != nil {
		return nil, err
	}
	force := installation.Stop
	b.AtForce.Store(&force)
	return installation, nil
}

// installer is install for benchmarks that start several control planes.
func (b *run) installer(s bench.Setting) func(context.Context) (*bench.Installation, error) {
	return func(ctx context.Context) (*bench.Installation, error) { return b.install(ctx, s) }
}

// table prints what was measured, ready for docs/BENCHMARKS.md.
func (b *run) table(title string, rows [][2]string) error {
	fmt.Fprintln(b.Stdout)
	t := app.NewTable(b.Stdout, "| "+title, "|   |")
	t.Row("|---", "|---|")
	for _, row := range rows {
		t.Row("| "+row[0], "| "+row[1]+" |")
	}
	return t.Flush()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
