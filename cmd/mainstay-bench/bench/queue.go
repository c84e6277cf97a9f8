package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// queuePlan is how much to measure.
type queuePlan struct{ depth, slots int }

func queueBenchmark() benchmark {
	p := &queuePlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "queue",
			Short: "Measure what a deep queue costs",
			Long: `Measure a deep queue beside bare Temporal: it is filled through /tasks/batch while no agent is
there, and then drained. How many tasks a second each takes, and the memory that waiting tasks need.`,
			Example: "  mainstay-bench queue\n  mainstay-bench queue --depth 50000",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.depth, "depth", 10_000, "tasks of the queue")
			flags.IntVar(&p.slots, "slots", 32, "slots that drain it")
		},
		measure: func(ctx context.Context, r *run) error {
			result := struct {
				report
				*Depth
			}{report: r.report}
			var err error
			result.Depth, err = r.measureDepth(ctx, p)
			return errors.Join(r.print(result, result.write), err)
		},
	}
}

// Depth is what a deep queue costs, of Mainstay and of bare Temporal.
type Depth struct {
	Tasks    int       `json:"tasks"`
	Slots    int       `json:"slots"`
	Mainstay DepthSide `json:"mainstay"`
	Bare     DepthSide `json:"bare"`
}

// DepthSide is one of the two. Its process is that of hub, gateway and worker, or of the bare workers.
type DepthSide struct {
	SubmittedPerSecond float64       `json:"submitted_per_second"` // until the last was acknowledged
	QueuedPerSecond    float64       `json:"queued_per_second"`    // until the last waited in its lane
	DrainedPerSecond   float64       `json:"drained_per_second"`   // from the slots' coming to the last close
	DrainCPU           float64       `json:"drain_cpu_ms_per_task"`
	Memory             []MemoryState `json:"memory"`
}

// MemoryState is how much memory is used at one moment, in bytes.
type MemoryState struct {
	When     string `json:"when"`
	Queued   int    `json:"queued"`
	Resident int64  `json:"resident"`          // RSS of the side's process
	Heap     int64  `json:"heap"`              // its Go heap, after a collection
	Temporal int64  `json:"temporal_resident"` // RSS of Temporal's process
}

// When memory is read.
const (
	whenEmpty   = "before"
	whenHalf    = "half"
	whenFull    = "full"
	whenDrained = "drained"
)

// state is the memory at one of these; zero when it was not read.
func (s *DepthSide) state(when string) MemoryState {
	for _, m := range s.Memory {
		if m.When == when {
			return m
		}
	}
	return MemoryState{When: when}
}

// heapPerTask is how much the heap grew for each queued task, in bytes, over the whole queue and over its second half
// alone: memory that is flat from some depth on shows in the latter.
func (s *DepthSide) heapPerTask() (whole, secondHalf float64) {
	before, half, full := s.state(whenEmpty), s.state(whenHalf), s.state(whenFull)
	return perQueued(before, full), perQueued(half, full)
}

func perQueued(from, to MemoryState) float64 {
	if to.Queued <= from.Queued {
		return 0
	}
	return float64(to.Heap-from.Heap) / float64(to.Queued-from.Queued)
}

// depthWarmup is how many tasks go through before anything counts, so that one-time allocations are done.
const depthWarmup = 200

