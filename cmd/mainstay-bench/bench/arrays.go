package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/fleet"
)

// napType is the type of work that takes a millisecond.
const napType = "nap"

func nap(ctx context.Context, task *agent.Task) (any, error) {
	time.Sleep(time.Millisecond)
	return handle(ctx, task)
}

// arraysPlan is how much to measure.
type arraysPlan struct{ rounds, tasks, clients, elements, commands, large, small int }

// manyMeasured is what one kind of work did, by round.
type manyMeasured struct {
	PerSecond []float64 `json:"per_second"`
	CPU       []float64 `json:"control_plane_cpu_ms_each"`
}

// largeMeasured is a large array of elements that do nothing, and a small one that is submitted while it is at work.
type largeMeasured struct {
	Elements    int     `json:"elements"`
	PerSecond   float64 `json:"per_second"`
	CPU         float64 `json:"control_plane_cpu_ms_each"`
	FirstResult float64 `json:"first_result_ms"` // after its submission began
	// Before, Most and After are the resident memory of the process with Temporal, hub, gateway and worker.
	Before int64 `json:"resident_before_bytes"`
	Most   int64 `json:"resident_most_bytes"`
	After  int64 `json:"resident_after_bytes"`
	// Alone and Beside are how long the small array takes by itself, and beside the large one.
	Small  int     `json:"small_elements"`
	Alone  float64 `json:"small_alone_ms"`
	Beside float64 `json:"small_beside_ms"`
}

type arraysReport struct {
	report
	Tasks    manyMeasured  `json:"single_tasks"`
	Elements manyMeasured  `json:"elements"`
	NoOps    manyMeasured  `json:"no_op_elements"`
	Commands manyMeasured  `json:"commands"`
	Xargs    manyMeasured  `json:"commands_by_xargs"`
	Large    largeMeasured `json:"large"`
	Others   float64       `json:"other_programs_percent"` // of the processor time that was used
}

func arraysBenchmark() benchmark {
	var p arraysPlan
	return benchmark{
		Command: &cobra.Command{
			Use:   "arrays",
			Short: "Measure what an element of an array costs beside a task",
			Long: `Measure, in turns, the control plane's processor time for each single task and for each element of
an array that take a millisecond, elements a second that do nothing, and commands a second that do nothing: as an
array, and by xargs. Then run one large array, and a small one meanwhile.`,
			Example: "  mainstay-bench arrays\n  mainstay-bench arrays --large 100000",
		},
		numbers: []number{
			{"rounds", &p.rounds, 3, 1, 1000, "rounds of each kind"},
			{"tasks", &p.tasks, 200, 1, 100_000, "single tasks in a round"},
			{"clients", &p.clients, 16, 1, 1000, "clients that submit single tasks at a time"},
			{"elements", &p.elements, 10_000, 1, fleet.MaxElements, "elements of an array in a round"},
			{"commands", &p.commands, 1500, 1, fleet.MaxElements, "commands in a round"},
			{"large", &p.large, 20_000, 1, fleet.MaxElements, "elements of the large array"},
			{"small", &p.small, 100, 1, fleet.MaxElements, "elements of the array beside it"},
		},
		measure: func(ctx context.Context, r *run) error { return r.arrays(ctx, p) },
	}
}

func (r *run) arrays(ctx context.Context, p arraysPlan) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	agents, err := i.Start("agent", "agent", "--hub", i.url, "--id", "bench", "--slots", strconv.Itoa(slots))
	if err != nil {
		return err
	}
	temporal, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	fmt.Fprintf(r.story, "\n%d rounds of %d tasks and of %d elements; an agent with %d slots.\n", p.rounds, p.tasks,
		p.elements, slots)
	begun := CPU{All: cpuTimes(i.plane.PID(), agents.PID()), Busy: busyTime()}
	result := arraysReport{report: r.report}
	m := many{mainstay{i.Client, temporal, dev.Cluster}, i.plane.PID()}
	if err := m.compare(ctx, &p, &result, r.story); err != nil {
		return err
	}
	if result.Large, err = m.large(ctx, &p); err != nil {
		return err
	}
	result.Others = CPU{All: cpuTimes(i.plane.PID(), agents.PID()) - begun.All, Busy: busyTime() - begun.Busy}.others()
	return r.print(result, func(w io.Writer) { result.write(w) })
}

