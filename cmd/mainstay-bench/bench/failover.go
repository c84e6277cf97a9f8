package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// failoverPlan is how much to measure.
type failoverPlan struct {
	agents       int            // in the cluster whose agents are killed, stopped and frozen
	times        map[string]int // how often an agent is hit, by fault
	outageAgents int            // have running work when parts of the control plane die
	away         time.Duration  // of Temporal
	flap         time.Duration  // how long connections are cut
	healthy      time.Duration  // how long healthy agents are watched
	only         []string       // faults, by name; empty: all
}

// faultRow is what came of one fault.
type faultRow struct {
	Name   string `json:"name"` // for --only
	Fault  string `json:"fault"`
	Target string `json:"target"`
	Faults int    `json:"faults"`                         // how often it was done
	Twice  int    `json:"overlapped"`                     // attempts of one task, or work of two leaders
	Tasks  int    `json:"attempts_in_progress,omitempty"` // during an outage
	Rerun  int    `json:"run_again"`                      // attempts of these
	Lost   int    `json:"lost"`                           // of these, did not complete
	// GivenUp and Suspected count agents, of which nothing is wrong.
	GivenUp   int `json:"given_up_wrongly,omitempty"`
	Suspected int `json:"suspected_wrongly,omitempty"`
	// What follows from times is in milliseconds.
	Moved int     `json:"tasks_moved"`
	P50   float64 `json:"p50_ms,omitempty"`
	P99   float64 `json:"p99_ms,omitempty"`
	Max   float64 `json:"max_ms,omitempty"`
	Met   bool    `json:"met"`

	times          []time.Duration // from the fault to the moved attempt's first instruction, or as Fault says
	limit, typical time.Duration   // targets of the 99th percentile and of the median; 0: none
	signal         syscall.Signal  // to agents; 0: it hits parts of the control plane
	setup          string          // what it needs beside plain agents: a leader, a network, a hub of its own
	delay          time.Duration   // of the network, in one direction
	// also is what happens to the control plane, or what a person does, after the fault of an agent.
	also func(ctx context.Context, c *crew, agent string) error
}

// sumUp fills what follows from the rest.
func (r *faultRow) sumUp() {
	s := timesOf(r.times)
	r.Moved, r.P50, r.P99, r.Max = s.Count, s.P50, s.P99, s.Max
	if r.setup == setupBusy {
		r.Met = r.GivenUp+r.Rerun == 0
		return
	}
	if r.signal == syscall.SIGCONT {
		r.Met = r.Rerun*100 <= r.Faults
		return
	}
	r.Met = (r.limit == 0 || s.P99 <= milliseconds(r.limit)) && (r.typical == 0 || s.P50 <= milliseconds(r.typical)) &&
		r.Twice+r.Rerun+r.Lost == 0
}

// leaderCrew is how many agents the cluster with a leader has.
const leaderCrew = 3

