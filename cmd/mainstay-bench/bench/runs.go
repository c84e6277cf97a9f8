package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	sdkclient "go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/job"
)

// chainSteps is how many steps a run has, one after the other.
const chainSteps = 5

// runsPlan is how much to measure.
type runsPlan struct {
	rounds, runs, clients, quiet int
	quietEvery                   time.Duration
}

// chainMeasured is what one side did.
type chainMeasured struct {
	Name      string    `json:"name"`
	PerSecond []float64 `json:"steps_per_second"` // by round
	Median    float64   `json:"median_steps_per_second"`
	Gap       Times     `json:"step_end_to_next_begin"`
	Events    float64   `json:"history_events_per_step"`
}

type runsReport struct {
	report
	Bare     chainMeasured `json:"bare"`
	Mainstay chainMeasured `json:"mainstay"`
}

func runsBenchmark() benchmark {
	p := runsPlan{quietEvery: 200 * time.Millisecond}
	return benchmark{
		Command: &cobra.Command{
			Use:   "runs",
			Short: "Measure runs of five steps beside bare Temporal",
			Long: `Measure steps a second of runs with five steps, one after the other, beside bare Temporal: a workflow with
five activities, run by a worker of Temporal's SDK. Then measure, at a low rate, the time from the end of a step to the
first instruction of the next. Both use one embedded server, in turns.`,
			Example: "  mainstay-bench runs\n  mainstay-bench runs --rounds 3 --runs 50",
		},
		numbers: []number{
			{"rounds", &p.rounds, 5, 1, 1000, "rounds of each side"},
			{"runs", &p.runs, 100, 1, 100_000, "runs in a round"},
			{"clients", &p.clients, 16, 1, 1000, "clients that start runs at a time"},
			{"quiet-runs", &p.quiet, 25, 1, 1000, "runs of each round at a low rate"},
		},
		measure: func(ctx context.Context, r *run) error { return r.runs(ctx, p) },
	}
}

func (r *run) runs(ctx context.Context, p runsPlan) error {
	i, err := r.install(ctx, Setting{durability: string(config.DurableProcess)})
	if err != nil {
		return err
	}
	defer i.Stop()
	if _, err = i.Start("agent", "agent", "--hub", i.url, "--id", "bench", "--slots", "32"); err != nil {
		return err
	}
	temporal, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	bare, err := newBareChain(temporal, config.Default().Hub.LanePollers)
	if err != nil {
		return err
	}
	defer bare.worker.Stop()
	ours, err := newChain(temporal)
	if err != nil {
		return err
	}
	fmt.Fprintf(
		r.story,
		"\n%d rounds of each side, each of %d runs with %d steps from %d clients; an agent with 32 slots.\n",
		p.rounds,
		p.runs,
		chainSteps,
		p.clients,
	)
	result := runsReport{report: r.report}
	sides := [2]*chainMeasured{&result.Bare, &result.Mainstay}
	if err := p.compare(ctx, [2]chain{bare, ours}, sides, r.story); err != nil {
		return err
	}
	return r.print(result, func(w io.Writer) { writeRuns(w, &result.Bare, &result.Mainstay) })
}

// chain is a side whose tasks are runs of five steps.
type chain interface {
	side
	// Steps are when the steps of a run began; each ended at once.
	Steps(ctx context.Context, id string) ([]time.Time, error)
	// Workflow is where a run is in Temporal.
	Workflow(id string) (sdkclient.Client, string)
}

