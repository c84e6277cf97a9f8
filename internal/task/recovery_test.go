package task

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

var recoveryStart = time.Unix(1_800_000_000, 0).UTC()

// TestDefaultRecovery has the documented table.
func TestDefaultRecovery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode                api.RecoveryMode
		keepRunning         bool
		restart, reschedule string
	}{
		{"", true, "3 10m0s 1s exponential 30s fail false", "0 1h0m0s 5s exponential 5m0s fail true"},
		{api.ClusterRecover, true, "3 10m0s 1s exponential 30s fail false", "0 1h0m0s 5s exponential 5m0s fail true"},
		{api.ClusterRecover, false, "3 24h0m0s 1s exponential 30s fail false", "1 24h0m0s 5s constant 5s fail false"},
		{api.LocalRestart, true, "3 10m0s 1s exponential 30s delay false", "0 24h0m0s 5s constant 5s fail false"},
		{api.LocalRestart, false, "3 24h0m0s 1s exponential 30s fail false", "0 24h0m0s 5s constant 5s fail false"},
		{api.ManualRecover, true, "0 10m0s 1s exponential 30s fail false", "0 24h0m0s 5s constant 5s fail false"},
		{api.ManualRecover, false, "0 24h0m0s 1s exponential 30s fail false", "0 24h0m0s 5s constant 5s fail false"},
	} {
		r := (&api.Recovery{Mode: c.mode}).WithDefaults(c.keepRunning)
		require.Equal(t, c.restart, policyText(r.Restart), "%s %v", c.mode, c.keepRunning)
		require.Equal(t, c.reschedule, policyText(r.Reschedule), "%s %v", c.mode, c.keepRunning)
		require.Equal(t, r, r.WithDefaults(c.keepRunning), "filled twice is filled once")
	}
}

func policyText(p *api.RecoveryPolicy) string {
	text, _ := json.Marshal([]any{*p.Attempts, p.Interval, p.Delay, p.DelayFunction, p.MaxDelay, p.Mode, p.Unlimited})
	var fields []any
	_ = json.Unmarshal(text, &fields)
	out := ""
	for i, f := range fields {
		if i > 0 {
			out += " "
		}
		switch f := f.(type) {
		case string:
			out += f
		default:
			word, _ := json.Marshal(f)
			out += string(word)
		}
	}
	return out
}

