//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Illnesses: an agent says that it is not well, and works on. What it says of itself comes from its process, which is
// told by a file; the state of its host and handlers that do not stop come from its wire, since a whole disk cannot be
// filled here.
const (
	faultDegraded faultKind = "health: degraded"
	faultWarning  faultKind = "health: warning"
	faultCritical faultKind = "health: critical"
	faultKept     faultKind = "health: bad in maintenance"
)

// illnesses are the faults of health with the level that each brings.
var illnesses = map[faultKind]api.HealthLevel{
	faultDegraded: api.HealthDegraded,
	faultWarning:  api.HealthWarning,
	faultCritical: api.HealthCritical,
	faultKept:     api.HealthDegraded,
}

// ownOpinions are what an agent says of itself at each level. A fifth of the score is little: the rest comes from its
// host.
var ownOpinions = map[api.HealthLevel]float64{api.HealthDegraded: 0.25, api.HealthWarning: 0,
	api.HealthCritical: 0}

// The policy of healing in a run: as quick as it may be.
const (
	healPatience = 2 * time.Second
	healCycle    = 5 * time.Second
	healDamping  = time.Second // doubles with each time
	healTold     = 3 * time.Second
	// healLimit is how long healing may take to do something about an agent that is ill, when nothing is in the way:
	// until its cluster is told, patience, a cycle, and as much again for a machine on which all of this runs at once.
	healLimit = 2 * (healTold + healPatience + healCycle)
	// toldBetter is how long an agent must be well before its cluster is told.
	toldBetter = 15 * time.Second
	// restoreLimit is how long an agent may stay out of service once it is well; its patience doubles with each time.
	restoreLimit = toldBetter + healLimit
	// flapLimit is the longest patience that a run waits out.
	flapLimit = 2 * time.Minute
	// illLimit is how long an agent stays ill that healing may do nothing about, as another of its cluster is away.
	illLimit = 2*healLimit + 5*time.Second
)

// mostIll is how many of so many agents are ill at a time.
func mostIll(agents int) int { return max(1, agents/3) }

// illTime is about how long an agent is busy with an illness, when nothing else happens to it.
func illTime(kind faultKind) time.Duration {
	if kind == faultWarning { // it stays in service
		return 15 * time.Second
	}
	return 36 * time.Second
}

func healingPolicy() map[string]any {
	return map[string]any{"cycle_interval": healCycle.String(), "patience": healPatience.String(),
		"damping": healDamping.String(), "restore_after": "1s", "drain_timeout": "5s"}
}

// hurryHealing has cycles begin as often as the clusters ask for; by itself the schedule does after its first cycle.
func (in *installation) hurryHealing(t testing.TB) {
	c, err := client.DialContext(t.Context(), client.Options{HostPort: in.temporal})
	require.NoError(t, err)
	defer c.Close()
	looks := &activities.Control{Client: c, Namespace: client.DefaultNamespace}
	require.Eventually(t, func() bool { return looks.TuneHealing(t.Context(), api.Duration(healCycle)) == nil },
		20*time.Second, 100*time.Millisecond,
		"the healing schedule is there")
}

// illness is one time in which an agent was not well.
type illness struct {
	agent, cluster string
	level          api.HealthLevel
	kept           bool      // in an operator's maintenance all the while
	span                     // from when it was told to be ill until it was told to be well
	treated        int64     // when the API first showed that healing had done something; 0: never
	serving        int64     // when work that only it may do began on it afterwards; 0: never
	flaps          bool      // healing has taken it out so often that nobody waits until it is restored
	began          time.Time // from, by the clock on the wall
}

// illnessPath is the file that tells an agent's process to be ill: it holds the level.
func illnessPath(ledger, agent string) string { return ledger + "." + agent + ".ill" }