// compare runs both sides in turns, after a round that does not count.
func (p *runsPlan) compare(ctx context.Context, sides [2]chain, all [2]*chainMeasured, progress io.Writer) error {
	for n, s := range sides {
		all[n].Name = s.Name()
		if _, err := throughput(ctx, s, max(1, p.runs/4), p.clients); err != nil {
			return err
		}
	}
	var gaps [2][]time.Duration
	err := inTurns(p.rounds, 2, func(round, n int) error {
		s, m := sides[n], all[n]
		perSecond, err := throughput(ctx, s, p.runs, p.clients)
		if err != nil {
			return err
		}
		found, err := p.gaps(ctx, s)
		if err != nil {
			return err
		}
		m.PerSecond, gaps[n] = append(m.PerSecond, perSecond*chainSteps), append(gaps[n], found...)
		fmt.Fprintf(progress, "round %d/%d  %-14s %6.1f steps/s  step → step p50 %.1f ms\n", round, p.rounds, m.Name,
			perSecond*chainSteps, timesOf(found).P50)
		return nil
	})
	if err != nil {
		return err
	}
	for n, s := range sides {
		m := all[n]
		m.Median, m.Gap = median(m.PerSecond), timesOf(gaps[n])
		if m.Events, err = eventsOfStep(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// gaps starts runs at a low rate, and returns the times between their steps.
func (p *runsPlan) gaps(ctx context.Context, s chain) (gaps []time.Duration, err error) {
	runs := make([]string, p.quiet)
	tick := time.NewTicker(p.quietEvery)
	defer tick.Stop()
	for n := range runs {
		if runs[n], err = s.Submit(ctx); err != nil {
			return nil, fmt.Errorf("%s: start a run: %w", s.Name(), err)
		}
		<-tick.C
	}
	for _, id := range runs {
		steps, err := s.Steps(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		for n := 1; n < len(steps); n++ {
			gaps = append(gaps, steps[n].Sub(steps[n-1]))
		}
	}
	return gaps, nil
}

// eventsOfStep is the length of a run's history by its steps.
func eventsOfStep(ctx context.Context, s chain) (float64, error) {
	id, err := s.Submit(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := s.Steps(ctx, id); err != nil {
		return 0, err
	}
	c, workflowID := s.Workflow(id)
	d, err := c.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return 0, err
	}
	return float64(d.GetWorkflowExecutionInfo().GetHistoryLength()) / chainSteps, nil
}

func writeRuns(w io.Writer, bare, mainstay *chainMeasured) {
	t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
	t.compare(fmt.Sprintf("throughput, median of %d rounds", len(bare.PerSecond)), "%.1f steps/s", bare.Median,
		mainstay.Median)
	t.row("throughput, median of the rounds' ratios", "", "",
		fmt.Sprintf("%.2f", medianRatio(mainstay.PerSecond, bare.PerSecond)))
	t.latencies("step end → next begin", bare.Gap, mainstay.Gap)
	t.compare("history events for each step", "%.1f", bare.Events, mainstay.Events)
	t.flush()
}

// ourChain is a run of a job.
type ourChain struct {
	client sdkclient.Client
	plan   job.Plan
}

// newChain makes the plan of five steps, each of which reads the output of the one before.
func newChain(c sdkclient.Client) (*ourChain, error) {
	text := "job: chain\ncluster: " + dev.Cluster +
		"\nsafety: idempotent\nsteps:\n  s1: {task: {type: " + taskType + "}}\n"
	for n := 2; n <= chainSteps; n++ {
		text += fmt.Sprintf(
			"  s%d: {after: [s%d], task: {type: %s, payload: \"${steps.s%d.output}\"}}\n",
			n,
			n-1,
			taskType,
			n-1,
		)
	}
	_, plan, err := flow.Read("chain", []byte(text))
	if err != nil {
		return nil, err
	}
	return &ourChain{c, *plan}, nil
}

func (c *ourChain) Name() string { return "Mainstay" }

func (c *ourChain) Submit(ctx context.Context) (string, error) {
	id := "chain-" + uuid.NewString()
	in := contract.RunInput{Plan: c.plan}
	begin := contract.StartOfRun(id, &in, 0)
	_, err := c.client.ExecuteWorkflow(ctx, begin.Options(), contract.RunWorkflow, in)
	return id, err
}

func (c *ourChain) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	closed, err = outcome(ctx, c.client, contract.RunWorkflowID(id), nil)
	return began, closed, err
}

func (c *ourChain) Steps(ctx context.Context, id string) ([]time.Time, error) {
	var ledger job.Ledger
	if _, err := outcome(ctx, c.client, contract.RunWorkflowID(id), &ledger); err != nil {
		return nil, err
	}
	steps := make([]time.Time, len(ledger.Steps))
	for n := range steps {
		var at int64
		if err := json.Unmarshal(ledger.Steps[n].Output, &at); err != nil {
			return nil, fmt.Errorf("read the output of step %s: %w", ledger.Steps[n].Step, err)
		}
		steps[n] = time.Unix(0, at)
	}
	return steps, nil
}

func (c *ourChain) Workflow(id string) (sdkclient.Client, string) {
	return c.client, contract.RunWorkflowID(id)
}

// bareChain is plain Temporal: one workflow with five activities, each of which gets the result of the one before.
type bareChain struct{ bare }

const bareChainWorkflow = "BareChain"

func newBareChain(c sdkclient.Client, activityPollers int) (*bareChain, error) {
	w, err := startBare(c, bareQueue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		MaxConcurrentActivityTaskPollers: activityPollers})
	if err != nil {
		return nil, err
	}
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) ([]int64, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		steps := make([]int64, chainSteps)
		for n := range steps {
			if err := workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, &steps[n]); err != nil {
				return nil, err
			}
		}
		return steps, nil
	}, workflow.RegisterOptions{Name: bareChainWorkflow})
	return &bareChain{bare{"bare Temporal", bareQueue, c, w}}, nil
}

func (b *bareChain) Submit(ctx context.Context) (string, error) {
	id := "bare/" + uuid.NewString()
	_, err := b.client.ExecuteWorkflow(ctx, sdkclient.StartWorkflowOptions{ID: id, TaskQueue: bareQueue},
		bareChainWorkflow)
	return id, err
}

func (b *bareChain) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	closed, err = outcome(ctx, b.client, id, nil)
	return began, closed, err
}

func (b *bareChain) Steps(ctx context.Context, id string) ([]time.Time, error) {
	var began []int64
	if _, err := outcome(ctx, b.client, id, &began); err != nil {
		return nil, err
	}
	steps := make([]time.Time, len(began))
	for n, at := range began {
		steps[n] = time.Unix(0, at)
	}
	return steps, nil
}

func (b *bareChain) Workflow(id string) (sdkclient.Client, string) { return b.client, id }
