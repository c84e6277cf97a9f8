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

	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/job"
)

// eventsPlan is how many events to send, and how many a second.
type eventsPlan struct{ rounds, events, rate int }

type eventsReport struct {
	report
	Rate  int          `json:"events_per_second"`
	Tasks DispatchSide `json:"tasks"` // of events whose data is a task
	Runs  DispatchSide `json:"runs"`  // of events that a job's trigger matches
}

func eventsBenchmark() benchmark {
	p := eventsPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "events",
			Short: "Measure how long events from outside take until what they start has begun",
			Long: `Measure the time from the answer to an event from outside to the first instruction of what it starts: the task in its
data, and the step of a run that a job's trigger starts, in turns.`,
			Example: "  mainstay bench events\n  mainstay bench events --rounds 1 --events 50",
		},
		numbers: []number{
			{"rounds", &p.rounds, 5, 1, 1000, "rounds of each kind"},
			{"events", &p.events, 100, 1, 100_000, "events in a round"},
			{"rate", &p.rate, 10, 1, 1000, "events a second"},
		},
		measure: func(ctx context.Context, r *run) error { return r.events(ctx, p) },
	}
}

func (r *run) events(ctx context.Context, p eventsPlan) error {
	i, err := r.install(ctx, Setting{durability: string(config.DurableProcess)})
	if err != nil {
		return err
	}
	defer i.Stop()
	if _, err = i.Start("agent", "bench", "agent", "--hub", i.url, "--id", "bench", "--slots", "32"); err != nil {
		return err
	}
	temporal, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	triggered := fmt.Appendf(nil, "job: triggered\ncluster: %s\nsafety: idempotent\non: [{event: {type: %s}}]\n"+
		"steps: {only: {task: {type: %s}}}\n", dev.Cluster, triggerType, taskType)
	if _, err := i.Jobs.Apply(ctx, "triggered", triggered, ""); err != nil {
		return err
	}
	fmt.Fprintf(r.story, "\n%d rounds of each kind, each of %d events, %d a second.\n", p.rounds, p.events, p.rate)
	result := eventsReport{report: r.report, Rate: p.rate}
	sides := [2]events{{i.Client, temporal, "AgentTaskAssigned"}, {i.Client, temporal, triggerType}}
	judged := [2]*DispatchSide{&result.Tasks, &result.Runs}
	var all [2][]dispatched
	every := time.Second / time.Duration(p.rate)
	for n := range sides { // a round that does not count
		if _, err := dispatch(ctx, sides[n], p.rate, every); err != nil {
			return err
		}
	}
	err = inTurns(p.rounds, 2, func(round, n int) error {
		sent, err := dispatch(ctx, sides[n], p.events, every)
		all[n] = append(all[n], sent...)
		judged[n].Early = 0
		judged[n].judge(all[n])
		fmt.Fprintf(r.story, "round %d/%d  %-18s p50 so far %.1f ms\n", round, p.rounds, sides[n].Name(),
			judged[n].Acknowledged.P50)
		return err
	})
	if err != nil {
		return err
	}
	return r.print(result, func(w io.Writer) {
		t := newTable(w, fmt.Sprintf("%d events of each kind", result.Tasks.Acknowledged.Count), "task", "run", "")
		t.latencies("accepted → begin", result.Tasks.Acknowledged, result.Runs.Acknowledged)
		t.latencies("sent → begin", result.Tasks.Submitted, result.Runs.Submitted)
		t.flush()
	})
}

// triggerType is the type of events that start runs.
const triggerType = "bench.trigger"

// events is the way of an event from outside: REST, its workflow, and what that starts.
type events struct {
	api      *client.Client
	temporal sdkclient.Client
	kind     string // the type of the events
}

func (e events) Name() string { return e.kind }

// Submit sends an event, whose data is a task with its id.
func (e events) Submit(ctx context.Context) (string, error) {
	id := uuid.NewString()
	sent, err := e.api.Inbound.Send(ctx, fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/bench","type":%q,
		"data":{"taskId":%q,"type":%q,"cluster":%q}}`, id, e.kind, id, taskType, dev.Cluster))
	if err != nil || e.kind != triggerType {
		return id, err
	}
	return sent.ID, nil
}

func (e events) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	if e.kind != triggerType {
		return mainstay{temporal: e.temporal}.Begun(ctx, id)
	}
	err = eventually(ctx, "the run of event "+id, noLimit, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		known, err := e.api.Inbound.Get(ctx, id)
		if err == nil && len(known.Dispatches) > 0 {
			id = known.Dispatches[0].ID
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return began, closed, err
	}
	var ledger job.Ledger
	if closed, err = outcome(ctx, e.temporal, contract.RunWorkflowID(id), &ledger); err != nil {
		return began, closed, err
	}
	var at int64
	err = json.Unmarshal(ledger.Steps[0].Output, &at)
	return time.Unix(0, at), closed, err
}