// write prints both sides and their ratio.
func (d *Depth) write(w io.Writer) {
	b, m := &d.Bare, &d.Mainstay
	t := newTable(w, fmt.Sprintf("%d tasks, %d slots", d.Tasks, d.Slots), "bare Temporal", "Mainstay", "ratio")
	t.compare("submitted, acknowledged", "%.1f tasks/s", b.SubmittedPerSecond, m.SubmittedPerSecond)
	t.compare("submitted, until queued", "%.1f tasks/s", b.QueuedPerSecond, m.QueuedPerSecond)
	t.compare("drained", "%.1f tasks/s", b.DrainedPerSecond, m.DrainedPerSecond)
	t.compare("processor time per drained task", "%.1f ms", b.DrainCPU, m.DrainCPU)
	mebibytes := func(n int64) float64 { return float64(n) / (1 << 20) }
	moments := []string{whenEmpty, whenHalf, whenFull, whenDrained}
	for _, when := range moments {
		x, y := b.state(when), m.state(when)
		t.compare(fmt.Sprintf("heap, %s (%d queued)", when, y.Queued), "%.1f MiB", mebibytes(x.Heap), mebibytes(y.Heap))
	}
	for _, when := range moments {
		t.compare("resident, "+when, "%.1f MiB", mebibytes(b.state(when).Resident), mebibytes(m.state(when).Resident))
	}
	bareWhole, bareHalf := b.heapPerTask()
	whole, half := m.heapPerTask()
	t.row("heap for each queued task", kibibyte(bareWhole), kibibyte(whole), "")
	t.row("… in the second half alone (0: flat)", kibibyte(bareHalf), kibibyte(half), "")
	for _, when := range []string{whenEmpty, whenFull, whenDrained} {
		t.row("Temporal's process, resident, "+when, fmt.Sprintf("%.1f MiB", mebibytes(b.state(when).Temporal)),
			fmt.Sprintf("%.1f MiB", mebibytes(m.state(when).Temporal)), "")
	}
	t.flush()
}

// kibibyte never shows a negative zero.
func kibibyte(n float64) string { return fmt.Sprintf("%.1f KiB", math.Round(n/102.4)/10+0) }

// filler is what this benchmark does with a side.
type filler struct {
	*Installation
	queue, workflow string
	submit          func(ctx context.Context, first, n int) error
	serve           func(ctx context.Context) (stop func(), err error) // adds the slots
	memory          func(ctx context.Context) (resident, heap int64, err error)
	processes       func() []int // beside Temporal's
}

// measureDepth fills a queue to its depth and drains it, with each side in an installation of its own.
func (r *run) measureDepth(ctx context.Context, p *queuePlan) (*Depth, error) {
	d := &Depth{Tasks: p.depth, Slots: p.slots}
	if err := d.Bare.measure(ctx, r, p, Setting{temporalOnly: true}, bareFiller); err != nil {
		return d, fmt.Errorf("bare Temporal: %w", err)
	}
	setting := Setting{temporalOnly: true, roles: "hub,gateway,worker"}
	if err := d.Mainstay.measure(ctx, r, p, setting, mainstayFiller); err != nil {
		return d, fmt.Errorf("side mainstay: %w", err)
	}
	return d, nil
}

// measure warms a side up, fills its queue in two halves, and drains it.
func (s *DepthSide) measure(ctx context.Context, r *run, p *queuePlan, setting Setting,
	fillerOf func(context.Context, *run, *Installation, *queuePlan) (*filler, error)) error {
	i, err := r.install(ctx, setting)
	if err != nil {
		return err
	}
	defer i.Stop()
	side, err := fillerOf(ctx, r, i, p)
	if err != nil {
		return err
	}
	warm := min(depthWarmup, p.depth)
	if err := side.submit(ctx, 0, warm); err != nil {
		return err
	}
	if _, _, err := side.drain(ctx, warm); err != nil {
		return err
	}
	if err := s.read(ctx, r, side, whenEmpty, 0); err != nil {
		return err
	}
	var acknowledged, queued time.Duration
	done := 0
	for _, part := range []struct {
		when  string
		until int
	}{{whenHalf, p.depth / 2}, {whenFull, p.depth}} {
		begun := time.Now()
		if err := side.submit(ctx, warm+done, part.until-done); err != nil {
			return err
		}
		acknowledged += time.Since(begun)
		if err := i.awaitBacklog(ctx, side.queue, part.until); err != nil {
			return err
		}
		queued += time.Since(begun)
		done = part.until
		if err := s.read(ctx, r, side, part.when, done); err != nil {
			return err
		}
	}
	s.SubmittedPerSecond, s.QueuedPerSecond = float64(p.depth)/acknowledged.Seconds(), float64(p.depth)/queued.Seconds()
	took, used, err := side.drain(ctx, warm+p.depth)
	if err != nil {
		return err
	}
	s.DrainedPerSecond = float64(p.depth) / took.Seconds()
	s.DrainCPU = milliseconds(used / time.Duration(p.depth))
	fmt.Fprintf(r.story, "submitted %.1f/s, queued %.1f/s, drained %.1f/s with %.1f ms of processor time each\n",
		s.SubmittedPerSecond, s.QueuedPerSecond, s.DrainedPerSecond, s.DrainCPU)
	return s.read(ctx, r, side, whenDrained, 0)
}

