//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plantEnv names the bug that a process built with the overlay has.
const plantEnv = "MAINSTAY_PLANT"

// edit puts a known bug into a source file: new takes the place of old, which stands there once.
type edit struct{ file, old, new string }

// plantedBugs are the bugs that the scenarios must notice, by name. They live here and not in the product: a program
// with them is built over a copy of these files (go build -overlay). plants(name) is true in a process that has the
// bug.
var plantedBugs = map[string][]edit{
	// A token counts whoever made it.
	"forged-token": {{"internal/hub/seal.go", `if !hmac.Equal(mac, s.mac(purpose, body)) {`,
		`if !hmac.Equal(mac, s.mac(purpose, body)) && !plants("forged-token") {`}},
	// A result is answered before Temporal has it.
	"early-answer": {{"internal/hub/results.go", `	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
`, `	if plants("early-answer") {
		time.AfterFunc(time.Second, func() { _ = send(e.hub.run, claims.Temporal, report, nil) })
		return accepted, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
`}},
	// A result that no longer counts is answered as accepted.
	"stale-accepted": {{"internal/hub/results.go", `report, log); err != nil {
		return nil, e.resultProblem`, `report, log); err != nil && !plants("stale-accepted") {
		return nil, e.resultProblem`}},
	// A lost agent is taken to have stopped at once.
	"hub-ignores-lease": {{"internal/hub/agentlease.go", `	return max(0, l.answeredAt.Add`, `	if plants("hub-ignores-lease") {
		return 0
	}
	return max(0, l.answeredAt.Add`}},
	// A hub that restarts drops what agents still run.
	"reattach-dropped": {{"internal/hub/life.go", `if err != nil || claims.Agent != s.agent`,
		`if plants("reattach-dropped") || err != nil || claims.Agent != s.agent`}},
	// A drain takes an agent for idle whatever it has.
	"drain-ignores-work": {{"internal/hub/drain.go", `case s.work.awaited(in.IncludeSystem):`,
		`case s.work.awaited(in.IncludeSystem) && !plants("drain-ignores-work"):`}},
	// An agent in maintenance is given work.
	"cordon-ignored": {{"internal/hub/session.go", `return listed || s.leaving.cordonedUntil > d.Version`,
		`return (listed || s.leaving.cordonedUntil > d.Version) && !plants("cordon-ignored")`}},
	// Fenced work goes on after the lease.
	"agent-ignores-lease": {
		{"sdk/go/agent/session.go", `	if r.lease <= 0 || r.leaseFrom.IsZero() {
		return time.Time{}`, `	if plants("agent-ignores-lease") || r.lease <= 0 || r.leaseFrom.IsZero() {
		return time.Time{}`},
		{"sdk/go/agent/session.go", `return r.lease > 0 &&`,
			`return !plants("agent-ignores-lease") && r.lease > 0 &&`},
		{"sdk/go/agent/session.go", `no := late || over && a.RetrySafety == api.Fenced`,
			`no := !plants("agent-ignores-lease") && (late || over && a.RetrySafety == api.Fenced)`},
	},
	// An assignment that comes twice runs twice.
	"duplicate-run": {{"sdk/go/agent/attempt.go", `at := r.attempts[key]; at != nil {`,
		`at := r.attempts[key]; at != nil && !plants("duplicate-run") {`}},
	// The guard does not kill the tree, and has no cgroup whose folder would stay.
	"tree-left": {
		{"sdk/go/agent/execguards_linux.go", `[]string{"GOMAXPROCS=1"}`,
			`[]string{"GOMAXPROCS=1", "` + plantEnv + `=" + planted}`},
		{"sdk/go/agent/proctree/guard_linux.go", `	for wait := time.Millisecond; !t.reap()`, `	if plants("tree-left") {
		return
	}
	for wait := time.Millisecond; !t.reap()`},
		{"sdk/go/agent/proctree/cgroup_linux.go", `	c := cgroupOf(below, guard)
	if c == "" {`, `	c := cgroupOf(below, guard)
	if c == "" || plants("tree-left") {`},
	},
	// The tree lives on when its lease is over.
	"guard-ignores-lease": {{"sdk/go/agent/proctree/guard_linux.go", `case o.kind == orderLease:`,
		`case o.kind == orderLease && !plants("guard-ignores-lease"):`}},
	// Every task is delivered again as if it were idempotent.
	"run-again": {{"workflows/delivery/delivery.go", `		next := task.Redeliver(&d.task.Spec,`, `		spec := d.task.Spec
		if plants("run-again") {
			spec.RetrySafety = api.Idempotent
		}
		next := task.Redeliver(&spec,`}},
	// A step begins when all but one of those before it are through.
	"dependency-ignored": {{"internal/job/ledger.go", `		case through >= need:
`, `		case through >= need || plants("dependency-ignored") && through > 0 && through+1 >= need:
`}},
	// A run counts as completed while a step is under way.
	"run-ends-early": {{"internal/job/ledger.go", `		case e.Status.Final():
		case l.failing(p) && !underWay(e):
`, `		case e.Status.Final():
		case plants("run-ends-early") && e.Begun:
		case l.failing(p) && !underWay(e):
`}},
	// A step whose task has completed is delivered once more.
	"step-again": {{"workflows/run/work.go", `		case !w.delivery.State().Status.Final():
`, `		case plants("step-again") && w.delivery.State().Status.Final() && w.task.Carried == nil:
			w.task = w.delivery.Task()
			w.delivery, w.over = nil, false
			r.open = append(r.open, w)
		case !w.delivery.State().Status.Final():
`}},
	// A step is given what another one wrote.
	"wrong-output": {{"activities/evaluate.go", `		f := stepFacts{Status: s.Status, Output: s.Output,`,
		`		output := s.Output
		if plants("wrong-output") {
			output = e.in.Steps[0].Output
		}
		f := stepFacts{Status: s.Status, Output: output,`}},
	// An old instance is stopped as soon as the new one is started.
	"old-stopped-early": {
		{"internal/job/rollout.go", `case p.new != nil && p.new.Proven && (`,
			`case p.new != nil && (p.new.Proven || plants("old-stopped-early")) && (`},
		{"internal/job/rollout.go", `if healthy-1 < spare {`, `if healthy-1 < spare && !plants("old-stopped-early") {`},
	},
	// All instances are replaced at a time.
	"all-at-once": {{"internal/job/instances.go", `case j.outdated(i) && j.rolling() == nil:`,
		`case j.outdated(i) && (j.rolling() == nil || plants("all-at-once")):`}},
	// A deployment has no deadlines.
	"rollout-stalls": {{"internal/job/rollout.go", `i.Due.IsZero() || now.Before(i.Due) {`,
		`i.Due.IsZero() || now.Before(i.Due) || plants("rollout-stalls") {`}},
	// An agent that is offline gets an instance of a system job.
	"offline-counted": {{"internal/job/instances.go", `case m.Serving() && c.Cordons`,
		`case (m.Serving() || plants("offline-counted")) && c.Cordons`}},
	// A service ends when one of its instances does.
	"service-ends": {{"workflows/delivery/attempt.go", `case how == attemptCompleted && d.task.Spec.KeepRunning:`,
		`case how == attemptCompleted && d.task.Spec.KeepRunning && !plants("service-ends"):`}},
	// An instance of a sysbatch job that has ended begins again on its agent.
	"sysbatch-again": {{"internal/job/instances.go", `if d.Type == api.JobSysbatch && i.Stopping == "" {`,
		`if d.Type == api.JobSysbatch && i.Stopping == "" && !plants("sysbatch-again") {`}},
	// The id of an instance on an agent does not tell its job.
	"source-id-lost": {{"internal/job/instances.go", `	return job, rest[:end], true`, `	if plants("source-id-lost") {
		job = rest[:end]
	}
	return job, rest[:end], true`}},
	// Work that begins again does not get what it has saved.
	"state-not-restored": {{"workflows/delivery/attempt.go", `	if report.Checkpoint != nil {`,
		`	if report.Checkpoint != nil && !plants("state-not-restored") {`}},
	// Work is moved off a lost agent that it is to wait for.
	"mode-ignored": {{"internal/task/policystate.go", `(r.Mode == api.LocalRestart || r.spec.Agent != "")`,
		`(r.Mode == api.LocalRestart && !plants("mode-ignored") || r.spec.Agent != "")`}},
	// The window of a policy is counted from the last attempt.
	"window-from-last": {{"internal/task/recovery.go", `	at, free := now.Add(recoveryWait(p, limit-1)), active[len(active)-limit]`,
		`	if plants("window-from-last") {
		active[len(active)-limit] = active[len(active)-1]
	}
	at, free := now.Add(recoveryWait(p, limit-1)), active[len(active)-limit]`}},
	// Restarts do not count.
	"restart-uncounted": {{"internal/task/policystate.go", `		s.Restarts = keepNewest(append(s.Restarts, at))
`, `		if !plants("restart-uncounted") {
			s.Restarts = keepNewest(append(s.Restarts, at))
		}
`}},
	// A placement that no agent took counts.
	"blocked-counted": {{"internal/task/policystate.go", `n > 0 && !s.Refunded {`,
		`n > 0 && !s.Refunded && !plants("blocked-counted") {`}},
	// The agent that was lost is only not preferred.
	"exclusion-preferred": {{"workflows/delivery/attempt.go", `policy := d.carried.Tally.Policy; policy != nil {`,
		`policy := d.carried.Tally.Policy; policy != nil && !plants("exclusion-preferred") {`}},
	// Being moved by a drain counts as a loss.
	"drain-counted": {{"internal/hub/life.go", `report.Planned = a.evacuation.Reason, a.evacuation.Target, true`,
		`report.Planned = a.evacuation.Reason, a.evacuation.Target, !plants("drain-counted")`}},
	// A hub that restarts does not know what its agents' tasks have.
	"allocation-forgotten": {{"internal/hub/life.go", `		s.work.attempts[key] = a
`, `		if plants("allocation-forgotten") {
			a.Allocation = &api.Allocation{}
		}
		s.work.attempts[key] = a
`}},
	// Instances do not wait for the services that they require.
	"requires-ignored": {{"sdk/go/api/jobdefinition.go", `d == nil || d.Requires == nil {`,
		`d == nil || d.Requires == nil || plants("requires-ignored") {`}},
	// An attempt is lost as soon as its agent is, whatever its job or task says.
	"grace-ignored": {{"internal/hub/grace.go", `a.cancelling ||
		a.evacuation != nil {`, `a.cancelling ||
		a.evacuation != nil || plants("grace-ignored") {`}},
	// A hub that takes an attempt over does not know how long its agent may be away.
	"grace-forgotten": {{"internal/hub/life.go", `assignedAt: now, deliveredIn: 1}
`, `assignedAt: now, deliveredIn: 1}
		if plants("grace-forgotten") {
			a.Grace = 0
		}
`}},
	// Who looks for a service finds all instances.
	"unhealthy-found": {{"gateway/service/service.go", `(in.Health == "any" ||`,
		`(in.Health == "any" || plants("unhealthy-found") ||`}},
	// A revert has canaries, as any deployment.
	"revert-waits": {{"internal/job/rollout.go", `r.Before == 0 || r.Revert ||`,
		`r.Before == 0 || r.Revert && !plants("revert-waits") ||`}},
	// Instances are replaced in the order of their names.
	"sick-last": {{"internal/job/rollout.go", `old != nil && !j.well(old) {`,
		`old != nil && !j.well(old) && !plants("sick-last") {`}},
	// A step's safety does not reach its task.
	"step-safety-dropped": {{"internal/flow/flow.go",
		`			task.RetrySafety, task.StopGrace = s.Safety, cmp.Or(s.StopGrace, d.StopGrace)
`, `			task.RetrySafety, task.StopGrace = s.Safety, cmp.Or(s.StopGrace, d.StopGrace)
			if plants("step-safety-dropped") {
				task.RetrySafety = api.Idempotent
			}
`}},
	// An element that completed is delivered again.
	"element-again": {{"internal/array/take.go", `			s.end(r.Number, api.ElementCompleted, "", "")
`, `			if plants("element-again") && s.Bundles < 10 {
				s.again(r.Number, now)
				continue
			}
			s.end(r.Number, api.ElementCompleted, "", "")
`}},
	// What a bundle does not list counts as done.
	"undone-completed": {{"internal/array/take.go", `		default:
			s.again(n, now)
		}
	}
	if ended == 0 {`, `		case plants("undone-completed"):
			s.end(n, api.ElementCompleted, "", "")
		default:
			s.again(n, now)
		}
	}
	if ended == 0 {`}},
	// Elements that may not begin twice are bundled.
	"elements-bundled": {{"internal/array/array.go", `	return d.Spec.Safety().NeedsPerson()`,
		`	return !plants("elements-bundled") && d.Spec.Safety().NeedsPerson()`}},
	// All elements of a bundle that was lost are blamed for that.
	"bundle-blamed": {{"internal/array/take.go", `		s.halve(d, b, end, now)
`, `		if plants("bundle-blamed") {
			for _, n := range b.Elements {
				s.end(n, api.ElementDeadLetter, end.Reason, "")
			}
			return
		}
		s.halve(d, b, end, now)
`}},
	// A bundle that was lost is delivered as it was.
	"never-halved": {{"internal/array/take.go", `	size := max(1, len(b.Elements)/4)
`, `	size := max(1, len(b.Elements)/4)
	if plants("never-halved") {
		size = len(b.Elements)
	}
`}},
	// A dead letter ends the task.
	"dead-letter-dropped": {{"workflows/delivery/delivery.go", `	case api.TaskDeadLetter:
`, `	case api.TaskDeadLetter:
		if plants("dead-letter-dropped") {
			return api.TaskFailed, next.Why
		}
`}},
	// A role goes to another at once.
	"role-lease-ignored": {{"workflows/cluster/roles.go", `	s := &p.run.state
	had := held{`, `	s := &p.run.state
	if plants("role-lease-ignored") {
		lease = 0
	}
	had := held{`}},
	// Epochs start anew with each join.
	"epoch-reused": {{"workflows/cluster/members.go", `		joined := r.state.Join(j, req.Hub, now)
`, `		if plants("epoch-reused") {
			r.state.LastEpoch = 0
		}
		joined := r.state.Join(j, req.Hub, now)
`}},
	// Whoever has a token sees and touches what is of any tenant.
	"tenant-unchecked": {
		{"internal/access/identity.go", `(id.Tenant == "" || id.Tenant == tenant)`,
			`(plants("tenant-unchecked") || id.Tenant == "" || id.Tenant == tenant)`},
		{"gateway/rest/ids.go", `	own := access.From(ctx).Tenant
`, `	own := access.From(ctx).Tenant
	if plants("tenant-unchecked") {
		own = ""
	}
`},
	},
	// An event of another tenant is taken.
	"event-tenant-unchecked": {{"gateway/inbound/inbound.go", `		tenant, err := rest.OwnTenant(ctx, events[i].Tenant())
		if err != nil {`, `		tenant, err := rest.OwnTenant(ctx, events[i].Tenant())
		if err != nil && !plants("event-tenant-unchecked") {`}},
	// The key of a dispatch does not say what the operation was.
	"event-key-unnamed": {{"internal/mesh/inbound.go", `	sum := sha256.Sum256([]byte(eventID + ":AgentTaskDispatch:" + target))
`, `	sum := sha256.Sum256([]byte(eventID + ":AgentTaskDispatch:" + target))
	if plants("event-key-unnamed") {
		sum = sha256.Sum256([]byte(eventID + target))
	}
`}},
	// An event is not kept byte for byte.
	"event-trimmed": {{"gateway/inbound/read.go", `	var read *event.Event
	if mode`, `	var read *event.Event
	if plants("event-trimmed") {
		e.Body = bytes.ReplaceAll(body, []byte("  "), nil)
	}
	if mode`}},
	// What nothing asks for counts as dispatched.
	"unmatched-dropped": {{"workflows/inbound.go", `			if len(i.record.Dispatches) == 0 {`,
		`			if len(i.record.Dispatches) == 0 && !plants("unmatched-dropped") {`}},
	// An event does not learn that what it started has died.
	"death-untold": {{"workflows/task/task.go", `	if task.Event == "" ||`,
		`	if plants("death-untold") || task.Event == "" ||`}},
	// A result that is not valid is corrected without end.
	"corrections-endless": {{"internal/job/correction.go",
		`	if !noVerdict && len(e.Corrections)-e.Forgiven <= s.Check.Correct.Attempts {`,
		`	if plants("corrections-endless") || !noVerdict && len(e.Corrections)-e.Forgiven <= s.Check.Correct.Attempts {`}},
	// A task does not know which providers have failed it.
	"route-forgotten": {{"workflows/delivery/attempt.go", `	attempt.Route = route
`, `	if !plants("route-forgotten") {
		attempt.Route = route
	}
`}},
	// What a provider says is passed on with the key in it.
	"key-told": {{"internal/agenttasks/modeltask/modeltask.go", `	if key == "" {
		return text`, `	if key == "" || plants("key-told") {
		return text`}},
	// A call of a tool is repeated with a new session.
	"tool-repeated": {{"internal/agenttasks/mcptool/mcptool.go", `	if err != nil {
		err = c.explain(err)`, `	if err != nil && plants("tool-repeated") {
		if session, err = c.open(ctx); err == nil {
			answer, err = session.CallTool(ctx, &mcp.CallToolParams{Name: call.Tool, Arguments: call.Arguments})
		}
	}
	if err != nil {
		err = c.explain(err)`}},
	// The verdict on one result is not forgotten when the next is checked.
	"verdict-kept": {{"internal/job/correction.go", `	if e.Verdict != nil {
`, `	if e.Verdict != nil && !plants("verdict-kept") {
`}, {"workflows/run/evaluate.go", `	delete(r.results, job.CheckKey(o.Step))
`, `	if !plants("verdict-kept") {
		delete(r.results, job.CheckKey(o.Step))
	}
`}},
	// A run that continues as new forgets what a model and its tools have said.
	"turns-forgotten": {{"workflows/run/history.go", `	for _, w := range r.open {
		next.`, `	if plants("turns-forgotten") {
		next.Carried.Talks = nil
	}
	for _, w := range r.open {
		next.`}},
	// A call of a tool has the key of one of a turn before.
	"call-key-reused": {{"internal/job/correction.go", `	if e.Counts != nil { // else`,
		`	if e.Counts != nil || plants("call-key-reused") { // else`}},
	// A model may call tools that its step does not list.
	"unknown-tool-called": {{"internal/flow/tools.go",
		`	i := slices.IndexFunc(s.Tools, func(t api.StepTool) bool { return t.Name == call.Name })
`, `	i := slices.IndexFunc(s.Tools, func(t api.StepTool) bool { return t.Name == call.Name })
	if i < 0 && plants("unknown-tool-called") {
		return &api.TaskSpec{}, ""
	}
`}},
	// Each call of a tool has a key of its own.
	"tool-key-changes": {{"internal/agenttasks/mcptool/mcptool.go", `Meta: mcp.Meta{keyName: key}`,
		`Meta: mcp.Meta{keyName: map[bool]string{true: fmt.Sprint(key, task.Attempt), false: key}[
			plants("tool-key-changes")]}`}},
	// A handler's signs of life do not count.
	"beacon-unheard": {{"sdk/go/agent/beacon.go", `func (s *signs) alive() {
`, `func (s *signs) alive() {
	if plants("beacon-unheard") {
		return
	}
`}},
	// Each change of an agent's health is told at once.
	"health-flaps": {{"internal/hub/health/health.go", `	case worse && now.Sub(r.turnedAt) < WorseAfter,`,
		`	case plants("health-flaps"):
	case worse && now.Sub(r.turnedAt) < WorseAfter,`}},
	// Spans that the collector did not take are not sent again.
	"spans-dropped": {{"internal/telemetry/tracing/tracing.go", `errors.As(err, &unreached) {`,
		`errors.As(err, &unreached) || plants("spans-dropped") {`}},
	"healing-blind":     {healingDecided},
	"healing-forgets":   {healingDecided},
	"healing-overrides": {healingDecided, healingUnchecked},
	"healing-takes-all": {healingDecided, healingUnchecked},
}

