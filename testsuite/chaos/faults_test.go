//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// faultKind names a fault.
type faultKind string

const (
	faultKill     faultKind = "agent SIGKILL"
	faultFreeze   faultKind = "agent SIGSTOP, SIGCONT"
	faultTerm     faultKind = "agent SIGTERM"
	faultTwin     faultKind = "second process, same id"
	faultCut      faultKind = "connections cut"
	faultHole     faultKind = "network silent"
	faultDeaf     faultKind = "answers lost"
	faultDouble   faultKind = "messages doubled"
	faultDrain    faultKind = "agent drained"
	faultNet      faultKind = "network partition"
	faultNetOut   faultKind = "partition, agent is not heard"
	faultNetIn    faultKind = "partition, agent hears nothing"
	faultNetFlaps faultKind = "partition comes and goes"
	faultHub      faultKind = "hub, gateway, worker SIGKILL"
	faultTemporal faultKind = "Temporal and first hub SIGKILL"
	faultAll      faultKind = "everything SIGKILL"
)

var faultKinds = []faultKind{faultKill, faultFreeze, faultTerm, faultTwin, faultCut, faultHole, faultDeaf, faultDouble,
	faultDrain, faultDegraded, faultWarning, faultCritical, faultKept, faultNet, faultNetOut, faultNetIn, faultNetFlaps, faultHub, faultTemporal, faultAll}

// needsNetwork are the faults that only agents in network namespaces can have.
var needsNetwork = []faultKind{faultNet, faultNetOut, faultNetIn, faultNetFlaps}

// fault is one fault of the schedule.
type fault struct {
	at     time.Duration
	kind   faultKind
	target int // index of the agent; where it is idle or being broken already, the next one
	hold   time.Duration
	broken int32 // faults of the control plane that had begun when it was injected
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs  %s, agent %d, for %.2fs", f.at.Seconds(), f.kind, f.target, f.hold.Seconds())
}

// longRun is the duration from which on everything is killed at once too: what nobody remembers then has to wait for
// its backstop, which is too long for a short run.
const longRun = time.Minute

// possibleFaults are the kinds that a run of this length can have, here and with the wish of the one who runs it: only
// holds parts of their names, separated by commas; empty means all.
func possibleFaults(duration time.Duration, network bool, only string) []faultKind {
	return slices.DeleteFunc(slices.Clone(faultKinds), func(k faultKind) bool {
		wished := slices.ContainsFunc(strings.Split(only, ","),
			func(part string) bool { return strings.Contains(string(k), part) })
		return !wished || k == faultAll && duration < longRun || slices.Contains(needsNetwork, k) && !network
	})
}

// planFaults makes the schedule: every kind comes up before one comes again, agents' deaths most often. Illnesses take
// long and are a series of their own, so that not more than a third of the agents is ill at a time.
func planFaults(random *rand.Rand, kinds []faultKind, agents int, duration time.Duration, tm timing) []fault {
	var often []faultKind
	for _, k := range []faultKind{faultKill, faultKill, faultCut, faultFreeze} {
		if slices.Contains(kinds, k) {
			often = append(often, k)
		}
	}
	isIll := func(k faultKind) bool { return illnesses[k] != "" }
	ill := faultBag{kinds: slices.DeleteFunc(slices.Clone(kinds), func(k faultKind) bool { return !isIll(k) })}
	rest := faultBag{kinds: append(slices.DeleteFunc(slices.Clone(kinds), isIll), often...)}
	var faults []fault
	var well []time.Duration // when each agent that was made ill should be well
	for at := 2 * time.Second; at < duration; at += 600*time.Millisecond + rand1(random, 1200*time.Millisecond) {
		well = slices.DeleteFunc(well, func(end time.Duration) bool { return end <= at })
		f := fault{at: at, target: random.IntN(agents)}
		switch {
		case len(ill.kinds) > 0 && len(well) < mostIll(agents):
			f.kind = ill.next(random)
			well = append(well, at+illTime(f.kind))
		case len(rest.kinds) > 0:
			f.kind = rest.next(random)
		default:
			continue
		}
		switch f.kind {
		case faultFreeze, faultHole, faultNet:
			f.hold = tm.Failure + time.Second + rand1(random, 2*time.Second)
		case faultCut, faultNetOut, faultNetIn, faultNetFlaps:
			f.hold = 200*time.Millisecond + rand1(random, tm.Failure+tm.Grace+2*time.Second)
		default:
			f.hold = 500*time.Millisecond + rand1(random, 3*time.Second)
		}
		faults = append(faults, f)
	}
	return faults
}

