package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

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

// HeapPerTask is how much the heap grew for each queued task, in bytes, over the whole queue and over its second half
// alone: memory that is flat from some depth on shows in the latter.
func (s *DepthSide) HeapPerTask() (whole, secondHalf float64) {
	before, half, full := s.state(whenEmpty), s.state(whenHalf), s.state(whenFull)
	return perQueued(before, full), perQueued(half, full)
}

func perQueued(from, to MemoryState) float64 {
	if to.Queued <= from.Queued {
		return 0
	}
	return float64(to.Heap-from.Heap) / float64(to.Queued-from.Queued)
}

// depthWarmup is how many tasks go through before anything counts, so that what is allocated once is there.
const depthWarmup = 200

// queueSide is what the depth benchmark needs of a side. serve has the slots come and returns when they have.
type queueSide interface {
	queue() (name, workflowType string)
	submit(ctx context.Context, first, n int) error
	serve(ctx context.Context) (stop func(), err error)
	memory(ctx context.Context) (resident, heap int64, err error)
	// processes are those of the side beside Temporal's.
	processes() []int
}

// measureDepth fills a queue to its depth and drains it, with each side in an installation of its own.
func measureDepth(
	ctx context.Context, p *QueuePlan, installTemporal func(context.Context) (*Installation, error), progress io.Writer,
) (*Depth, error) {
	d := &Depth{Tasks: p.Depth, Slots: p.DepthSlots}
	for _, side := range []struct {
		name string
		run  func(context.Context, *Installation, client.Client) error
	}{
		{"bare Temporal", func(ctx context.Context, i *Installation, c client.Client) error {
			bare, err := newBareBacklog(c)
			if err != nil {
				return err
			}
			defer bare.close()
			return d.Bare.measure(ctx, i, c, &bareDepth{bare, p}, p, progress)
		}},
		{"Mainstay", func(ctx context.Context, i *Installation, c client.Client) error {
			if err := i.StartServe(ctx); err != nil {
				return err
			}
			crew := newCrew(i, "bench-depth", 1, fleet.Idempotent)
			crew.slots = p.DepthSlots
			if err := crew.create(ctx, fleet.ActiveActive); err != nil {
				return err
			}
			return d.Mainstay.measure(ctx, i, c, &mainstayDepth{crew, progress}, p, progress)
		}},
	} {
		err := func() error {
			i, err := installTemporal(ctx)
			if err != nil {
				return err
			}
			defer i.Stop()
			c, err := i.Dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return side.run(ctx, i, c)
		}()
		if err != nil {
			return d, fmt.Errorf("%s: %w", side.name, err)
		}
	}
	return d, nil
}

// measure warms a side up, fills its queue in two halves, and drains it.
func (s *DepthSide) measure(
	ctx context.Context, i *Installation, c client.Client, side queueSide, p *QueuePlan, progress io.Writer,
) error {
	queue, _ := side.queue()
	warmup := min(depthWarmup, p.Depth)
	if err := side.submit(ctx, 0, warmup); err != nil {
		return err
	}
	if _, _, err := s.drain(ctx, i, c, side, warmup); err != nil {
		return err
	}
	read := func(when string, queued int) error {
		m := MemoryState{When: when, Queued: queued}
		var err error
		if m.Resident, m.Heap, err = side.memory(ctx); err != nil {
			return err
		}
		if m.Temporal, err = Memory(i.PID()); err != nil {
			return err
		}
		s.Memory = append(s.Memory, m)
		fmt.Fprintf(progress, "%-8s %6d queued: %5d MiB resident, heap %5d MiB; Temporal %5d MiB\n", when, queued,
			m.Resident>>20, m.Heap>>20, m.Temporal>>20)
		return nil
	}
	if err := read(whenEmpty, 0); err != nil {
		return err
	}
	var acknowledged, queued time.Duration
	done := 0
	for _, part := range []struct {
		when  string
		until int
	}{{whenHalf, p.Depth / 2}, {whenFull, p.Depth}} {
		begun := time.Now()
		if err := side.submit(ctx, warmup+done, part.until-done); err != nil {
			return err
		}
		acknowledged += time.Since(begun)
		if err := awaitBacklog(ctx, c, i.Namespace, queue, part.until); err != nil {
			return err
		}
		queued += time.Since(begun)
		done = part.until
		if err := read(part.when, done); err != nil {
			return err
		}
	}
	s.SubmittedPerSecond, s.QueuedPerSecond = float64(p.Depth)/acknowledged.Seconds(), float64(p.Depth)/queued.Seconds()
	took, used, err := s.drain(ctx, i, c, side, warmup+p.Depth)
	if err != nil {
		return err
	}
	s.DrainedPerSecond = float64(p.Depth) / took.Seconds()
	s.DrainCPU = milliseconds(used / time.Duration(p.Depth))
	fmt.Fprintf(progress, "submitted %.1f/s, queued %.1f/s, drained %.1f/s with %.1f ms of processor time each\n",
		s.SubmittedPerSecond, s.QueuedPerSecond, s.DrainedPerSecond, s.DrainCPU)
	return read(whenDrained, 0)
}

