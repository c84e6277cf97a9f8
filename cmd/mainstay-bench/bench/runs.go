package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
)

const (
	// chainSteps is how many steps a run has, one after the other.
	chainSteps        = 5
	bareChainWorkflow = "BareChain"
	// quietRunEvery is the pace of runs at a low rate.
	quietRunEvery = 200 * time.Millisecond
)

// runsPlan is how much to measure.
type runsPlan struct{ rounds, runs, clients, quiet int }

type runsReport struct {
	report
	Bare     Side `json:"bare"`
	Mainstay Side `json:"mainstay"`
}

func runsBenchmark() benchmark {
	p := runsPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "runs",
			Short: "Measure runs of five steps beside bare Temporal",
			Long: `Measure steps a second of runs with five steps, one after the other, beside bare Temporal: a workflow with
five activities, run by a worker of Temporal's SDK. Then measure, at a low rate, the time from the end of a step to the
first instruction of the next. Both use one embedded server, in turns.`,
			Example: "  mainstay-bench runs\n  mainstay-bench runs --rounds 3 --runs 50",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.rounds, "rounds", 5, "rounds of each side")
			flags.IntVar(&p.runs, "runs", 100, "runs in a round")
			flags.IntVar(&p.clients, "clients", 16, "clients that start runs at a time")
			flags.IntVar(&p.quiet, "quiet-runs", 25, "runs of each round at a low rate")
		},
		measure: func(ctx context.Context, r *run) error { return r.runs(ctx, &p) },
	}
}

func (r *run) runs(ctx context.Context, p *runsPlan) error {
	i, err := r.install(ctx, Setting{durability: string(config.DurableProcess)})
	if err != nil {
		return err
	}
	defer i.Stop()
	c, err := i.oneAgent(ctx, slots)
	if err != nil {
		return err
	}
	ofBare, err := startBare(i, bareQueue)
	if err != nil {
		return err
	}
	ofBare.workflow = bareChainWorkflow
	ours, err := newChain(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.story,
		"\n%d rounds of each side, each of %d runs with %d steps from %d clients; an agent with %d slots.\n",
		p.rounds, p.runs, chainSteps, p.clients, slots)
	chains := []chain{ofBare, ours}
	sides, err := r.compare(ctx, p.rounds, "steps/s", func() CPU { return i.used() },
		p.contender("bare Temporal", ofBare), p.contender("Mainstay", ours))
	if err != nil {
		return err
	}
	for n := range sides {
		if sides[n].Events, err = eventsOfStep(ctx, i, chains[n]); err != nil {
			return err
		}
	}
	return r.print(runsReport{r.report, sides[0], sides[1]}, func(w io.Writer) {
		bare, mainstay := &sides[0], &sides[1]
		t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
		t.sides("throughput", "%.1f steps/s", "step end → next begin", bare, mainstay)
		t.compare("history events for each step", "%.1f", bare.Events, mainstay.Events)
		t.flush()
	})
}

// chain is a side whose tasks are runs of five steps.
type chain interface {
	side
	// steps are when the steps of a run began; each ended at once.
	steps(ctx context.Context, id string) (began []time.Time, closed time.Time, err error)
	// workflowID is the id of a run's workflow.
	workflowID(id string) string
}

// contender makes a side do runs as fast as it can, and then some at a low rate, to measure the times between steps.
func (p *runsPlan) contender(name string, s chain) contender {
	return contender{name: name, n: p.runs * chainSteps,
		work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
			perSecond, err := throughput(ctx, s, some(part, p.runs), p.clients)
			return perSecond * chainSteps, nil, err
		},
		rest: func(ctx context.Context) ([]time.Duration, error) { return gaps(ctx, s, p.quiet) }}
}

// gaps starts runs at a low rate, and returns the times between their steps.
func gaps(ctx context.Context, s chain, n int) (gaps []time.Duration, err error) {
	runs := make([]string, n)
	tick := time.NewTicker(quietRunEvery)
	defer tick.Stop()
	for k := range runs {
		if runs[k], err = s.Submit(ctx); err != nil {
			return nil, fmt.Errorf("start a run: %w", err)
		}
		<-tick.C
	}
	for _, id := range runs {
		steps, _, err := s.steps(ctx, id)
		if err != nil {
			return nil, err
		}
		for k := 1; k < len(steps); k++ {
			gaps = append(gaps, steps[k].Sub(steps[k-1]))
		}
	}
	return gaps, nil
}

// eventsOfStep is the length of a run's history by its steps.
func eventsOfStep(ctx context.Context, i *Installation, s chain) (float64, error) {
	id, err := s.Submit(ctx)
	if err != nil {
		return 0, err
	}
	if _, _, err := s.steps(ctx, id); err != nil {
		return 0, err
	}
	d, err := i.sdk.DescribeWorkflowExecution(ctx, s.workflowID(id), "")
	if err != nil {
		return 0, err
	}
	return float64(d.GetWorkflowExecutionInfo().GetHistoryLength()) / chainSteps, nil
}

func (b bare) workflowID(id string) string { return id }

// ourChain is a run of a job.
type ourChain struct {
	*crew
	plan job.Plan
}

// newChain makes the plan of five steps, each of which reads the output of the one before.
func newChain(c *crew) (*ourChain, error) {
	text := fmt.Sprintf("job: chain\ncluster: %s\nsafety: idempotent\nsteps:\n  s1: {task: {type: %s}}\n", c.cluster,
		taskType)
	for n := 2; n <= chainSteps; n++ {
		text += fmt.Sprintf("  s%d: {after: [s%d], task: {type: %s, payload: \"${steps.s%d.output}\"}}\n", n, n-1, taskType,
			n-1)
	}
	_, plan, err := flow.Read("chain", []byte(text))
	if err != nil {
		return nil, err
	}
	return &ourChain{c, *plan}, nil
}

// Submit implements side.
func (c *ourChain) Submit(ctx context.Context) (string, error) {
	id := "chain-" + uuid.NewString()
	in := contract.RunInput{Plan: c.plan}
	begin := contract.StartOfRun(id, &in, 0)
	_, err := c.sdk.ExecuteWorkflow(ctx, begin.Options(), contract.RunWorkflow, in)
	return id, err
}

// Begun implements side.
func (c *ourChain) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	closed, err = outcome(ctx, c.sdk, c.workflowID(id), nil)
	return began, closed, err
}

func (c *ourChain) steps(ctx context.Context, id string) (began []time.Time, closed time.Time, err error) {
	var ledger job.Ledger
	if closed, err = outcome(ctx, c.sdk, c.workflowID(id), &ledger); err != nil {
		return nil, closed, err
	}
	for n := range ledger.Steps {
		var at int64
		if err := json.Unmarshal(ledger.Steps[n].Output, &at); err != nil {
			return nil, closed, fmt.Errorf("read the output of step %s: %w", ledger.Steps[n].Step, err)
		}
		began = append(began, time.Unix(0, at))
	}
	return began, closed, nil
}

func (c *ourChain) workflowID(id string) string { return contract.RunWorkflowID(id) }