// faultBag gives out every kind before it gives out one again.
type faultBag struct{ kinds, left []faultKind }

func (b *faultBag) next(random *rand.Rand) faultKind {
	if len(b.left) == 0 {
		b.left = slices.Clone(b.kinds)
		random.Shuffle(len(b.left), func(i, j int) { b.left[i], b.left[j] = b.left[j], b.left[i] })
	}
	kind := b.left[0]
	b.left = b.left[1:]
	return kind
}

func rand1(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

// injector carries out a schedule and keeps count.
type injector struct {
	in *installation
	t  testing.TB

	mu     sync.Mutex
	struck map[faultKind]int // with work in flight
	idle   map[faultKind]int // without, or without a target; they count for nothing
	kills  []kill
	away   []span     // when processes of the control plane were missing
	planes sync.Mutex // one fault of the control plane at a time

	breaking atomic.Int32 // faults of the control plane that wait or are under way
	broken   atomic.Int32 // faults of the control plane that ever began
	drains   []drained

	ill       chan struct{} // one place for each agent that may be ill at the same time
	illnesses []illness
	proofs    []*job // work that only one agent may do, which shows that it serves
	looks     *fleetWatch
}

// kill is an agent's death with what it was working on.
type kill struct {
	pid   int
	at    int64
	tasks []string
}

func newInjector(t testing.TB, in *installation) *injector {
	return &injector{in: in, t: t, struck: map[faultKind]int{}, idle: map[faultKind]int{},
		ill: make(chan struct{}, mostIll(len(in.agents)))}
}

// run injects every fault at its time and returns when all of them have healed.
func (x *injector) run(ctx context.Context, faults []fault) {
	begun := time.Now()
	var wg sync.WaitGroup
	for _, f := range faults {
		if !pause(ctx, time.Until(begun.Add(f.at))) {
			break
		}
		wg.Go(func() { x.strike(ctx, f) })
	}
	wg.Wait()
}

func (x *injector) strike(ctx context.Context, f fault) {
	f.broken = x.broken.Load()
	switch f.kind {
	case faultHub:
		x.strikePlanes(ctx, f, 1)
	case faultTemporal:
		x.strikePlanes(ctx, f, 0)
	case faultAll:
		x.strikeAll(ctx, f)
	default:
		if _, illness := illnesses[f.kind]; illness { // they take long, and the other faults need agents too
			select {
			case x.ill <- struct{}{}:
				defer func() { <-x.ill }()
			default:
				x.count(f.kind, false)
				return
			}
		}
		m, busy := x.reserveWorking(ctx, f.target)
		if m == nil {
			x.count(f.kind, false)
			return
		}
		defer m.release()
		x.count(f.kind, busy)
		x.strikeAgent(ctx, m, f)
	}
}

// reserveWorking takes an agent for a fault: the target, or the next that works on something and that no other fault is
// at. A fault counts only when there is work in flight.
func (x *injector) reserveWorking(ctx context.Context, target int) (m *member, working bool) {
	for range 20 {
		var idle []*member
		for range x.in.agents {
			if m = x.reserve(target); m == nil {
				break
			}
			if working = len(x.inFlight(m.current().pid)) > 0; working {
				break
			}
			idle = append(idle, m)
		}
		for _, other := range idle {
			other.release()
		}
		if working {
			return m, true
		}
		pause(ctx, 50*time.Millisecond)
	}
	return x.reserve(target), false
}

// reserve takes the target, or the next agent that no other fault is at.
func (x *injector) reserve(target int) *member {
	for i := range x.in.agents {
		m := x.in.agents[(target+i)%len(x.in.agents)]
		m.mu.Lock()
		free := !m.busy
		m.busy = true
		m.mu.Unlock()
		if free {
			return m
		}
	}
	return nil
}

func (m *member) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = false
}

