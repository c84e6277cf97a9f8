//go:build linux

package chaos

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"mainstay.dev/sdk/api"
)

// drained is a time in which an agent was out of service: from when the API said that its drain was done until the
// driver asked for the end of its maintenance.
type drained struct {
	agent string
	span
	// calm says that the control plane was whole all the while the drain went on, so that the agent was never out of
	// touch: only then must nothing be in flight at its end.
	calm bool
}

// judgeDrains is I7: a finished drain leaves nothing in flight but instances of system jobs, and nothing arrives after
// it.
func (v *verdict) judgeDrains(e evidence, attempts []ran) {
	for _, d := range e.drains {
		for _, a := range attempts {
			if a.agent != d.agent {
				continue
			}
			if a.begin > d.from && a.begin < d.to {
				v.blame(&v.drainFaults, "attempt %d of %s began on %s while that was drained: %s", a.number, a.task,
					d.agent, told([]ran{a}))
			}
			gone := e.lives.of(a).gone
			open := a.begin < d.from && (a.end == 0 || a.end > d.from) && (gone == 0 || gone > d.from)
			if open && d.calm && !e.gaveUp(a) && !e.ofSystem(a.task) {
				v.blame(&v.drainFaults, "attempt %d of %s was in flight on %s when its drain was done: %s", a.number,
					a.task, d.agent, told([]ran{a}))
			}
		}
	}
}

// gaveUp reports whether the control plane gave an attempt's agent up while the attempt ran: then its drain had nothing
// more to wait for.
func (e *evidence) gaveUp(a ran) bool {
	return slices.ContainsFunc(slices.Concat(e.jobs, e.instances), func(j *job) bool {
		return j.id == a.task && slices.ContainsFunc(j.task.Attempts, func(of api.Attempt) bool {
			return of.Number == a.number && of.Outcome == api.AttemptLost
		})
	})
}

// ofSystem reports whether a task is an instance that a drain leaves alone.
func (e *evidence) ofSystem(task string) bool {
	return slices.ContainsFunc(e.services, func(s *served) bool { return s.kind == api.JobSystem && s.owns(task) })
}

// calm counts the drains during which the control plane was whole.
func calm(drains []drained) int {
	n := 0
	for _, d := range drains {
		if d.calm {
			n++
		}
	}
	return n
}

// agentView is what the driver reads of an agent.
type agentView struct {
	Status api.AgentStatus `json:"status"`
	Reason string          `json:"status_reason"`
}

// drainAgent drains an agent, keeps it out of service for a while, and gives it back to its work.
func (x *injector) drainAgent(ctx context.Context, m *member, f fault) {
	path := "/api/v1/agents/" + m.id
	calm := x.breaking.Load() == 0
	x.ask(ctx, path+"/drain", map[string]any{"deadline": "500ms", "reason": "chaos"})
	done := x.awaitStatus(ctx, m, path, api.AgentMaintenance)
	if done && x.isOperators(path) {
		d := drained{agent: m.id, span: span{from: monotonic()}, calm: calm && x.breaking.Load() == 0 &&
			x.broken.Load() == f.broken}
		pause(ctx, f.hold)
		d.to = monotonic()
		x.mu.Lock()
		x.drains = append(x.drains, d)
		x.mu.Unlock()
	}
	x.endMaintenance(ctx, m)
	x.awaitStatus(ctx, m, path, api.AgentOnline)
}

// isOperators reports whether an agent is out of service for the driver's sake: healing may have been quicker, and then
// it is healing's to end it.
func (x *injector) isOperators(path string) bool {
	var a agentView
	for i := range x.in.planes {
		if status, err := x.in.call(i, http.MethodGet, path, nil, &a); err == nil && status == http.StatusOK {
			return a.Reason == "chaos"
		}
	}
	return false
}

