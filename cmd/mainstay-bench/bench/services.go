package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/client"
)

// How long another orchestrator, Nomad 2.0.5, takes until an instance of a killed agent begins elsewhere, in
// milliseconds: measured once with its defaults, on a machine like this.
const (
	nomadMedian  = 20_600
	nomadLongest = 27_600
)

// lossWindow is how long the loss of an agent counts: each is the first of its instances, whose replacement waits for
// nothing.
const lossWindow = time.Second

// servicesPlan is how much to measure.
type servicesPlan struct {
	agents, instances, kills, parallel int
	only                               []string
}

// services are the results. Times are in milliseconds.
type services struct {
	report
	Kills       int     `json:"agents_killed"`
	Replaced    Times   `json:"replaced"` // from the kill to the replacement's first instruction
	Nomad       Times   `json:"nomad"`
	Instances   int     `json:"instances"`
	MaxParallel int     `json:"max_parallel"`
	Update      float64 `json:"update_ms"`
	Polls       int     `json:"polls"`
	// Found is the fewest healthy instances that discovery answered during the update, AtWork the fewest whose handlers
	// ran, by the ledger.
	Found  int  `json:"fewest_healthy"`
	AtWork int  `json:"fewest_at_work"`
	Met    bool `json:"met"`
}

func servicesBenchmark() benchmark {
	p := servicesPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "services",
			Short: "Measure how instances of a service are replaced",
			Long: `Measure how long an instance of a service is missing after its agent was killed, and whether a
rolling update ever has fewer healthy instances than wanted. Agents are processes of their own.`,
			Example: "  mainstay-bench services\n  mainstay-bench services --only update --instances 100",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.agents, "agents", 10, "agents that run the instances")
			flags.IntVar(&p.instances, "instances", 50, "of the service that is updated")
			flags.IntVar(&p.parallel, "max-parallel", 5, "instances that are replaced at a time")
			flags.IntVar(&p.kills, "kills", 20, "agents killed (SIGKILL)")
		},
		only:    &p.only,
		parts:   []string{"kill", "update"},
		measure: func(ctx context.Context, r *run) error { return r.services(ctx, p) },
	}
}

func (r *run) services(ctx context.Context, p servicesPlan) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	c := newCrew(i, "bench", p.agents)
	c.slots = 2 + (p.instances+p.parallel)*2/p.agents // room for the new ones, also while an agent is away
	if err := c.begin(ctx, api.ActiveActive); err != nil {
		return err
	}
	s := &services{report: r.report, Instances: p.instances, MaxParallel: p.parallel, Met: true,
		Nomad: Times{P50: nomadMedian, Max: nomadLongest}}
	if err := c.serve(ctx, p, "1"); err != nil {
		return err
	}
	if wanted(p.only, "kill") {
		if err := s.kill(ctx, c, p); err != nil {
			return err
		}
	}
	if wanted(p.only, "update") {
		if err := s.update(ctx, c, p); err != nil {
			return err
		}
	}
	return errors.Join(r.print(s, s.write), s.stop(ctx, c))
}

// serve gives the service a version, and waits until all its instances run.
func (c *crew) serve(ctx context.Context, p servicesPlan, version string) error {
	if err := c.define(ctx, p, version); err != nil {
		return err
	}
	return c.awaitServing(ctx, p.instances, version)
}

func (c *crew) define(ctx context.Context, p servicesPlan, version string) error {
	_, err := c.Jobs.Apply(ctx, "bench", fmt.Appendf(nil, `job: bench
type: service
cluster: bench
update: {max_parallel: %d, healthy_after: 100ms}
recovery: {mode: cluster_recover, reschedule: {interval: %s}}
instances:
  count: %d
  task: {type: %s, payload: {run: 24h}}
  service: {name: bench, tags: [v%s]}
`, p.parallel, lossWindow, p.instances, workType, version), "")
	return err
}

// awaitServing waits until discovery answers n healthy instances of a version.
func (c *crew) awaitServing(ctx context.Context, n int, version string) error {
	return eventually(ctx, "all instances in service", stuckLimit, 50*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			found, err := c.Services.Get(ctx, "bench", client.ServiceQuery{Tag: "v" + version})
			return err == nil && len(found.Instances) == n, err
		})
}