// awaitWork waits a little until the process (0: any) works on something. A fault counts only then.
func (x *injector) awaitWork(ctx context.Context, pid int) bool {
	for range 20 {
		if len(x.inFlight(pid)) > 0 {
			return true
		}
		pause(ctx, 50*time.Millisecond)
	}
	return false
}

// inFlight are the tasks that a process (0: any that lives) works on by the ledger.
func (x *injector) inFlight(pid int) []string {
	lines, err := x.in.book.read()
	if err != nil {
		x.t.Error(err)
	}
	var open []string
	lives := x.in.lives()
	for _, a := range attemptsOf(lines) {
		if a.end == 0 && len(lives[a.pid]) > 0 && lives.of(a).gone == 0 && (pid == 0 || a.pid == pid) {
			open = append(open, a.task)
		}
	}
	return open
}

func (x *injector) count(kind faultKind, inFlight bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if inFlight {
		x.struck[kind]++
	} else {
		x.idle[kind]++
	}
}

func (x *injector) strikeAgent(ctx context.Context, m *member, f fault) {
	p := m.current()
	modes := map[faultKind]wireMode{faultCut: wireCut, faultHole: wireHole, faultDeaf: wireDeaf,
		faultDouble: wireDouble}
	switch f.kind {
	case faultKill:
		x.kill(p)
		pause(ctx, f.hold)
		m.up(x.t)
	case faultFreeze:
		p.freeze()
		pause(ctx, f.hold)
		p.thaw()
	case faultTerm:
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		x.awaitExit(ctx, p, f.kind)
		pause(ctx, f.hold)
		m.up(x.t)
	case faultTwin:
		x.awaitRegistered(ctx, p) // which of two processes is the newer one is decided by who registers last
		m.up(x.t)
		x.awaitExit(ctx, p, f.kind) // the older one notices that it is fenced, and ends
	case faultDrain:
		x.drainAgent(ctx, m, f)
	case faultDegraded, faultWarning, faultCritical, faultKept:
		x.fallIll(ctx, m, f)
	case faultNet, faultNetOut, faultNetIn, faultNetFlaps:
		x.partition(ctx, m.site, f)
	default:
		m.wire.set(modes[f.kind])
		pause(ctx, f.hold)
		m.wire.set(wireGood)
	}
	if q := m.current(); !q.alive() { // fenced by a twin, or ended by itself
		m.up(x.t)
	}
}

// partition takes the network between an agent and the hubs away for a while: as a whole, one way, or again and again.
func (x *injector) partition(ctx context.Context, s *site, f fault) {
	fromAgent, toAgent := f.kind != faultNetIn, f.kind != faultNetOut
	away, back := f.hold, time.Duration(0)
	if f.kind == faultNetFlaps {
		away, back = 700*time.Millisecond, 300*time.Millisecond
	}
	for left := f.hold; left > 0; left -= away + back {
		if err := s.partition(fromAgent, toAgent); err != nil {
			x.t.Error(err)
		}
		pause(ctx, min(away, left))
		if err := s.mend(fromAgent, toAgent); err != nil {
			x.t.Error(err)
		}
		pause(ctx, back)
	}
}

// kill kills an agent's process and notes what it was working on.
func (x *injector) kill(p *process) {
	k := kill{pid: p.pid, at: monotonic(), tasks: x.inFlight(p.pid)}
	p.kill()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.kills = append(x.kills, k)
}