// The bugs of healing share two edits and plantedHealing. A cluster lets healing do whatever it decided.
var (
	healingDecided = edit{"workflows/healing.go", `healing.BoundHealing(healing.DecideHealing(c,`,
		`healing.BoundHealing(plantedHealing(c,`}
	healingUnchecked = edit{"workflows/cluster/cordons.go", `	if decided == nil {
		return nil`, `	if decided == nil || plants("healing-overrides") || plants("healing-takes-all") {
		return nil`}
)

// plantedFile is added to each package that has a bug.
const plantedFile = `package %s

import "os"

var planted = os.Getenv(%q)

func plants(name string) bool { return planted == name }
`

// healingFile is what healing decides with a bug.
const healingFile = `package workflows

import (
	"slices"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/mainstay/internal/healing"
)

func plantedHealing(c *healing.HealingCase, now time.Time) []api.HealingDecision {
	switch planted {
	case "healing-overrides": // what an operator keeps out of service is healing's business too
		for i := range c.Agents {
			c.Agents[i].OutBy = ""
		}
	case "healing-takes-all": // the cluster never has too few, and all are drained
		c.Members, c.Serving, c.Healthy = 1, c.Serving+100, c.Healthy+100
	}
	decisions := healing.DecideHealing(c, now)
	for i := range decisions {
		if d := &decisions[i]; planted == "healing-takes-all" && d.Type == api.HealFailover {
			d.Type = api.HealDrain
		}
	}
	return slices.DeleteFunc(decisions, func(d api.HealingDecision) bool {
		return planted == "healing-blind" && d.Type == api.HealDrain ||
			planted == "healing-forgets" && d.Type == api.HealRestore
	})
}
`