// faults are in the order in which they are done: first those of agents, then those of parts of the control plane.
var faults = []faultRow{
	{Name: "kill", Fault: "SIGKILL, idempotent work", Target: "p50 ≤ 0.3 s, p99 ≤ 0.5 s",
		typical: 300 * time.Millisecond, limit: 500 * time.Millisecond, signal: syscall.SIGKILL},
	{Name: "freeze", Fault: "SIGSTOP", Target: "≤ 8 s (failure_threshold + 1 s)",
		limit: 8 * time.Second, signal: syscall.SIGSTOP},
	{Name: "stop", Fault: "SIGTERM: gap without anybody at work",
		Target: "≤ 0.3 s, nothing runs twice", limit: 300 * time.Millisecond, signal: syscall.SIGTERM},
	{Name: "kill-30ms", Fault: "SIGKILL, round trip of 30 ms", Target: "p50 ≤ 0.42 s, p99 ≤ 0.62 s",
		typical: 420 * time.Millisecond, limit: 620 * time.Millisecond, signal: syscall.SIGKILL,
		setup: setupFar + "30ms", delay: 15 * time.Millisecond},
	{Name: "kill-100ms", Fault: "SIGKILL, round trip of 100 ms", Target: "p50 ≤ 0.7 s, p99 ≤ 0.9 s",
		typical: 700 * time.Millisecond, limit: 900 * time.Millisecond, signal: syscall.SIGKILL,
		setup: setupFar + "100ms", delay: 50 * time.Millisecond},
	{Name: "flap", Fault: "connections cut each second", Target: "begun twice in ≤ 1 of 100 cuts", setup: setupFar,
		signal: syscall.SIGCONT},
	{Name: healthyFault, Fault: "none, on a machine with 4 busy processes for each core",
		Target: "nobody given up, nothing begun twice", setup: setupBusy, signal: syscall.SIGCONT},
	{Name: "host", Fault: "cable of the agent's host pulled", Target: "p99 ≤ 4.5 s",
		limit: 4500 * time.Millisecond, signal: syscall.SIGKILL, setup: setupCables},
	{Name: "both", Fault: "agent and hub killed together, hub restarted", Target: "p99 ≤ 8 s",
		limit: 8 * time.Second, signal: syscall.SIGKILL, setup: setupHub, also: restartHub},
	{Name: "leader", Fault: "leader killed (active_passive, fenced)",
		Target: "≤ 3.5 s (role lease + 0.5 s), never two at once", limit: 3500 * time.Millisecond,
		signal: syscall.SIGKILL, setup: setupLed},
	{Name: "proof", Fault: "leader killed, with proof of death", Target: "≤ 0.6 s, never two at once",
		limit: 600 * time.Millisecond, signal: syscall.SIGKILL, setup: setupLed, also: proveDeath},
	{Name: "stop-leader", Fault: "leader stopped (SIGTERM), its work needs 20 s more",
		Target: "≤ 1 s without a leader, nothing runs twice",
		limit:  time.Second, signal: syscall.SIGTERM, setup: setupStops},
	{Name: "hub", Fault: "hub process killed and restarted", Target: "0 run again, 0 lost"},
	{Name: "temporal", Fault: "embedded Temporal, gateway and worker killed, restarted on their file",
		Target: "0 run again, 0 lost"},
	{Name: "cut-off", Fault: "hub cut off from Temporal for a minute, another lives (fenced)",
		Target: "at the other hub ≤ 10 s, 0 run again, 0 lost", limit: 10 * time.Second},
	{Name: "all", Fault: "whole control plane killed in one, restarted at once", Target: "0 run again, 0 lost"},
}

// What faults need beside plain agents.
const (
	setupLed    = "a leader"
	setupFar    = "a network of " // its round trip
	setupCables = "a network namespace for each agent"
	setupHub    = "a hub of its own"
	setupBusy   = "busy processes"
	setupStops  = "a leader that ends its work before it stops"
)

// healthyFault takes long, and is measured only where --only names it.
const healthyFault = "healthy"

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
	var kills, freezes, stops, leaders, hosts int
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
		numbers: []number{
			{"agents", &p.agents, 20, 5, 1000, "agents with work, of which some are hit"},
			{"kills", &kills, 50, 1, 1000, "agents killed (SIGKILL)"},
			{"freezes", &freezes, 20, 1, 1000, "agents frozen (SIGSTOP)"},
			{"stops", &stops, 50, 1, 1000, "agents stopped (SIGTERM)"},
			{"leaders", &leaders, 10, 1, 1000, "leaders killed or stopped"},
			{"hosts", &hosts, 10, 1, 1000, "cables pulled, and agents killed with their hub"},
			{"outage-agents", &p.outageAgents, 100, 1, 1000, "agents with work when parts of the control plane die"},
		},
		lengths: []length{{"flap", &p.flap, time.Minute, time.Second, "how long connections are cut each second"},
			{"healthy", &p.healthy, 30 * time.Minute, time.Second, "how long healthy agents are watched"},
			{"away", &p.away, 20 * time.Second, 0, "how long Temporal is away"}},
		only:  &p.only,
		parts: faultNames(),
		measure: func(ctx context.Context, r *run) error {
			p.times = map[string]int{"kill": kills, "freeze": freezes, "stop": stops, "leader": leaders,
				"proof": leaders, "stop-leader": leaders, "kill-30ms": kills, "kill-100ms": kills,
				"host": hosts, "both": hosts}
			result := failoverReport{report: r.report}
			var err error
			result.Faults, err = p.measure(ctx, func(ctx context.Context) (*Installation, error) {
				return r.install(ctx, Setting{})
			}, r.story)
			return errors.Join(r.print(result, func(w io.Writer) { writeFaults(w, result.Faults) }), err)
		},
	}
}

