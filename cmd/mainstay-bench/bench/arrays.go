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
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// napType is the type of work that takes a millisecond.
const napType = "nap"

func nap(ctx context.Context, task *agent.Task) (any, error) {
	time.Sleep(time.Millisecond)
	return handle(ctx, task)
}

// arraysPlan is how much to measure.
type arraysPlan struct{ rounds, tasks, clients, elements, commands, large, small int }

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
	Tasks    Side          `json:"single_tasks"`
	Elements Side          `json:"elements"`
	NoOps    Side          `json:"no_op_elements"`
	Commands Side          `json:"commands"`
	Xargs    Side          `json:"commands_by_xargs"`
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
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.rounds, "rounds", 3, "rounds of each kind")
			flags.IntVar(&p.tasks, "tasks", 200, "single tasks in a round")
			flags.IntVar(&p.clients, "clients", 16, "clients that submit single tasks at a time")
			flags.IntVar(&p.elements, "elements", 10_000, "elements of an array in a round")
			flags.IntVar(&p.commands, "commands", 1500, "commands in a round")
			flags.IntVar(&p.large, "large", 20_000, "elements of the large array")
			flags.IntVar(&p.small, "small", 100, "elements of the array beside it")
		},
		measure: func(ctx context.Context, r *run) error { return r.arrays(ctx, &p) },
	}
}

// slots is how many elements, and commands of xargs, run at a time.
const slots = 32

func (r *run) arrays(ctx context.Context, p *arraysPlan) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	c, err := i.oneAgent(ctx, slots)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.story, "\n%d rounds of %d tasks and of %d elements; an agent with %d slots.\n", p.rounds, p.tasks,
		p.elements, slots)
	begun := i.used(c.pids()...)
	sides, err := r.compare(ctx, p.rounds, "a second", func() CPU { return i.used() },
		contender{name: "single tasks", n: p.tasks,
			work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
				perSecond, err := throughput(ctx, mainstay{i, c.cluster, napType}, some(part, p.tasks), p.clients)
				return perSecond, nil, err
			}},
		c.elements("elements", napType, p.elements), c.elements("elements, no-op", taskType, p.elements),
		c.elements("commands", agent.ExecType, p.commands),
		contender{name: "commands, xargs", n: p.commands,
			work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
				perSecond, err := xargs(ctx, some(part, p.commands))
				return perSecond, nil, err
			}})
	if err != nil {
		return err
	}
	result := arraysReport{report: r.report, Tasks: sides[0], Elements: sides[1], NoOps: sides[2], Commands: sides[3],
		Xargs: sides[4]}
	if result.Large, err = c.large(ctx, p); err != nil {
		return err
	}
	result.Others = i.used(c.pids()...).minus(begun).others()
	return r.print(result, func(w io.Writer) { result.write(w) })
}

// elements makes arrays do the work of a round.
func (c *crew) elements(name, kind string, n int) contender {
	return contender{name: name, n: n, work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
		took, err := c.array(ctx, kind, some(part, n))
		return float64(some(part, n)) / took.Seconds(), nil, err
	}}
}

// array submits an array, and returns how long it takes.
func (c *crew) array(ctx context.Context, kind string, elements int) (time.Duration, error) {
	begun, id := time.Now(), "bench-"+uuid.NewString()
	if err := c.submitArray(ctx, id, kind, elements); err != nil {
		return 0, err
	}
	closed, err := outcome(ctx, c.sdk, contract.ArrayWorkflowID(id), nil)
	return closed.Sub(begun), err
}

func (c *crew) submitArray(ctx context.Context, id, kind string, elements int) error {
	spec := api.TaskSpec{Type: kind, Cluster: c.cluster}
	if kind == agent.ExecType {
		spec.Payload = json.RawMessage(`{"command": ["true"]}`)
	}
	_, err := c.Arrays.Submit(ctx, &api.ArrayRequest{ID: id, Count: elements, TaskSpec: spec})
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

// large runs the large array, and the small one as soon as the large one has a result.
func (c *crew) large(ctx context.Context, p *arraysPlan) (l largeMeasured, err error) {
	l.Elements, l.Small = p.large, p.small
	alone, err := c.array(ctx, napType, p.small)
	if err != nil {
		return l, err
	}
	if l.Before, err = memory(c.plane.PID()); err != nil {
		return l, err
	}
	begun, before, id := time.Now(), cpuTimes(c.plane.PID()), "large-"+uuid.NewString()
	if err := c.submitArray(ctx, id, taskType, p.large); err != nil {
		return l, err
	}
	look := func(until func(*api.Array) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			l.After, err = memory(c.plane.PID())
			if l.Most = max(l.Most, l.After); err != nil {
				return false, err
			}
			one, err := c.Arrays.Get(ctx, id, 0)
			return err == nil && until(one), err
		}
	}
	err = eventually(ctx, "the first result", stuckLimit, 10*time.Millisecond,
		look(func(a *api.Array) bool { return a.Counts.Completed > 0 }))
	if err != nil {
		return l, err
	}
	l.FirstResult = milliseconds(time.Since(begun))
	beside, err := c.array(ctx, napType, p.small)
	if err != nil {
		return l, err
	}
	if err := eventually(ctx, "the end of the large array", noLimit, 250*time.Millisecond,
		look(func(a *api.Array) bool { return a.Status.Final() })); err != nil {
		return l, err
	}
	closed, err := outcome(ctx, c.sdk, contract.ArrayWorkflowID(id), nil)
	l.PerSecond = float64(p.large) / closed.Sub(begun).Seconds()
	l.CPU = milliseconds(cpuTimes(c.plane.PID())-before) / float64(p.large)
	l.Alone, l.Beside = milliseconds(alone), milliseconds(beside)
	return l, err
}

func (r *arraysReport) write(w io.Writer) {
	one, each := r.Tasks.ServerCPU, r.Elements.ServerCPU
	t := newTable(w, "", "single tasks", "elements of an array", "")
	t.row("control plane's processor time for each, 1 ms of work", fmt.Sprintf("%.1f ms", one),
		fmt.Sprintf("%.3f ms", each), fmt.Sprintf("1/%.0f", one/each))
	t.row("a second, 1 ms of work", fmt.Sprintf("%.1f", r.Tasks.Median),
		fmt.Sprintf("%.0f", r.Elements.Median), "")
	t.row("a second, no-op", "", fmt.Sprintf("%.0f", r.NoOps.Median),
		fmt.Sprintf("%.3f ms each", r.NoOps.ServerCPU))
	commands, xargs := r.Commands.Median, r.Xargs.Median
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