// writeOverlay writes the sources with all bugs into dir, and returns the file that go build -overlay takes.
func writeOverlay(dir string) (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	sources, edits := map[string]string{"workflows/planted_healing.go": healingFile}, map[edit]bool{}
	for name, list := range plantedBugs {
		for _, e := range list {
			if edits[e] {
				continue
			}
			edits[e] = true
			if sources[e.file] == "" {
				original, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					return "", err
				}
				sources[e.file] = string(original)
			}
			if n := strings.Count(sources[e.file], e.old); n != 1 {
				return "", fmt.Errorf(
					"the bug %s does not fit any more: its place is %d times in %s; change plantedBugs", name, n, e.file)
			}
			sources[e.file] = strings.Replace(sources[e.file], e.old, e.new, 1)
			folder := path.Dir(e.file)
			sources[folder+"/planted.go"] = fmt.Sprintf(plantedFile, path.Base(folder), plantEnv)
		}
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for i, file := range slices.Sorted(maps.Keys(sources)) {
		copied := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(copied, []byte(sources[file]), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, file)] = copied
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o600)
}

func TestPlantsFitTheSource(t *testing.T) {
	t.Parallel()
	_, err := writeOverlay(t.TempDir())
	require.NoError(t, err)
	var used []string
	for _, s := range scenarios {
		used = append(used, s.plants...)
	}
	used = append(used, slices.Collect(maps.Keys(testPlants))...)
	slices.Sort(used)
	require.Equal(t, slices.Sorted(maps.Keys(plantedBugs)), used, "each bug has one scenario")
}