// slots is how many elements, and commands of xargs, run at a time.
const slots = 32

// many is the side of Mainstay with many pieces of work that take a millisecond, or nothing.
type many struct {
	mainstay
	plane int // process of the control plane
}

// Submit submits one task that takes a millisecond.
func (m many) Submit(ctx context.Context) (string, error) {
	task, err := m.api.Tasks.Submit(ctx, &api.TaskRequest{TaskSpec: fleet.TaskSpec{Type: napType, Cluster: m.cluster}})
	if err != nil {
		return "", err
	}
	return task.ID, nil
}

// array submits an array, and returns how long it takes.
func (m many) array(ctx context.Context, kind string, elements int) (time.Duration, error) {
	begun, id := time.Now(), "bench-"+uuid.NewString()
	if err := m.submitArray(ctx, id, kind, elements); err != nil {
		return 0, err
	}
	closed, err := outcome(ctx, m.temporal, contract.ArrayWorkflowID(id), nil)
	return closed.Sub(begun), err
}

func (m many) submitArray(ctx context.Context, id, kind string, elements int) error {
	spec := fleet.TaskSpec{Type: kind, Cluster: m.cluster}
	if kind == agent.ExecType {
		spec.Payload = json.RawMessage(`{"command": ["true"]}`)
	}
	_, err := m.api.Arrays.Submit(ctx, &api.ArrayRequest{ID: id, Count: elements, TaskSpec: spec})
	return err
}

// xargs runs commands that do nothing.
func xargs(ctx context.Context, commands int) (perSecond float64, err error) {
	command := exec.CommandContext(ctx, "xargs", "-P", strconv.Itoa(slots), "-n", "1", "true")
	command.Stdin = strings.NewReader(strings.Repeat("1\n", commands))
	begun := time.Now()
	if output, err := command.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("xargs: %w: %s", err, output)
	}
	return float64(commands) / time.Since(begun).Seconds(), nil
}

// compare runs the kinds of work in turns, after a round that does not count.
func (m many) compare(ctx context.Context, p *arraysPlan, result *arraysReport, progress io.Writer) error {
	array := func(kind string) func(int) (float64, error) {
		return func(n int) (float64, error) {
			took, err := m.array(ctx, kind, n)
			return float64(n) / took.Seconds(), err
		}
	}
	kinds := []struct {
		name string
		to   *manyMeasured
		n    int
		run  func(n int) (perSecond float64, err error)
	}{
		{"single tasks", &result.Tasks, p.tasks, func(n int) (float64, error) { return throughput(ctx, m, n, p.clients) }},
		{"elements", &result.Elements, p.elements, array(napType)},
		{"elements, no-op", &result.NoOps, p.elements, array(taskType)},
		{"commands", &result.Commands, p.commands, array(agent.ExecType)},
		{"commands, xargs", &result.Xargs, p.commands, func(n int) (float64, error) { return xargs(ctx, n) }},
	}
	for _, k := range kinds {
		if _, err := k.run(max(1, k.n/4)); err != nil {
			return err
		}
	}
	return inTurns(p.rounds, len(kinds), func(round, i int) error {
		k, before := &kinds[i], cpuTimes(m.plane)
		perSecond, err := k.run(k.n)
		if err != nil {
			return err
		}
		each := milliseconds(cpuTimes(m.plane)-before) / float64(k.n)
		k.to.PerSecond, k.to.CPU = append(k.to.PerSecond, perSecond), append(k.to.CPU, each)
		fmt.Fprintf(progress, "round %d/%d  %-16s %8.1f/s  %.3f ms of processor time each\n", round, p.rounds, k.name,
			perSecond, each)
		return nil
	})
}

