//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// illStory is a minute of looks at a cluster of three, in which "a" is ill from the 10th second to the 40th.
type illStory struct {
	evidence
	wall time.Time
}

func newIllStory(level api.HealthLevel) *illStory {
	s := &illStory{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	for i := range 60 {
		at := time.Duration(i) * time.Second
		look := fleetLook{asked: int64(at), at: int64(at), wall: s.wall.Add(at)}
		for _, id := range []string{"a", "b", "c"} {
			look.agents = append(look.agents, agentLook{ID: id, Cluster: "x", Status: api.AgentOnline, Hub: "h",
				Health: api.HealthHealthy, Slots: 4, Max: 4})
		}
		s.looks = append(s.looks, look)
	}
	s.illnesses = []illness{{agent: "a", cluster: "x", level: level,
		span:    span{int64(10 * time.Second), int64(40 * time.Second)},
		serving: int64(50 * time.Second), began: s.wall.Add(10 * time.Second)}}
	return s
}

// show changes what the looks show of an agent in so many seconds.
func (s *illStory) show(agent string, from, to int, change func(*agentLook)) *illStory {
	for i := from; i < to; i++ {
		change(s.looks[i].of(agent))
	}
	return s
}

// act adds a decision of healing.
func (s *illStory) act(at int, agent string, kind api.HealingType) *illStory {
	s.actions = slices.Insert(s.actions, 0, api.HealingRecord{Cycle: fmt.Sprint(at), Type: kind, TargetID: agent,
		Cluster: "x", Status: api.HealingSucceeded, DecidedAt: s.wall.Add(time.Duration(at) * time.Second)})
	return s
}

// refused has the cluster refuse the newest decision of healing.
func (s *illStory) refused() *illStory {
	s.actions[0].Status = api.HealingSkipped
	return s
}

func (s *illStory) treated(at int) *illStory {
	s.illnesses[0].treated = int64(time.Duration(at) * time.Second)
	return s
}

func (s *illStory) ran(task string, begin, end int, agent, how string) *illStory {
	s.lines = append(s.lines, line{Kind: lineBegin, Task: task, Attempt: len(s.lines), Agent: agent, PID: len(s.lines),
		NS: int64(time.Duration(begin) * time.Second)})
	last := s.lines[len(s.lines)-1]
	s.lines = append(s.lines, line{Kind: lineEnd, Task: task, Attempt: last.Attempt, Agent: agent, PID: last.PID,
		NS: int64(time.Duration(end) * time.Second), Note: how})
	return s
}

// TestHealingOracle tells the oracle of healing stories with one fault each, and some that are as they should be.
func TestHealingOracle(t *testing.T) {
	t.Parallel()
	out := func(status api.AgentStatus, why string) func(*agentLook) {
		return func(a *agentLook) { a.Status, a.Reason = status, why }
	}
	healed, operators := out(api.AgentMaintenance, "healing: the agent is degraded"), out(api.AgentMaintenance,
		"chaos")
	gone := func(a *agentLook) { a.Status, a.Hub = api.AgentOffline, "" }
	reduced := func(a *agentLook) { a.Slots = 2 }
	drained := func() *illStory {
		return newIllStory(api.HealthDegraded).treated(20).show("a", 20, 50, healed).act(19, "a", api.HealDrain)
	}
	kept := func() *illStory {
		s := newIllStory(api.HealthDegraded).show("a", 5, 45, operators)
		s.illnesses[0].kept = true
		return s
	}
	for name, tt := range map[string]struct {
		story  *illStory
		blamed bool
	}{
		"drained and restored": {drained(), false},
		"nothing was done":     {newIllStory(api.HealthDegraded), true},
		"nothing was done, and the half was away": {newIllStory(api.HealthDegraded).show("b", 5, 60,
			gone).show("c", 5, 60, gone), false},
		"nothing was done, and an operator's is no reason": {newIllStory(api.HealthDegraded).show("b", 5, 60,
			operators), true},
		"nothing was done about a warning": {newIllStory(api.HealthWarning).show("b", 5, 60,
			gone).show("c", 5, 60, gone), true},
		"load reduced": {newIllStory(api.HealthWarning).treated(20).show("a", 20,
			50, reduced), false},
		"load reduced, and it runs too much": {newIllStory(api.HealthWarning).treated(20).show("a", 20,
			50, reduced).ran("1", 30, 35, "a", "done").ran("2", 31, 35, "a", "done").ran("3", 32, 35, "a",
			"done"), true},
		"load reduced, and it runs what it may": {newIllStory(api.HealthWarning).treated(20).show("a", 20,
			50, reduced).ran("1", 30, 35, "a", "done").ran("2", 31, 35, "a", "done").ran("3", 36, 37, "a",
			"done"), false},
		"work begins on a drained agent": {drained().ran("1", 30, 31, "a", "done"), true},
		"work that a drained agent finished begins again": {drained().ran("1", 18, 21, "a", "done").ran("1", 25, 26,
			"b", "done"), true},
		"work that was taken off a drained agent goes on": {drained().ran("1", 18, 21, "a", "stopped").ran("1", 25, 26,
			"b", "done"), false},
		"out of service, and no action says why": {newIllStory(api.HealthDegraded).treated(20).show("a", 20,
			50, healed), true},
		"the last agent is taken": {drained().show("b", 5, 60, gone).show("c", 5, 60, gone),
			true},
		"the others are back, and the next look shows it": {drained().show("b", 5, 20, gone).show("c", 5, 20, gone),
			false},
		"the others are back too late": {drained().show("b", 5, 21, gone).show("c", 5, 21, gone), true},
		"two of three are taken": {drained().show("b", 30, 60, healed).act(29, "b",
			api.HealDrain), true},
		"one after the other is taken": {drained().show("b", 56, 60, healed).act(55, "b",
			api.HealDrain), false},
		"left alone in maintenance": {kept(), false},
		"an operator's maintenance ended": {kept().show("a", 30, 45, out(api.AgentOnline, "")),
			true},
		"an operator's maintenance became healing's": {kept().show("a", 30, 45, healed).act(29, "a",
			api.HealDrain), true},
		"an action on what an operator keeps":      {kept().act(29, "a", api.HealReduce), true},
		"an action on it that the cluster refused": {kept().act(29, "a", api.HealReduce).refused(), false},
		"refused, and the load is reduced all the same": {kept().act(29, "a", api.HealReduce).refused().show("a",
			30, 45, reduced), true},
		"load reduced before the operator came": {kept().show("a", 0, 30, reduced), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(tt.story.evidence)
			require.Equal(t, tt.blamed, v.healingFaults > 0, "%v", v.problems)
		})
	}
	s := drained()
	s.illnesses[0].serving = 0
	require.Positive(t, judge(s.evidence).healingFaults, "well again, and not back at its work")
	s.illnesses[0].flaps = true
	require.Zero(t, judge(s.evidence).healingFaults, "it was taken out so often that healing waits for long")
	s = newIllStory(api.HealthDegraded)
	s.away = []span{{int64(15 * time.Second), int64(16 * time.Second)}}
	require.Zero(t, judge(s.evidence).healingFaults, "the control plane was away")
}