// measure measures every fault of the plan: an outage in an installation of its own, the others in one of theirs.
func (p *failoverPlan) measure(
	ctx context.Context, install func(context.Context) (*Installation, error), progress io.Writer,
) ([]faultRow, error) {
	rows := []faultRow{}
	var c *crew
	stop := func() {
		if c != nil {
			c.Stop()
			c.leaveNetwork()
			c = nil
		}
	}
	defer func() { stop() }()
	for _, row := range faults {
		if !wanted(p.only, row.Name) || row.Name == healthyFault && len(p.only) == 0 {
			continue
		}
		var err error
		if c == nil || c.setup != row.setup || row.signal == 0 {
			stop()
			c, err = p.newCrew(ctx, &row, install)
		}
		switch {
		case err != nil:
		case row.signal == 0:
			err = p.outage(ctx, c, &row, progress)
		case row.setup == setupBusy:
			err = c.watchHealthy(ctx, &row, p.healthy)
		case row.setup == setupStops:
			err = c.stopLeaders(ctx, &row, p.times[row.Name])
		case row.signal == syscall.SIGCONT:
			err = c.flap(ctx, &row, p.flap)
		default:
			err = c.hitAll(ctx, &row, p.times[row.Name], progress)
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", row.Name, err)
		}
		row.sumUp()
		rows = append(rows, row)
	}
	return rows, nil
}

// newCrew starts an installation, and in it the agents that a fault hits, with work. It is to be stopped even after an
// error.
func (p *failoverPlan) newCrew(
	ctx context.Context, row *faultRow, install func(context.Context) (*Installation, error),
) (*crew, error) {
	i, err := install(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case row.signal == 0:
		return newCrew(i, "bench", p.outageAgents), nil
	case row.setup == setupLed:
		c := newCrew(i, "bench-leader", leaderCrew)
		c.safety, c.led, c.setup = fleet.Fenced, true, row.setup
		if err := c.begin(ctx, fleet.ActivePassive); err != nil {
			return c, err
		}
		return c, c.oneTask(ctx)
	case row.setup == setupStops:
		c := newCrew(i, "bench-stop", leaderCrew)
		c.setup, c.stopAfter = row.setup, 2*leaderWork
		return c, c.begin(ctx, fleet.ActivePassive)
	}
	c := newCrew(i, "bench", p.agents)
	if err := c.enterNetwork(ctx, row); err != nil {
		return c, err
	}
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
		return c, err
	}
	return c, c.fill(ctx)
}

// enterNetwork makes what a fault needs between agents and hub.
func (c *crew) enterNetwork(ctx context.Context, row *faultRow) (err error) {
	c.setup = row.setup
	switch {
	case row.setup == setupHub:
		return c.startServe(ctx, "hub")
	case row.setup == setupCables:
		c.hubHost, c.cables = "0.0.0.0", map[string]*cable{}
		for n, id := range c.ids {
			if c.cables[id], err = newCable(n); err != nil {
				return err
			}
		}
		return c.startServe(ctx, "hub")
	case strings.HasPrefix(row.setup, setupFar):
		c.relay, err = newRelay(strings.TrimPrefix(c.agentsURL(), "http://"), row.delay)
	}
	return err
}

func (c *crew) leaveNetwork() {
	for _, relay := range []*relay{c.relay, c.store} {
		if relay != nil {
			relay.stop()
		}
	}
	for _, cable := range c.cables {
		if cable != nil {
			cable.remove()
		}
	}
}

// flap cuts all connections each second, and counts the tasks that were begun again although their agents live.
func (c *crew) flap(ctx context.Context, row *faultRow, d time.Duration) error {
	tasks := []string{}
	for _, of := range c.running() {
		tasks = slices.AppendSeq(tasks, maps.Keys(of))
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		row.Faults += c.relay.cut()
	}
	if err := pause(ctx, 5*time.Second); err != nil { // what was given up would be at work again by then
		return err
	}
	row.Tasks = len(tasks)
	if err := c.ledger.more(); err != nil {
		return err
	}
	row.Rerun = reruns(c.ledger.entries, tasks)
	return nil
}