// large runs the large array, and the small one as soon as the large one has a result.
func (m many) large(ctx context.Context, p *arraysPlan) (l largeMeasured, err error) {
	l.Elements, l.Small = p.large, p.small
	alone, err := m.array(ctx, napType, p.small)
	if err != nil {
		return l, err
	}
	if l.Before, err = memory(m.plane); err != nil {
		return l, err
	}
	begun, before, id := time.Now(), cpuTimes(m.plane), "large-"+uuid.NewString()
	if err := m.submitArray(ctx, id, taskType, p.large); err != nil {
		return l, err
	}
	look := func(until func(*api.Array) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			l.After, err = memory(m.plane)
			if l.Most = max(l.Most, l.After); err != nil {
				return false, err
			}
			one, err := m.api.Arrays.Get(ctx, id, 0)
			return err == nil && until(one), err
		}
	}
	err = eventually(ctx, "the first result", stuckLimit, 10*time.Millisecond,
		look(func(a *api.Array) bool { return a.Counts.Completed > 0 }))
	if err != nil {
		return l, err
	}
	l.FirstResult = milliseconds(time.Since(begun))
	beside, err := m.array(ctx, napType, p.small)
	if err != nil {
		return l, err
	}
	if err := eventually(ctx, "the end of the large array", noLimit, 250*time.Millisecond,
		look(func(a *api.Array) bool { return a.Status.Final() })); err != nil {
		return l, err
	}
	closed, err := outcome(ctx, m.temporal, contract.ArrayWorkflowID(id), nil)
	l.PerSecond = float64(p.large) / closed.Sub(begun).Seconds()
	l.CPU = milliseconds(cpuTimes(m.plane)-before) / float64(p.large)
	l.Alone, l.Beside = milliseconds(alone), milliseconds(beside)
	return l, err
}

func (r *arraysReport) write(w io.Writer) {
	one, each := median(r.Tasks.CPU), median(r.Elements.CPU)
	t := newTable(w, "", "single tasks", "elements of an array", "")
	t.row("control plane's processor time for each, 1 ms of work", fmt.Sprintf("%.1f ms", one),
		fmt.Sprintf("%.3f ms", each), fmt.Sprintf("1/%.0f", one/each))
	t.row("a second, 1 ms of work", fmt.Sprintf("%.1f", median(r.Tasks.PerSecond)),
		fmt.Sprintf("%.0f", median(r.Elements.PerSecond)), "")
	t.row("a second, no-op", "", fmt.Sprintf("%.0f", median(r.NoOps.PerSecond)),
		fmt.Sprintf("%.3f ms each", median(r.NoOps.CPU)))
	commands, xargs := median(r.Commands.PerSecond), median(r.Xargs.PerSecond)
	t.row("commands a second: by xargs, as elements", fmt.Sprintf("%.0f", xargs), fmt.Sprintf("%.0f", commands),
		fmt.Sprintf("%.1f times as long", xargs/commands))
	l := &r.Large
	name := fmt.Sprintf("array of %d no-op elements", l.Elements)
	t.row(name+", a second", "", fmt.Sprintf("%.0f", l.PerSecond), fmt.Sprintf("%.3f ms each", l.CPU))
	t.row(name+", first result", "", fmt.Sprintf("%.0f ms", l.FirstResult), "")
	t.row("control plane's memory before, most, after it", "", fmt.Sprintf("%d, %d, %d MiB", l.Before>>20, l.Most>>20,
		l.After>>20), "")
	t.row(fmt.Sprintf("array of %d elements alone, beside the large one", l.Small), "",
		fmt.Sprintf("%.0f ms, %.0f ms", l.Alone, l.Beside), "")
	t.row("share of used processor time that other programs took", "", fmt.Sprintf("%.0f %%", r.Others), "")
	t.flush()
}