// read adds the memory of this moment.
func (s *DepthSide) read(ctx context.Context, r *run, side *filler, when string, queued int) (err error) {
	m := MemoryState{When: when, Queued: queued}
	if m.Resident, m.Heap, err = side.memory(ctx); err != nil {
		return err
	}
	if m.Temporal, err = memory(side.plane.PID()); err != nil {
		return err
	}
	s.Memory = append(s.Memory, m)
	fmt.Fprintf(r.story, "%-8s %6d queued: %5d MiB resident, heap %5d MiB; Temporal %5d MiB\n", when, queued,
		m.Resident>>20, m.Heap>>20, m.Temporal>>20)
	return nil
}

// drain adds slots and waits until all workflows of the side's type, total in number, have completed. It returns the
// time from adding the slots to the last close, and the processor time of all processes that take part.
func (side *filler) drain(ctx context.Context, total int) (took, used time.Duration, err error) {
	before := side.used(side.processes()...).All // those that come now have used nothing yet
	came := time.Now()
	stop, err := side.serve(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	if err := side.awaitCompleted(ctx, side.workflow, total); err != nil {
		return 0, 0, err
	}
	used = side.used(side.processes()...).All - before
	last, err := side.lastClose(ctx, side.workflow)
	return last.Sub(came), used, err
}

// bareFiller is the bare side: workflows run, and their activities wait until a second worker takes them.
func bareFiller(_ context.Context, _ *run, i *Installation, p *queuePlan) (*filler, error) {
	b, err := startBareQueue(i)
	return &filler{
		Installation: i, queue: bareQueue, workflow: bareWorkflow, submit: b.startMany,
		serve: func(context.Context) (func(), error) {
			return startWorker(i.sdk, bareQueue, sdkworker.Options{
				DisableWorkflowWorker:              true,
				MaxConcurrentActivityExecutionSize: p.slots,
				MaxConcurrentActivityTaskPollers:   min(config.Default().Hub.LanePollers, p.slots),
			})
		},
		memory:    func(context.Context) (int64, int64, error) { return ownMemory() },
		processes: func() []int { return []int{os.Getpid()} },
	}, err
}

// mainstayFiller is Mainstay's side.
func mainstayFiller(ctx context.Context, r *run, i *Installation, p *queuePlan) (*filler, error) {
	c := newCrew(i, "bench-depth", 1)
	c.slots = p.slots
	return &filler{
		Installation: i, queue: contract.ClusterLane(c.cluster), workflow: contract.TaskWorkflow,
		submit: func(ctx context.Context, first, n int) error {
			return c.submitBatches(ctx, first, n, api.TaskSpec{Type: taskType})
		},
		serve:     func(ctx context.Context) (func(), error) { return c.leave, c.startAgents(ctx, c.ids...) },
		memory:    func(ctx context.Context) (int64, int64, error) { return processMemory(ctx, i.url, i.hubPID()) },
		processes: func() []int { return append(c.pids(), i.hubPID()) },
	}, c.create(ctx, api.ActiveActive)
}