// watchHealthy counts the agents that are given up or suspected, and the tasks that are begun again, while the machine
// has much more to do than it can.
func (c *crew) watchHealthy(ctx context.Context, row *faultRow, d time.Duration) error {
	tasks := []string{}
	for _, of := range c.running() {
		tasks = slices.AppendSeq(tasks, maps.Keys(of))
	}
	ctx, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for range 4 * runtime.NumCPU() {
		// It ends even if this process is killed.
		p := exec.CommandContext(ctx, "timeout", strconv.Itoa(int(d.Seconds())+60), "sh", "-c", "while :; do :; done")
		p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
		if err := p.Start(); err != nil {
			return fmt.Errorf("start a busy process: %w", err)
		}
		busy.Go(func() { _ = p.Wait() })
	}
	watched, done := context.WithTimeout(ctx, d)
	defer done()
	types := []string{string(fleet.EventAgentSuspect), string(fleet.EventAgentLost)}
	for event, err := range c.Events(watched, client.EventQuery{Types: types}) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			return err
		case event.Type == fleet.EventAgentLost:
			row.GivenUp++
		default:
			row.Suspected++
		}
	}
	row.Tasks = len(tasks)
	if err := c.ledger.more(); err != nil {
		return err
	}
	row.Rerun = reruns(c.ledger.entries, tasks)
	return nil
}

// outageWork is how long tasks go on that live through an outage: longer than everything that could have them run
// again, an attempt's backstop of 60 s and an outage of 20 s among it.
const outageWork = 100 * time.Second

// outage gives every agent a task, lets parts of the control plane die and come back, and counts attempts that were run
// again and tasks that did not complete. The agents' hub is a process of its own, but where all dies together.
func (p *failoverPlan) outage(ctx context.Context, c *crew, row *faultRow, progress io.Writer) error {
	fault := func(ctx context.Context) error { return c.away(ctx, 0) }
	if row.Name == "cut-off" {
		var err error
		if c.store, err = newRelay(c.temporal, 0); err != nil {
			return err
		}
		c.safety, c.temporal = fleet.Fenced, strings.TrimPrefix(c.store.url(), "http://")
		fault = func(ctx context.Context) error { return c.cutOffHub(ctx, row) }
	}
	if row.Name != "all" {
		if err := c.startServe(ctx, "hub"); err != nil {
			return err
		}
	}
	switch row.Name {
	case "hub":
		fault = func(ctx context.Context) error {
			c.hub.end()
			return c.startServe(ctx, "hub")
		}
	case "temporal":
		row.Fault += fmt.Sprintf(", %s away", p.away)
		fault = func(ctx context.Context) error { return c.away(ctx, p.away) }
	}
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
		return err
	}
	tasks, err := c.submit(ctx, len(c.ids), outageWork)
	if err != nil {
		return err
	}
	if err := c.awaitBegun(ctx, tasks); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: %d agents at work\n", row.Fault, len(c.ids))
	begun := time.Now()
	if err := fault(ctx); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: back after %s\n", row.Fault, time.Since(begun).Round(100*time.Millisecond))
	row.Faults, row.Tasks = 1, len(tasks)
	row.Lost, row.Rerun, err = c.outcome(ctx, tasks, outageWork+2*moveLimit)
	return err
}

// cutOffHub cuts the agents' hub off from Temporal until a minute after they have moved to the other hub, and takes the
// time of each move.
func (c *crew) cutOffHub(ctx context.Context, row *faultRow) error {
	if err := c.ledger.more(); err != nil {
		return err
	}
	before := len(c.ledger.entries)
	c.store.held.Lock()
	defer c.store.held.Unlock()
	cut := time.Now()
	err := c.ledger.await(ctx, "all agents at the other hub", moveLimit, func(entries []ledgerEntry) bool {
		moves := map[int]time.Duration{}
		for _, e := range entries[before:] {
			if _, again := moves[e.PID]; e.Event == ledgerOnline && !again {
				moves[e.PID] = e.time().Sub(cut)
			}
		}
		row.times = slices.Collect(maps.Values(moves))
		return len(moves) == len(c.ids)
	})
	if err != nil {
		return err
	}
	return pause(ctx, time.Minute)
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