// kill kills one agent after the other and takes the times until its instances begin elsewhere.
func (s *services) kill(ctx context.Context, c *crew, p servicesPlan) error {
	row := faultRow{fault: fault{signal: syscall.SIGKILL}}
	for k := range p.kills {
		if err := c.ledger.more(); err != nil {
			return err
		}
		busiest := slices.MaxFunc(c.ids, func(a, b string) int { // one that was just started has nothing
			return cmp.Compare(len(c.running()[a]), len(c.running()[b]))
		})
		moved, err := c.hit(ctx, &row, busiest)
		if err != nil {
			return err
		}
		row.count(moved, 1)
		if err := c.revive(ctx, busiest); err != nil {
			return err
		}
		fmt.Fprintf(c.story, "killed %d of %d agents; %d instances were replaced\n", k+1, p.kills, len(row.times))
		backoff.Pause(ctx, lossWindow+100*time.Millisecond)
	}
	s.Kills, s.Replaced = p.kills, timesOf(row.times)
	s.Met = s.Met && s.Replaced.P50 <= milliseconds(500*time.Millisecond)
	return c.awaitServing(ctx, p.instances, "1")
}

// update applies another version, and looks all the time how many healthy instances are found.
func (s *services) update(ctx context.Context, c *crew, p servicesPlan) error {
	begun := time.Now()
	if err := c.define(ctx, p, "2"); err != nil {
		return err
	}
	s.Found = p.instances
	err := eventually(ctx, "the update's end", noLimit, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		found, err := c.Services.Get(ctx, "bench", client.ServiceQuery{})
		if err != nil {
			return false, err
		}
		s.Polls++
		s.Found = min(s.Found, len(found.Instances))
		updated := 0
		for i := range found.Instances {
			if slices.Contains(found.Instances[i].Tags, "v2") {
				updated++
			}
		}
		if s.Polls%100 == 0 {
			fmt.Fprintf(c.story, "%d of %d instances are replaced\n", updated, p.instances)
		}
		return updated == p.instances && len(found.Instances) == p.instances, nil
	})
	s.Update = milliseconds(time.Since(begun))
	if err = errors.Join(err, c.ledger.more()); err != nil {
		return err
	}
	s.AtWork = fewestAtWork(c.ledger.entries, begun, c.gone)
	s.Met = s.Met && min(s.Found, s.AtWork) >= p.instances
	return nil
}

// fewestAtWork is the least number of handlers that ran at a time since then. Those of killed processes do not count.
func fewestAtWork(entries []ledgerEntry, since time.Time, gone map[int]bool) int {
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b ledgerEntry) int { return cmp.Compare(a.At, b.At) })
	running, fewest := 0, -1
	for _, e := range sorted {
		if gone[e.PID] {
			continue
		}
		if fewest < 0 && e.time().After(since) {
			fewest = running
		}
		switch e.Event {
		case ledgerBegin:
			running++
		case ledgerEnd, ledgerStop:
			running--
		}
		if fewest >= 0 {
			fewest = min(fewest, running)
		}
	}
	return fewest
}

// stop ends the service before its agents, which would hand their instances to each other.
func (s *services) stop(ctx context.Context, c *crew) error { return c.Jobs.Delete(ctx, "bench") }

func (s *services) write(w io.Writer) {
	seconds := func(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }
	if s.Kills > 0 {
		t := newTable(w, fmt.Sprintf("%d agents killed, %d instances replaced", s.Kills, s.Replaced.Count),
			"Nomad 2.0.5", "Mainstay")
		t.row("kill to the replacement's first instruction, p50", seconds(s.Nomad.P50), seconds(s.Replaced.P50))
		t.row("p99", "", seconds(s.Replaced.P99))
		t.row("max", seconds(s.Nomad.Max), seconds(s.Replaced.Max))
		t.flush()
	}
	if s.Polls > 0 {
		t := newTable(w, fmt.Sprintf("rolling update of %d instances, %d at a time", s.Instances, s.MaxParallel), "")
		t.row("in all", seconds(s.Update))
		t.row(fmt.Sprintf("fewest healthy in %d answers of discovery", s.Polls), s.Found)
		t.row("fewest at work at a time, by the handlers", s.AtWork)
		t.flush()
	}
}