// ask repeats a request until some process of the control plane takes it, or says that it is so already.
func (x *injector) ask(ctx context.Context, path string, body any) {
	for i := 0; ; i++ {
		status, err := x.in.call(i, http.MethodPost, path, body, nil)
		if err == nil && (status < 300 || status == http.StatusConflict) || !pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// endMaintenance asks until it is taken, after the drains that the driver asked for: the end of one that is under way
// would put the agent into maintenance again.
func (x *injector) endMaintenance(ctx context.Context, m *member) {
	x.awaitDrains(ctx, m)
	for i := 0; ; i++ {
		status, err := x.in.call(i, http.MethodPost, "/api/v1/agents/"+m.id+"/maintenance",
			map[string]any{"enabled": false}, nil)
		if err == nil && status < 300 || !pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// awaitDrains waits until no drain of the agent is under way that the driver asked for. There are two where the first
// answer was lost, and one may begin late, while the agent is in maintenance for healing's sake.
func (x *injector) awaitDrains(ctx context.Context, m *member) {
	const look = 100 * time.Millisecond
	const listed = 2 * time.Second // a drain appears within about a second of its start
	var open []api.DrainRecord
	quiet := time.Duration(0)
	for i, left := 0, exitLimit; left > 0; i++ {
		var answer struct {
			Drains []api.DrainRecord `json:"drains"`
		}
		status, err := x.in.call(i, http.MethodGet, "/api/v1/agents/drains?page_size=50&cluster="+m.cluster, nil,
			&answer)
		answered := err == nil && status == http.StatusOK
		open = slices.DeleteFunc(answer.Drains, func(d api.DrainRecord) bool {
			readable := len(d.Agents) > 0
			return d.Status != api.DrainRunning || readable && (d.Reason != "chaos" || d.Agents[0].AgentID != m.id)
		})
		switch {
		case len(open) > 0:
			quiet = 0
		case answered:
			quiet += look
		}
		if quiet >= listed {
			return
		}
		if answered && x.breaking.Load() == 0 {
			left -= look
		}
		if !pause(ctx, look) {
			return
		}
	}
	x.t.Errorf("drains of agent %s do not end: %+v", m.id, open)
}

// awaitStatus waits until the API shows an agent so; only time in which the control plane was whole counts.
func (x *injector) awaitStatus(ctx context.Context, m *member, path string, want api.AgentStatus) bool {
	const look = 50 * time.Millisecond
	var a agentView
	for i, left := 0, exitLimit; left > 0; i++ {
		if status, err := x.in.call(i, http.MethodGet, path, nil, &a); err == nil && status == http.StatusOK &&
			a.Status == want {
			return true
		}
		if x.breaking.Load() == 0 {
			left -= look
		}
		if !pause(ctx, look) {
			return false
		}
	}
	x.t.Errorf("agent %s is %s (%s) and does not become %s", m.id, a.Status, a.Reason, want)
	return false
}

// drainedAgent drains the one agent with work in flight, and looks that it is done when that is done, and that what is
// submitted then does not begin.
func drainedAgent(t *testing.T, g *stage) []string {
	g.begin(t, &job{work: work{MS: 1500}})
	m := g.agents[0]
	x := newInjector(t, g.installation)
	x.ask(g.ctx, "/api/v1/agents/"+m.id+"/drain", map[string]any{"deadline": "30s"})
	if !x.awaitStatus(g.ctx, m, "/api/v1/agents/"+m.id, api.AgentMaintenance) {
		return []string{"the drain does not end"}
	}
	d := drained{agent: m.id, span: span{from: monotonic()}, calm: true}
	late := &job{key: "late", cluster: m.cluster, safety: api.Idempotent, work: work{MS: 10, Nonce: "late"}}
	g.jobs = append(g.jobs, late)
	g.submit(g.ctx, late, 0)
	_, began := g.await(2*time.Second, func(l line) bool { return l.Kind == lineBegin && l.Task == late.id })
	d.to = monotonic()
	x.endMaintenance(g.ctx, m)
	g.settle(g.ctx, g.jobs, 20*time.Second)
	lines, err := g.book.read()
	if err != nil {
		return []string{err.Error()}
	}
	v := judge(evidence{jobs: g.jobs, lines: lines, lives: g.lives(), drains: []drained{d}})
	if began {
		v.problems = append(v.problems, "work arrived at an agent in maintenance")
	}
	return v.problems
}