// drain has slots come until all workflows of the side's type have completed, of which there are then total, and
// returns the time from the slots' coming to the last close and the processor time of all processes that take part.
func (s *DepthSide) drain(
	ctx context.Context, i *Installation, c client.Client, side queueSide, total int,
) (took, used time.Duration, err error) {
	_, workflowType := side.queue()
	before := CPUTimes(append(side.processes(), i.PID())...) // those that come now have used nothing yet
	came := time.Now()
	stop, err := side.serve(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	if err := awaitCompleted(ctx, c, workflowType, total); err != nil {
		return 0, 0, err
	}
	used = CPUTimes(append(side.processes(), i.PID())...) - before
	last, err := lastClose(ctx, c, workflowType)
	return last.Sub(came), used, err
}

// bareDepth is the bare side.
type bareDepth struct {
	backlog *bareBacklog
	plan    *QueuePlan
}

func (b *bareDepth) queue() (name, workflowType string) { return bareQueue, bareWorkflow }

func (b *bareDepth) submit(ctx context.Context, first, n int) error {
	return b.backlog.submit(ctx, first, n)
}

func (b *bareDepth) serve(context.Context) (func(), error) {
	return b.backlog.serve(b.plan.DepthSlots, b.plan.Pollers)
}

func (b *bareDepth) memory(context.Context) (resident, heap int64, err error) { return ownMemory() }

func (b *bareDepth) processes() []int { return []int{os.Getpid()} }

// mainstayDepth is Mainstay's side.
type mainstayDepth struct {
	crew     *crew
	progress io.Writer
}

func (m *mainstayDepth) queue() (name, workflowType string) {
	return contract.ClusterLane(m.crew.cluster), contract.TaskWorkflow
}

func (m *mainstayDepth) submit(ctx context.Context, first, n int) error {
	tasks := make([]queuedTask, n)
	for i := range tasks {
		tasks[i] = queuedTask{ID: m.crew.cluster + "-" + strconv.Itoa(first+i), Type: TaskType, Cluster: m.crew.cluster}
	}
	_, err := m.crew.installation.submitBatches(ctx, tasks, m.progress)
	return err
}

func (m *mainstayDepth) serve(ctx context.Context) (func(), error) {
	return m.crew.stop, m.crew.start(ctx, m.crew.ids...)
}

func (m *mainstayDepth) memory(ctx context.Context) (resident, heap int64, err error) {
	i := m.crew.installation
	return processMemory(ctx, i.URL, i.HubPID())
}

func (m *mainstayDepth) processes() []int {
	ids := []int{m.crew.installation.HubPID()}
	for _, p := range m.crew.processes {
		ids = append(ids, p.PID())
	}
	return ids
}
