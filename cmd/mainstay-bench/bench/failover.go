package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
)

// failoverPlan is how much to measure.
type failoverPlan struct {
	agents                                int           // in the cluster whose agents are hit
	kills, freezes, stops, leaders, hosts int           // how often
	outageAgents                          int           // have running work when parts of the control plane die
	away                                  time.Duration // of Temporal
	flap                                  time.Duration // how long connections are cut
	healthy                               time.Duration // how long healthy agents are watched
	only                                  []string      // faults, by name; empty: all
}

// faultRow is the result of one fault.
type faultRow struct {
	Name   string `json:"name"` // for --only
	Fault  string `json:"fault"`
	Target string `json:"target"`
	Faults int    `json:"faults"`                         // how often it was done
	Twice  int    `json:"overlapped"`                     // attempts of one task, or work of two leaders
	Tasks  int    `json:"attempts_in_progress,omitempty"` // during an outage
	Rerun  int    `json:"run_again"`                      // attempts of these
	Lost   int    `json:"lost"`                           // of these, did not complete
	// GivenUp and Suspected count healthy agents.
	GivenUp   int `json:"given_up_wrongly,omitempty"`
	Suspected int `json:"suspected_wrongly,omitempty"`
	// The fields computed from times are in milliseconds.
	Moved int     `json:"tasks_moved"`
	P50   float64 `json:"p50_ms,omitempty"`
	P99   float64 `json:"p99_ms,omitempty"`
	Max   float64 `json:"max_ms,omitempty"`
	Met   bool    `json:"met"`

	times          []time.Duration // from the fault to the moved attempt's first instruction, or as Fault says
	limit, typical time.Duration   // targets of the 99th percentile and of the median; 0: none
	tolerated      int             // faults for each attempt that may be run again; 0: none may
	fault
}

