package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestUnplacedSaysWhy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	later, past := now.Add(90*time.Second), now.Add(-time.Second)
	agent := func(access api.Providers, c task.Candidate) *session {
		return &session{candidate: c, reports: reports{providers: access}}
	}
	l := &lane{sessions: map[*session]*seat{
		agent(nil, task.Candidate{AgentID: "a", TaskTypes: []string{"exec"},
			Capabilities: []string{"gpu"}}): {},
		agent(api.Providers{"llm": {RateLimitedUntil: &later}, "old": {RateLimitedUntil: &past}},
			task.Candidate{AgentID: "b", TaskTypes: []string{"render"}}): {},
	}}
	for name, c := range map[string]struct {
		spec      api.TaskSpec
		wants     string
		unhandled bool
		after     time.Duration
	}{
		"busy": {api.TaskSpec{Type: "exec", RequiredCapabilities: []string{"gpu"}}, "is busy",
			false, 0},
		"no handler": {api.TaskSpec{Type: "bake"}, "no agent handles type bake", true, 0},
		"leaves processes": {api.TaskSpec{Type: "exec", RetrySafety: api.Fenced},
			"ends all of their processes", true, 0},
		"not on one agent": {api.TaskSpec{Type: "render", RequiredCapabilities: []string{"gpu"}},
			"no agent handles type render and has gpu", true, 0},
		"rate limited": {api.TaskSpec{Type: "render", Provider: "llm"},
			"provider llm limits the rate of every agent that can run it, the first until 2026-11-21T12:01:30Z", false,
			30 * time.Second},
		"was rate limited": {api.TaskSpec{Type: "render", Provider: "old"}, "is busy", false, 0},
		"rate limited, no handler": {api.TaskSpec{Type: "bake", Provider: "llm"}, "no agent handles type bake", true,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why, after := l.whyUnplaced(&contract.RunTaskInput{Spec: c.spec}, now)
			require.Contains(t, diagnosis.WhyUnplaced(&why, &c.spec), c.wants)
			require.Equal(t, c.unhandled, why.Unhandled())
			require.Equal(t, c.after, after.Std())
		})
	}
}

func TestCommandsThatMustNotOutliveTheirAgentGoToThoseThatEndTrees(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 5).poll()
		able := b.register("b", 1, func(r *protocol.Register) { r.EndsProcessTrees = true })
		answer := able.poll()
		fenced := aTask("t1")
		fenced.Spec.Type, fenced.Spec.RetrySafety = api.ExecType, api.Fenced
		b.queue("lane/c", fenced)
		b.pass(0)
		require.Equal(t, "t1", (<-answer).Assignments[0].TaskID, "agent a has more free slots, and may leave processes")
	})
}

func TestTaskThatNobodyHandlesComesBackRarely(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1, func(r *protocol.Register) { r.TaskTypes = []string{"other"} }).poll()
		b.queue("lane/c", aTask("t1"))
		b.pass(0) // at once: it must not keep a slot that others could use
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
		require.Equal(t, 1, b.open("lane/c"))
		require.True(t, b.reported()[0].Unhandled)
		require.False(t, b.reported()[0].Begun)
	})
}

// TestManyTasksThatNobodyHandlesTakeTurns has more of one tenant than Temporal should be busy with.
func TestManyTasksThatNobodyHandlesTakeTurns(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1, func(r *protocol.Register) { r.TaskTypes = []string{"other"} }).poll()
		const many = 500
		var id string
		for n := range many {
			id = fmt.Sprint("t", n)
			b.queue("lane/c", aTask(id, func(in *contract.RunTaskInput) { in.Spec.Tenant = "acme" }))
			b.pass(0)
		}
		b.queue("lane/c", aTask("other", func(in *contract.RunTaskInput) { in.Spec.Tenant = "beta" }))
		b.pass(0)
		waits := map[string]time.Duration{}
		for _, r := range b.reported() {
			require.True(t, r.Unhandled)
			waits[r.token] = r.RetryAfter.Std()
		}
		require.Zero(t, waits["t0/1"])
		require.Zero(t, waits["other/1"], "another tenant's does not wait for them")
		require.Equal(t, (many-offersAtOnce)*time.Second/time.Duration(offersPerSecond()),
			waits[id+"/1"].Round(time.Millisecond))
	})
}