// exitLimit bounds how long a process takes to end by itself.
const exitLimit = 40 * time.Second

// awaitExit waits for a process that should end by itself. A process that is asked to stop ends with or without a
// control plane; one that a newer process fenced needs the control plane to hear of it, so only time in which that was
// whole counts.
func (x *injector) awaitExit(ctx context.Context, p *process, kind faultKind) {
	const look = 100 * time.Millisecond
	for left := exitLimit; left > 0 && p.alive() && pause(ctx, look); {
		if kind == faultTerm || x.breaking.Load() == 0 {
			left -= look
		}
	}
	if p.alive() && ctx.Err() == nil {
		x.t.Errorf("%s (pid %d) did not end by itself after %q", p.name, p.pid, kind)
		p.kill()
	}
}

// awaitRegistered waits until a process has a session, or has ended.
func (x *injector) awaitRegistered(ctx context.Context, p *process) {
	for p.alive() {
		lines, err := x.in.book.read()
		if err != nil {
			x.t.Error(err)
		}
		if slices.ContainsFunc(lines, func(l line) bool { return l.Kind == lineRegistered && l.PID == p.pid }) ||
			!pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (x *injector) strikePlanes(ctx context.Context, f fault, which int) {
	x.breaking.Add(1)
	x.broken.Add(1)
	defer x.breaking.Add(-1)
	x.planes.Lock()
	defer x.planes.Unlock()
	x.count(f.kind, x.awaitWork(ctx, 0))
	defer x.noteAway(monotonic())
	p := x.in.planes[which]
	p.current().kill()
	pause(ctx, f.hold)
	p.up()
}

// noteAway notes that something of the control plane was missing from then to now.
func (x *injector) noteAway(from int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.away = append(x.away, span{from, monotonic()})
}

func (x *injector) strikeAll(ctx context.Context, f fault) {
	x.breaking.Add(1)
	x.broken.Add(1)
	defer x.breaking.Add(-1)
	x.planes.Lock()
	defer x.planes.Unlock()
	x.count(f.kind, x.awaitWork(ctx, 0))
	defer x.noteAway(monotonic())
	var down []*member
	for range x.in.agents {
		if m := x.reserve(0); m != nil {
			down = append(down, m)
		}
	}
	var wg sync.WaitGroup
	for _, p := range x.in.planes {
		wg.Go(p.current().kill)
	}
	for _, m := range down {
		wg.Go(m.current().kill)
	}
	wg.Wait()
	pause(ctx, f.hold/2)
	for _, p := range x.in.planes {
		p.up()
	}
	for _, m := range down {
		m.up(x.t)
		m.release()
	}
}

// heal ends whatever faults are left, and returns when every process runs and answers.
func (x *injector) heal(t testing.TB) {
	for i, p := range x.in.planes {
		p.up()
		x.in.awaitReady(t, i)
		if !p.current().alive() { // it could not start, as when Temporal was still away
			p.up()
			x.in.awaitReady(t, i)
		}
	}
	for _, m := range x.in.agents {
		m.wire.set(wireGood)
		if !m.current().alive() {
			m.up(t)
		}
	}
}

func (x *injector) report() string {
	var b strings.Builder
	total := 0
	for _, kind := range faultKinds {
		total += x.struck[kind]
		fmt.Fprintf(&b, "  %-32s %3d", kind, x.struck[kind])
		if x.idle[kind] > 0 {
			fmt.Fprintf(&b, "  (%d more hit nothing and do not count)", x.idle[kind])
		}
		b.WriteString("\n")
	}
	return fmt.Sprintf("faults with work in flight: %d\n%s", total, &b)
}

// total is how many faults hit work in flight.
func (x *injector) total() int {
	total := 0
	for _, n := range x.struck {
		total += n
	}
	return total
}