// fault is how to do one.
type fault struct {
	scene  *scene
	do     func(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error
	signal syscall.Signal // to agents
	// also is what happens to the control plane, or what a person does, after the fault of an agent.
	also func(ctx context.Context, c *crew, agent string) error
}

// sumUp fills the fields that follow from the rest.
func (r *faultRow) sumUp() {
	s := timesOf(r.times)
	r.Moved, r.P50, r.P99, r.Max = s.Count, s.P50, s.P99, s.Max
	r.Met = (r.limit == 0 || s.P99 <= milliseconds(r.limit)) && (r.typical == 0 || s.P50 <= milliseconds(r.typical)) &&
		r.Twice+r.Lost+r.GivenUp == 0 && (r.Rerun == 0 || r.tolerated > 0 && r.Rerun*r.tolerated <= r.Faults)
}

// scene is where a fault happens: agents in an installation of their own, most with work. Faults that follow each other
// share one, unless each needs its own.
type scene struct {
	once  bool
	enter enter
}

var (
	plain    = &scene{enter: atWork(asItIs)}
	far30ms  = &scene{enter: atWork(farFrom(15 * time.Millisecond))}
	far100ms = &scene{enter: atWork(farFrom(50 * time.Millisecond))}
	cuttable = &scene{enter: atWork(farFrom(0))}
	busy     = &scene{enter: plain.enter}
	cables   = &scene{enter: atWork(layCables)}
	ownHub   = &scene{enter: atWork(withHub)}
	led      = &scene{enter: enterLed}
	stopping = &scene{enter: enterStopping}
	many     = &scene{once: true, enter: enterMany(asItIs)}
	manyHub  = &scene{once: true, enter: enterMany(withHub)}
	manyFar  = &scene{once: true, enter: enterMany(holdTemporal)}
)

// enter starts agents, after the network between them and the hub was made.
type enter func(ctx context.Context, p *failoverPlan, i *Installation) (*crew, error)

// atWork gives each agent work.
func atWork(network func(context.Context, *crew) error) enter {
	return func(ctx context.Context, p *failoverPlan, i *Installation) (*crew, error) {
		c := newCrew(i, "bench", p.agents)
		if err := network(ctx, c); err != nil {
			return nil, err
		}
		if err := c.begin(ctx, api.ActiveActive); err != nil {
			return nil, err
		}
		return c, c.fill(ctx)
	}
}

// enterMany has more agents, for outages.
func enterMany(network func(context.Context, *crew) error) enter {
	return func(ctx context.Context, p *failoverPlan, i *Installation) (*crew, error) {
		c := newCrew(i, "bench", p.outageAgents)
		if err := network(ctx, c); err != nil {
			return nil, err
		}
		return c, c.begin(ctx, api.ActiveActive)
	}
}

func asItIs(context.Context, *crew) error { return nil }

// withHub has the agents' hub be a process of its own.
func withHub(ctx context.Context, c *crew) error { return c.startServe(ctx, "hub") }

// holdTemporal puts a network between Temporal and a hub of its own that can hold what passes.
func holdTemporal(ctx context.Context, c *crew) (err error) {
	if c.store, err = c.newRelay(c.temporal, 0); err != nil {
		return err
	}
	c.safety, c.temporal = api.Fenced, strings.TrimPrefix(c.store.url(), "http://")
	return c.startServe(ctx, "hub")
}

// farFrom puts a network between agents and hub that delays each direction.
func farFrom(delay time.Duration) func(context.Context, *crew) error {
	return func(_ context.Context, c *crew) (err error) {
		c.relay, err = c.newRelay(strings.TrimPrefix(c.agentsURL(), "http://"), delay)
		return err
	}
}

// layCables gives each agent a network namespace.
func layCables(ctx context.Context, c *crew) (err error) {
	c.hubHost, c.cables = "0.0.0.0", map[string]*cable{}
	for n, id := range c.ids {
		if c.cables[id], err = c.newCable(n); err != nil {
			return err
		}
	}
	return c.startServe(ctx, "hub")
}

// leaderCrew is how many agents the cluster with a leader has.
const leaderCrew = 3

// enterLed has one agent lead, with a fenced task.
func enterLed(ctx context.Context, _ *failoverPlan, i *Installation) (*crew, error) {
	c := newCrew(i, "bench-leader", leaderCrew)
	c.safety, c.led = api.Fenced, true
	if err := c.begin(ctx, api.ActivePassive); err != nil {
		return nil, err
	}
	return c, c.oneTask(ctx)
}

// enterStopping has one agent lead that ends its work before it stops.
func enterStopping(ctx context.Context, _ *failoverPlan, i *Installation) (*crew, error) {
	c := newCrew(i, "bench-stop", leaderCrew)
	c.stopAfter = 2 * leaderWork
	return c, c.begin(ctx, api.ActivePassive)
}

// faults are in the order in which they are done: first those of agents, then those of parts of the control plane.
var faults = []faultRow{
	{Name: "kill", Fault: "SIGKILL, idempotent work", Target: "p50 ≤ 0.3 s, p99 ≤ 0.5 s",
		typical: 300 * time.Millisecond, limit: 500 * time.Millisecond,
		fault: fault{scene: plain, do: hits, signal: syscall.SIGKILL}},
	{Name: "freeze", Fault: "SIGSTOP", Target: "≤ 8 s (failure_threshold + 1 s)", limit: 8 * time.Second,
		fault: fault{scene: plain, do: hits, signal: syscall.SIGSTOP}},
	{Name: "stop", Fault: "SIGTERM: gap without anybody at work", Target: "≤ 0.3 s, nothing runs twice",
		limit: 300 * time.Millisecond, fault: fault{scene: plain, do: hits, signal: syscall.SIGTERM}},
	{Name: "kill-30ms", Fault: "SIGKILL, round trip of 30 ms", Target: "p50 ≤ 0.42 s, p99 ≤ 0.62 s",
		typical: 420 * time.Millisecond, limit: 620 * time.Millisecond,
		fault: fault{scene: far30ms, do: hits, signal: syscall.SIGKILL}},
	{Name: "kill-100ms", Fault: "SIGKILL, round trip of 100 ms", Target: "p50 ≤ 0.7 s, p99 ≤ 0.9 s",
		typical: 700 * time.Millisecond, limit: 900 * time.Millisecond,
		fault: fault{scene: far100ms, do: hits, signal: syscall.SIGKILL}},
	{Name: "flap", Fault: "connections cut each second", Target: "begun twice in ≤ 1 of 100 cuts", tolerated: 100,
		fault: fault{scene: cuttable, do: flap}},
	{Name: healthyFault, Fault: "none, on a machine with 4 busy processes for each core",
		Target: "nobody given up, nothing begun twice", fault: fault{scene: busy, do: watchHealthy}},
	{Name: "host", Fault: "cable of the agent's host pulled", Target: "p99 ≤ 4.5 s",
		limit: 4500 * time.Millisecond, fault: fault{scene: cables, do: hits, signal: syscall.SIGKILL}},
	{Name: "both", Fault: "agent and hub killed together, hub restarted", Target: "p99 ≤ 8 s", limit: 8 * time.Second,
		fault: fault{scene: ownHub, do: hits, signal: syscall.SIGKILL, also: restartHub}},
	{Name: "leader", Fault: "leader killed (active_passive, fenced)",
		Target: "≤ 3.5 s (role lease + 0.5 s), never two at once", limit: 3500 * time.Millisecond,
		fault: fault{scene: led, do: hits, signal: syscall.SIGKILL}},
	{Name: "proof", Fault: "leader killed, with proof of death", Target: "≤ 0.6 s, never two at once",
		limit: 600 * time.Millisecond,
		fault: fault{scene: led, do: hits, signal: syscall.SIGKILL, also: proveDeath}},
	{Name: "stop-leader", Fault: "leader stopped (SIGTERM), its work needs 20 s more",
		Target: "≤ 1 s without a leader, nothing runs twice", limit: time.Second,
		fault: fault{scene: stopping, do: stopLeaders, signal: syscall.SIGTERM}},
	{Name: "hub", Fault: "hub process killed and restarted", Target: "0 run again, 0 lost",
		fault: fault{scene: manyHub, do: outage(killHub)}},
	{Name: "temporal", Fault: "embedded Temporal, gateway and worker killed, restarted on their file",
		Target: "0 run again, 0 lost", fault: fault{scene: manyHub, do: outage(killTemporal)}},
	{Name: "cut-off", Fault: "hub cut off from Temporal for a minute, another lives (fenced)",
		Target: "at the other hub ≤ 10 s, 0 run again, 0 lost", limit: 10 * time.Second,
		fault: fault{scene: manyFar, do: outage(cutOffHub)}},
	{Name: "all", Fault: "whole control plane killed in one, restarted at once", Target: "0 run again, 0 lost",
		fault: fault{scene: many, do: outage(killAll)}},
}

// healthyFault takes long, and is measured only where --only names it.
const healthyFault = "healthy"

// times is how often a fault is done.
func (p *failoverPlan) times(row *faultRow) int {
	switch {
	case row.scene == cables || row.scene == ownHub:
		return p.hosts
	case row.scene == led || row.scene == stopping:
		return p.leaders
	}
	of := map[syscall.Signal]int{syscall.SIGKILL: p.kills, syscall.SIGSTOP: p.freezes, syscall.SIGTERM: p.stops}
	return of[row.signal]
}

// restartHub kills the hub and starts it again.
func restartHub(ctx context.Context, c *crew, _ string) error {
	c.hub.end()
	return c.startServe(ctx, "hub")
}

// proveDeath says that an agent has ended, once it has.
func proveDeath(ctx context.Context, c *crew, agent string) error {
	<-c.processes[agent].done
	_, err := c.Agents.Dead(ctx, agent, api.DeadRequest{Proof: "the benchmark killed it and waited for its end"})
	return err
}

// faultNames are for --only.
func faultNames() []string {
	names := make([]string, len(faults))
	for i := range faults {
		names[i] = faults[i].Name
	}
	return names
}

type failoverReport struct {
	report
	Faults []faultRow `json:"faults"`
}

func failoverBenchmark() benchmark {
	p := failoverPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "failover",
			Short: "Measure how long work stands still after faults",
			Long: `Measure the time from a fault to the first instruction of the moved attempt on another agent, with real
processes that are killed, stopped and frozen, and what becomes of running work when parts of the control plane die.

Faults: ` + strings.Join(faultNames(), ", ") + `. "healthy" is done only where --only names it: it watches agents that
nothing happens to, on a machine that is too busy.`,
			Example: "  mainstay-bench failover\n  mainstay-bench failover --only kill,leader --kills 100",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.agents, "agents", 20, "agents with work, of which some are hit")
			flags.IntVar(&p.kills, "kills", 50, "agents killed (SIGKILL)")
			flags.IntVar(&p.freezes, "freezes", 20, "agents frozen (SIGSTOP)")
			flags.IntVar(&p.stops, "stops", 50, "agents stopped (SIGTERM)")
			flags.IntVar(&p.leaders, "leaders", 10, "leaders killed or stopped")
			flags.IntVar(&p.hosts, "hosts", 10, "cables pulled, and agents killed with their hub")
			flags.IntVar(&p.outageAgents, "outage-agents", 100, "agents with work when parts of the control plane die")
			flags.DurationVar(&p.flap, "flap", time.Minute, "how long connections are cut each second")
			flags.DurationVar(&p.healthy, "healthy", 30*time.Minute, "how long healthy agents are watched")
			flags.DurationVar(&p.away, "away", 20*time.Second, "how long Temporal is away")
			app.MayBeZero(flags, "away")
		},
		only:  &p.only,
		parts: faultNames(),
		check: func(*pflag.FlagSet) error {
			if p.agents < 5 { // fewer would put the mass-loss brake on
				return app.UsageError("--agents must be at least 5")
			}
			return nil
		},
		measure: func(ctx context.Context, r *run) error {
			result := failoverReport{report: r.report}
			var err error
			result.Faults, err = r.failover(ctx, &p)
			return errors.Join(r.print(result, func(w io.Writer) { writeFaults(w, result.Faults) }), err)
		},
	}
}