// An agent may hand back whatever it gets.
func TestTasksThatAreHandedBackTakeTurns(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		last := time.Duration(0)
		for n := range offersAtOnce + 50 {
			answer := a.poll()
			b.queue("lane/c", aTask(fmt.Sprint("t", n), func(in *contract.RunTaskInput) { in.Spec.Tenant = "acme" }))
			got := (<-answer).Assignments[0]
			a.poll(func(p *protocol.Poll) {
				p.Returned = []protocol.RunningAttempt{{TaskID: got.TaskID, Attempt: got.Attempt}}
			})
			b.pass(0)
			last = b.reported()[n].RetryAfter.Std()
			require.True(t, n > offersAtOnce || last == 0, n)
		}
		require.Greater(t, last, crowded)
	})
}

// TestAClusterBeginsNoWorkOfOtherTenants has what another tenant had there before, or has begin again.
func TestAClusterBeginsNoWorkOfOtherTenants(t *testing.T) {
	for _, lane := range []string{"lane/c", "lane/c/agent/a"} {
		t.Run(lane, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActiveActive,
					Tenants: []string{"acme"}}
				answer := b.register("a", 3).poll()
				of := func(tenant string) func(*contract.RunTaskInput) {
					return func(in *contract.RunTaskInput) { in.Spec.Tenant = tenant }
				}
				b.queue(lane, aTask("t1", of("beta")))
				b.pass(0)
				require.Len(t, b.reported(), 1)
				require.Equal(t, api.AttemptFailed, b.reported()[0].Outcome)
				require.True(t, b.reported()[0].Final)
				require.Equal(t, "cluster c takes no work of tenant beta", b.reported()[0].Reason)
				b.queue(lane, aTask("t2", of("acme")))
				require.Equal(t, "t2", (<-answer).Assignments[0].TaskID)
			})
		})
	}
}

func TestRateLimitedAgentsGetNoTasksOfTheProvider(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		until := time.Now().Add(3 * time.Second)
		limited := func(p *protocol.Poll) {
			p.Providers = api.Providers{"llm": {Available: true, RateLimitedUntil: &until}}
		}
		llm := func(in *contract.RunTaskInput) { in.Spec.Provider = "llm" }
		a := b.register("a", 3, func(r *protocol.Register) { r.Providers = api.Providers{"llm": {Available: true}} })
		given := <-func() <-chan answered {
			answer := a.poll()
			b.queue("lane/c", aTask("t1", llm))
			return answer
		}()
		require.Len(t, given.Assignments, 1)
		first := given.Assignments[0]

		answer := a.poll(lists(first), limited)
		b.queue("lane/c", aTask("t2", llm))
		b.queue("lane/c", aTask("t3"))
		got := (<-answer).Assignments
		require.Len(t, got, 1)
		require.Equal(t, "t3", got[0].TaskID, "other tasks are not limited")
		a.poll(lists(first, got[0]))
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, "t2/1", b.reported()[0].token)
		require.Equal(t, 3*time.Second, b.reported()[0].RetryAfter.Std(), "it need not come before the limit ends")
		require.Contains(t, b.reported()[0].Reason, "provider llm limits the rate")

		b.pass(3 * time.Second)
		answer = a.poll(lists(first, got[0]))
		b.queue("lane/c", aTask("t2", llm, func(in *contract.RunTaskInput) { in.Attempt = 2 }))
		require.Len(t, (<-answer).Assignments, 1)
	})
}