// tell makes an agent ill, or well ("").
func (m *member) tell(level api.HealthLevel) error {
	m.wire.setHost(level)
	path := illnessPath(m.in.book.path, m.id)
	if level == "" {
		return os.Remove(path)
	}
	if err := os.WriteFile(path+".new", []byte(level), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// fallIll makes an agent ill until healing has done something about it, or could not for long; lets it get well; and
// waits until it works again, which work that only it may do shows.
func (x *injector) fallIll(ctx context.Context, m *member, f fault) {
	ill := illness{agent: m.id, cluster: m.cluster, level: illnesses[f.kind], kept: f.kind == faultKept}
	path := "/api/v1/agents/" + m.id
	if ill.kept {
		x.ask(ctx, path+"/drain", map[string]any{"deadline": "500ms", "reason": "chaos"})
		if !x.awaitStatus(ctx, m, path, api.AgentMaintenance) || !x.isOperators(path) {
			x.endMaintenance(ctx, m)
			return
		}
	}
	ill.from, ill.began = monotonic(), time.Now()
	if err := m.tell(ill.level); err != nil {
		x.t.Error(err)
		return
	}
	if ill.kept {
		x.pauseWhole(ctx, healTold+healPatience+healCycle+2*time.Second)
	} else {
		x.awaitTreatment(ctx, &ill)
		pause(ctx, f.hold)
	}
	ill.to = monotonic()
	if err := m.tell(""); err != nil {
		x.t.Error(err)
	}
	if ill.kept {
		x.pauseWhole(ctx, toldBetter+healTold) // until it is known to be well: else healing would rightly go on with it
		x.mu.Lock()
		x.drains = append(x.drains, drained{agent: m.id, span: span{ill.from, monotonic()}})
		x.mu.Unlock()
		x.endMaintenance(ctx, m)
	}
	x.awaitServing(ctx, m, &ill)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.illnesses = append(x.illnesses, ill)
}

// awaitTreatment waits until healing has done something about an agent, at most for illLimit.
func (x *injector) awaitTreatment(ctx context.Context, ill *illness) {
	for end := time.Now().Add(illLimit); time.Now().Before(end) && pause(ctx, lookEvery); {
		if a := x.looks.newest(ill.agent); a != nil && a.treated() {
			ill.treated = monotonic()
			return
		}
	}
}

// pauseWhole waits for so much time in which the control plane is whole.
func (x *injector) pauseWhole(ctx context.Context, d time.Duration) {
	const look = 100 * time.Millisecond
	for d > 0 && pause(ctx, look) {
		if x.whole() {
			d -= look
		}
	}
}

// awaitServing waits until an agent that is well again is in service, and for good: it was restored, or was so for as
// long as its cluster may still take it for ill. Then it is given a task of its own.
func (x *injector) awaitServing(ctx context.Context, m *member, ill *illness) {
	const look = 100 * time.Millisecond
	wasOut, steady := false, time.Duration(0)
	patience := x.restorePatience(m.id)
	ill.flaps = patience > flapLimit
	for left := restoreLimit + min(patience, flapLimit); steady < toldBetter+healCycle && pause(ctx, look); {
		a := x.looks.newest(m.id)
		switch {
		case a == nil:
		case a.Status != api.AgentOnline:
			wasOut, steady = wasOut || a.out(true), 0
		case wasOut, ill.kept, ill.level == api.HealthWarning && a.Slots < a.Max:
			steady = toldBetter + healCycle
		default:
			steady += look
		}
		if !x.whole() || steady > 0 {
			continue
		}
		if left -= look; left < 0 {
			return // it is not serving, and the oracle says so
		}
	}
	x.giveProof(ctx, m, ill)
}

// restorePatience is how much longer healing waits before it restores an agent: it doubles with each time that it took
// the agent out of service, also because of other faults.
func (x *injector) restorePatience(agent string) time.Duration {
	wait := healDamping
	for _, out := range outsByHealing(x.looks.all()) {
		if out.agent == agent {
			wait *= 2
		}
	}
	return wait
}

// giveProof submits a task that only this agent may do and waits until it begins.
func (x *injector) giveProof(ctx context.Context, m *member, ill *illness) {
	x.mu.Lock()
	j := &job{key: fmt.Sprintf("proof-%d", len(x.proofs)), cluster: m.cluster, pin: m.id, safety: api.Idempotent,
		work: work{MS: 10, Nonce: fmt.Sprintf("proof-%d", len(x.proofs))}}
	x.proofs = append(x.proofs, j)
	x.mu.Unlock()
	x.in.submit(ctx, j, 0)
	const look = 100 * time.Millisecond
	for left := exitLimit; left > 0 && pause(ctx, look); {
		lines, err := x.in.book.read()
		if err != nil {
			x.t.Error(err)
			return
		}
		for i := len(lines) - 1; i >= 0 && ill.serving == 0; i-- {
			if l := &lines[i]; l.Kind == lineBegin && l.Task == j.id && l.Agent == m.id {
				ill.serving = l.NS
			}
		}
		if ill.serving != 0 {
			return
		}
		if x.whole() {
			left -= look
		}
	}
}

// whole reports whether nothing of the control plane is being broken, and it answers: after a break it takes a while to
// come up, and on a busy machine a long one.
func (x *injector) whole() bool {
	return x.breaking.Load() == 0 && x.looks.answered(time.Second)
}

// awaitSlots waits until every agent has all its slots again, which are given back in steps.
func (in *installation) awaitSlots(t testing.TB) time.Duration {
	t.Helper()
	begun := time.Now()
	const limit = toldBetter + 2*cluster.RestoreStep + 15*time.Second
	for missing := "nothing"; missing != ""; {
		missing = ""
		seen := in.look(0)
		for _, a := range seen.agents {
			if a.Slots < a.Max && a.Health == api.HealthHealthy {
				missing = fmt.Sprintf("%s has %d of %d slots and is %s", a.ID, a.Slots, a.Max, a.Health)
			}
		}
		if missing != "" && time.Since(begun) > limit {
			t.Errorf("load is still reduced after %s: %s", limit, missing)
			break
		}
		pause(t.Context(), lookEvery)
	}
	return time.Since(begun)
}

// healed sums up what healing did.
func healed(actions []api.HealingRecord) string {
	counts := map[string]int{}
	for _, a := range actions {
		counts[string(a.Type)+" "+string(a.Status)]++
	}
	var parts []string
	for _, kind := range []api.HealingType{api.HealFailover, api.HealDrain, api.HealReduce, api.HealRestore,
		api.HealReassign, api.HealRebalance} {
		for _, s := range []api.HealingOutcome{api.HealingSucceeded, api.HealingFailed, api.HealingSkipped,
			api.HealingRunning} {
			if n := counts[string(kind)+" "+string(s)]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s %s", n, kind, s))
			}
		}
	}
	return strings.Join(parts, ", ")
}

// patchHealing gives a cluster the quick policy.
func (in *installation) patchHealing(t testing.TB, cluster string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := in.call(0, http.MethodPatch, "/api/v1/agents/clusters/"+cluster,
			map[string]any{"self_healing": healingPolicy()}, nil)
		return err == nil && status < 300
	}, 20*time.Second, 100*time.Millisecond, "the policy of healing in %s", cluster)
}