func TestReadRecovery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"local_restart"`:                             "",
		`{"mode":"manual_recover"}`:                   "",
		`{"restart":{"attempts":0}}`:                  "",
		`{"reschedule":{"unlimited":true}}`:           "",
		`"local"`:                                     "must be cluster_recover, local_restart or manual_recover",
		`{"mode":"local"}`:                            "recovery.mode must be",
		`{"restart":{"attempts":51}}`:                 "recovery.restart.attempts must be",
		`{"restart":{"interval":"10ms"}}`:             "recovery.restart.interval must be",
		`{"restart":{"delay":"25h"}}`:                 "recovery.restart.delay must be",
		`{"restart":{"delay_function":"sq"}}`:         "recovery.restart.delay_function must be",
		`{"reschedule":{"mode":"stop"}}`:              "recovery.reschedule.mode must be",
		`{"restart":{"tries":1}}`:                     `unknown field "tries"`,
		`{"restart":{"delay":"2s","max_delay":"1s"}}`: "recovery.restart.delay must not be longer than max_delay",
	} {
		var r api.Recovery
		err := json.Unmarshal([]byte(text), &r)
		if err == nil {
			err = r.Validate()
		}
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
	require.ErrorContains(t, (&api.TaskSpec{Type: "x", Cluster: "x", Recovery: &api.Recovery{},
		Retry: api.RetryPolicy{MaxAttempts: 2}}).Validate(), "recovery takes the place of retry")
}

// TestRecoveryWaits has the begin times of attempts that each fail as soon as they begin, in seconds after the first
// failure; below zero: none follows.
func TestRecoveryWaits(t *testing.T) {
	t.Parallel()
	policy := func(
		attempts int, interval time.Duration, f api.DelayFunction, limit time.Duration, m api.Exhaustion,
	) api.RecoveryPolicy {
		return api.RecoveryPolicy{Attempts: &attempts, Interval: api.Duration(interval), Delay: api.Duration(time.Second),
			DelayFunction: f, MaxDelay: api.Duration(limit), Mode: m}
	}
	unlimited := policy(0, time.Hour, api.DelayExponential, 10*time.Second, api.ExhaustedFail)
	unlimited.Unlimited = true
	for name, c := range map[string]struct {
		policy api.RecoveryPolicy
		begins []float64
	}{
		"exponential": {policy(9, time.Hour, api.DelayExponential, time.Hour, api.ExhaustedFail), []float64{1, 3, 7, 15, 31, 63}},
		"fibonacci":   {policy(9, time.Hour, api.DelayFibonacci, time.Hour, api.ExhaustedFail), []float64{1, 2, 4, 7, 12, 20}},
		"constant":    {policy(9, time.Hour, api.DelayConstant, time.Hour, api.ExhaustedFail), []float64{1, 2, 3, 4, 5, 6}},
		"capped":      {policy(9, time.Hour, api.DelayExponential, 3*time.Second, api.ExhaustedFail), []float64{1, 3, 6, 9, 12}},
		"fibonacci, capped": {policy(9, time.Hour, api.DelayFibonacci, 2500*time.Millisecond, api.ExhaustedFail),
			[]float64{1, 2, 4, 6.5, 9}},
		"used up":   {policy(2, time.Minute, api.DelayConstant, time.Second, api.ExhaustedFail), []float64{1, 2, -1}},
		"disabled":  {policy(0, time.Minute, api.DelayConstant, time.Second, api.ExhaustedDelay), []float64{-1}},
		"unlimited": {unlimited, []float64{1, 3, 7, 15, 25, 35, 45}},
		// The third waits until the first leaves the window, the fourth until the second does.
		"delay": {policy(2, 10*time.Second, api.DelayConstant, time.Second, api.ExhaustedDelay), []float64{1, 2, 11, 12, 21, 22}},
		// The first left the window by itself.
		"window": {policy(2, 2*time.Second, api.DelayExponential, time.Hour, api.ExhaustedFail), []float64{1, 3, 5, 7, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var history []time.Time
			now := recoveryStart
			for i, want := range c.begins {
				at, ok := NextRecovery(&c.policy, history, now)
				if want < 0 {
					require.False(t, ok, i)
					return
				}
				require.True(t, ok, i)
				require.Equal(t, want, at.Sub(recoveryStart).Seconds(), i)
				history, now = append(history, at), at
			}
		})
	}
}

// TestRecover has every cell of the table of docs/CLUSTERS.md.
func TestRecover(t *testing.T) {
	t.Parallel()
	failed := AttemptEnd{Outcome: api.AttemptFailed, Begun: true}
	late := AttemptEnd{Outcome: api.AttemptTimedOut, Begun: true, ErrorType: api.ErrorTypeNoBeacon}
	done := AttemptEnd{Outcome: api.AttemptCompleted, Begun: true}
	lost := AttemptEnd{Outcome: api.AttemptLost, Begun: true, LeaseRemaining: new(api.Duration(7 * time.Second))}
	drained := AttemptEnd{Outcome: api.AttemptMoved, Begun: true, Planned: true}
	pausedThenLost, final, damaged := lost, failed, failed
	pausedThenLost.Paused, final.Final, damaged.ErrorType = true, true, api.ErrorTypeCheckpoint
	few := &api.Recovery{Restart: &api.RecoveryPolicy{Attempts: new(1)}, Reschedule: &api.RecoveryPolicy{Attempts: new(1)}}
	used := &api.PolicyState{Restarts: []time.Time{recoveryStart.Add(-time.Second)}}
	usedAll := &api.PolicyState{Restarts: used.Restarts, Reschedules: used.Restarts}
	local := &api.Recovery{Mode: api.LocalRestart, Restart: &api.RecoveryPolicy{Attempts: new(1), Mode: api.ExhaustedFail}}
	waits := &api.Recovery{Mode: api.LocalRestart, Restart: &api.RecoveryPolicy{Attempts: new(1), Interval: api.Duration(time.Minute),
		Mode: api.ExhaustedDelay}}
	clusterWaits := &api.Recovery{Restart: waits.Restart}
	is := func(mode api.RecoveryMode) *api.Recovery { return &api.Recovery{Mode: mode} }
	for name, c := range map[string]struct {
		spec   api.TaskSpec
		before *api.PolicyState
		end    AttemptEnd
		status api.TaskStatus
		action api.RecoveryAction
		wait   time.Duration
		counts [2]int // restarts and reschedules
	}{
		"cluster, planned": {api.TaskSpec{}, used, drained, api.TaskQueued, "", 0, [2]int{1, 0}},
		"local, planned":   {api.TaskSpec{Recovery: is(api.LocalRestart)}, nil, drained, api.TaskQueued, api.ActionAwaitAgent, 0, [2]int{}},
		"manual, planned": {api.TaskSpec{Recovery: is(api.ManualRecover)}, nil, drained, api.TaskQueued, api.ActionAwaitAgent, 0,
			[2]int{}},
		"cluster, failed":    {api.TaskSpec{}, nil, failed, api.TaskRetryWait, api.ActionRestart, time.Second, [2]int{1, 0}},
		"cluster, no beacon": {api.TaskSpec{}, nil, late, api.TaskRetryWait, api.ActionRestart, time.Second, [2]int{1, 0}},
		"cluster, service ended": {api.TaskSpec{KeepRunning: true}, nil, done, api.TaskRetryWait, api.ActionRestart, time.Second,
			[2]int{1, 0}},
		"cluster, restarts used up": {api.TaskSpec{Recovery: few}, used, failed, api.TaskRetryWait, api.ActionReschedule,
			5 * time.Second, [2]int{1, 1}},
		"cluster, restarts used up, delay": {api.TaskSpec{Recovery: clusterWaits}, used, failed, api.TaskRetryWait, api.ActionRestart,
			59 * time.Second, [2]int{2, 0}},
		"local, failed": {api.TaskSpec{Recovery: local}, nil, failed, api.TaskRetryWait, api.ActionRestart, time.Second, [2]int{1, 0}},
		"local, restarts used up, service": {api.TaskSpec{Recovery: local, KeepRunning: true}, used, failed, api.TaskReview,
			api.ActionReview, 0, [2]int{1, 0}},
		"local, restarts used up, batch": {api.TaskSpec{Recovery: local}, used, failed, api.TaskDeadLetter, api.ActionNone, 0,
			[2]int{1, 0}},
		"local, restarts used up, delay": {api.TaskSpec{Recovery: waits}, used, failed, api.TaskRetryWait, api.ActionRestart,
			59 * time.Second, [2]int{2, 0}},
		"manual, failed": {api.TaskSpec{Recovery: is(api.ManualRecover)}, nil, failed, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"manual, service ended": {api.TaskSpec{Recovery: is(api.ManualRecover), KeepRunning: true}, nil, done, api.TaskReview,
			api.ActionReview, 0, [2]int{}},
		"cluster, lost": {api.TaskSpec{}, nil, lost, api.TaskQueued, api.ActionReschedule, 0, [2]int{0, 1}},
		"local, lost":   {api.TaskSpec{Recovery: is(api.LocalRestart)}, nil, lost, api.TaskQueued, api.ActionAwaitAgent, 0, [2]int{}},
		"manual, lost":  {api.TaskSpec{Recovery: is(api.ManualRecover)}, nil, lost, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"pinned, lost":  {api.TaskSpec{Agent: "a-1"}, nil, lost, api.TaskQueued, api.ActionAwaitAgent, 0, [2]int{}},
		"cluster, reschedules used up, batch": {api.TaskSpec{Recovery: few}, usedAll, lost, api.TaskDeadLetter, api.ActionNone, 0,
			[2]int{1, 1}},
		"cluster, reschedules used up, service": {api.TaskSpec{Recovery: few, KeepRunning: true}, usedAll, lost, api.TaskReview,
			api.ActionReview, 0, [2]int{1, 1}},
		"cluster, both used up": {api.TaskSpec{Recovery: few}, usedAll, failed, api.TaskDeadLetter, api.ActionNone, 0, [2]int{1, 1}},
		"service, never used up": {api.TaskSpec{KeepRunning: true}, &api.PolicyState{Reschedules: used.Restarts}, lost,
			api.TaskRetryWait, api.ActionReschedule, 10 * time.Second, [2]int{0, 2}},
		"at_most_once, lost":    {api.TaskSpec{RetrySafety: api.AtMostOnce}, nil, lost, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"at_most_once, failed":  {api.TaskSpec{RetrySafety: api.AtMostOnce}, nil, failed, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"at_most_once, drained": {api.TaskSpec{RetrySafety: api.AtMostOnce}, nil, drained, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"unmarked, lost":        {api.TaskSpec{RetrySafety: api.Unmarked}, nil, lost, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"unmarked, late":        {api.TaskSpec{RetrySafety: api.Unmarked}, nil, late, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"unmarked, failed": {api.TaskSpec{RetrySafety: api.Unmarked}, nil, failed, api.TaskRetryWait, api.ActionRestart, time.Second,
			[2]int{1, 0}},
		"fenced, lost": {api.TaskSpec{RetrySafety: api.Fenced}, nil, lost, api.TaskRetryWait, api.ActionReschedule, 7 * time.Second,
			[2]int{0, 1}},
		"fenced, local, lost": {api.TaskSpec{RetrySafety: api.Fenced, Recovery: is(api.LocalRestart)}, nil, lost, api.TaskRetryWait,
			api.ActionAwaitAgent, 7 * time.Second, [2]int{}},
		"fenced, failed": {api.TaskSpec{RetrySafety: api.Fenced}, nil, failed, api.TaskRetryWait, api.ActionRestart, time.Second,
			[2]int{1, 0}},
		"paused, then lost": {api.TaskSpec{}, nil, pausedThenLost, api.TaskReview, api.ActionReview, 0, [2]int{}},
		"final":             {api.TaskSpec{}, nil, final, api.TaskFailed, api.ActionNone, 0, [2]int{}},
		"damaged":           {api.TaskSpec{}, nil, damaged, api.TaskReview, api.ActionReview, 0, [2]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.spec.Recovery == nil {
				c.spec.Recovery = is(api.ClusterRecover)
			}
			c.end.At, c.end.AgentID, c.end.Reason = recoveryStart, "a-1", "because"
			was := c.before.Clone()
			got := Redeliver(&c.spec, "t-1", Tally{Policy: c.before}, c.end)
			s := got.Tally.Policy
			require.Equal(t, c.status, got.Status, got.Why)
			require.Equal(t, c.action, s.NextAction)
			require.Equal(t, c.wait, got.Wait)
			require.Equal(t, c.counts, [2]int{len(s.Restarts), len(s.Reschedules)})
			require.Equal(t, "a-1", s.Agent)
			require.Equal(t, c.action == api.ActionReschedule, len(s.Excluded) == 1)
			if got.Status == api.TaskRetryWait {
				require.Equal(t, recoveryStart.Add(c.wait), *s.NextAt, "what it says is what it does")
			}
			require.Equal(t, was, c.before.Clone(), "the state before is not changed")
		})
	}
}

// TestRecoverReturned is about deliveries that came back without having begun.
func TestRecoverReturned(t *testing.T) {
	t.Parallel()
	spec := &api.TaskSpec{Recovery: &api.Recovery{}}
	back := AttemptEnd{Outcome: api.AttemptReturned, Unhandled: true, At: recoveryStart, Reason: "no agent fits"}
	at := func(d time.Duration) *time.Time { return new(recoveryStart.Add(d)) }

	t.Run("blocked placement counts nothing", func(t *testing.T) {
		t.Parallel()
		lost := AttemptEnd{Outcome: api.AttemptLost, Begun: true, At: recoveryStart, AgentID: "a-1"}
		next := Redeliver(spec, "t", Tally{}, lost)
		require.Len(t, next.Tally.Policy.Reschedules, 1)
		end := back
		for range 20 {
			end.At = end.At.Add(next.Wait)
			next = Redeliver(spec, "t", next.Tally, end)
			require.Empty(t, next.Tally.Policy.Reschedules)
			require.Equal(t, api.TaskRetryWait, next.Status)
			require.Equal(t, end.At.Add(next.Wait), *next.Tally.Policy.NextAt)
			require.Equal(t, "blocked", RecoveryStatus(next.Status, next.Tally.Policy))
		}
		require.Empty(t, next.Tally.Policy.Excluded, "an exclusion ends")
		lost.At, lost.AgentID = end.At.Add(time.Hour), "a-2"
		next = Redeliver(spec, "t", next.Tally, lost)
		require.Equal(t, api.TaskDeadLetter, next.Status, "the one that began counts: %s", next.Why)
	})
	t.Run("its agent takes a restart in time or another does", func(t *testing.T) {
		t.Parallel()
		before := Tally{Policy: &api.PolicyState{NextAction: api.ActionRestart, Agent: "a-1", NextAt: at(-4 * time.Second)}}
		next := Redeliver(spec, "t", before, back)
		require.Equal(t, api.ActionRestart, next.Tally.Policy.NextAction)
		require.LessOrEqual(t, next.Wait, time.Second)
		agent, within := PlacementOf(next.Tally.Policy, spec.EffectiveRecovery(), recoveryStart)
		require.Equal(t, "a-1", agent)
		require.Equal(t, time.Second, within)
		before.Policy.NextAt = at(-5 * time.Second)
		next = Redeliver(spec, "t", before, back)
		require.Equal(t, api.ActionReschedule, next.Tally.Policy.NextAction)
		require.Empty(t, next.Tally.Policy.Excluded, "its agent was only busy")
		gone := AttemptEnd{Outcome: api.AttemptLost, At: recoveryStart}
		before.Policy.NextAt = at(0)
		require.Equal(t, []string{"a-1"}, Redeliver(spec, "t", before, gone).Tally.Policy.Excluded)
	})
	t.Run("local_restart never leaves its agent", func(t *testing.T) {
		t.Parallel()
		local := &api.TaskSpec{Recovery: &api.Recovery{Mode: api.LocalRestart}}
		before := Tally{Policy: &api.PolicyState{NextAction: api.ActionRestart, Agent: "a-1", NextAt: at(-time.Hour)}}
		next := Redeliver(local, "t", before, back)
		agent, within := PlacementOf(next.Tally.Policy, local.EffectiveRecovery(), recoveryStart)
		require.Equal(t, "a-1", agent)
		require.Zero(t, within)
	})
}

// TestRecoverIsSafe: whatever happened before, what may have begun and must not begin twice does not.
func TestRecoverIsSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := &api.TaskSpec{RetrySafety: api.AtMostOnce, KeepRunning: rapid.Bool().Draw(t, "keep running"),
			Recovery: &api.Recovery{Mode: rapid.SampledFrom([]api.RecoveryMode{api.ClusterRecover, api.LocalRestart}).Draw(t, "mode")}}
		end := AttemptEnd{Begun: true, At: recoveryStart, Planned: rapid.Bool().Draw(t, "planned"),
			Outcome: rapid.SampledFrom([]api.AttemptOutcome{api.AttemptFailed, api.AttemptLost, api.AttemptMoved, api.AttemptTimedOut}).Draw(t,
				"outcome")}
		if got := Redeliver(spec, "t", Tally{}, end); got.Status != api.TaskReview {
			t.Fatalf("at_most_once would be delivered again: %+v", got)
		}
	})
}

func TestKeepRunningHasNoEnd(t *testing.T) {
	t.Parallel()
	spec := &api.TaskSpec{KeepRunning: true}
	require.Equal(t, api.Endless, spec.AttemptTimeout())
	require.Equal(t, api.Endless, spec.Expiration())
	require.Equal(t, api.ClusterRecover, spec.EffectiveRecovery().Mode)
	require.Nil(t, (&api.TaskSpec{}).EffectiveRecovery())
}