// failover measures every fault of the plan. With an error, it returns the rows measured before.
func (r *run) failover(ctx context.Context, p *failoverPlan) (rows []faultRow, err error) {
	rows = []faultRow{}
	var i *Installation
	var c *crew
	var in *scene
	stop := func() {
		if i != nil {
			i.Stop()
		}
	}
	defer func() { stop() }()
	for _, row := range faults {
		if !wanted(p.only, row.Name) || row.Name == healthyFault && len(p.only) == 0 {
			continue
		}
		if in != row.scene || in.once {
			stop()
			in = row.scene
			if i, err = r.install(ctx, Setting{}); err == nil {
				c, err = in.enter(ctx, p, i)
			}
		}
		if err == nil {
			err = row.do(ctx, p, c, &row)
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", row.Name, err)
		}
		row.sumUp()
		rows = append(rows, row)
	}
	return rows, nil
}

// writeFaults prints the rows.
func writeFaults(w io.Writer, rows []faultRow) {
	t := newTable(w, "fault", "faults", "p50", "p99", "max", "else", "target", "met")
	seconds := func(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }
	for i := range rows {
		r := &rows[i]
		p50, p99, longest := "", "", ""
		if r.Moved > 0 {
			p50, p99, longest = seconds(r.P50), seconds(r.P99), seconds(r.Max)
		}
		counts := fmt.Sprintf("%d tasks moved, %d overlapped", r.Moved, r.Twice)
		if r.Tasks > 0 {
			counts = fmt.Sprintf("%d attempts in progress: %d run again, %d lost", r.Tasks, r.Rerun, r.Lost)
		}
		if r.Name == healthyFault {
			counts += fmt.Sprintf("; %d agents given up, %d suspected", r.GivenUp, r.Suspected)
		}
		met := "no"
		if r.Met {
			met = "yes"
		}
		t.row(r.Fault, r.Faults, p50, p99, longest, counts, r.Target, met)
	}
	t.flush()
}
