package mesh_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/mesh"
)

func TestNextRoute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := fleet.Route{Provider: "a", Model: "m", Window: 1000}
	b := fleet.Route{Provider: "b", Model: "m", Window: 1000}
	large := fleet.Route{Provider: "b", Model: "large", Window: 9000}
	after := func(r fleet.Route, kind string, ago time.Duration) fleet.Attempt {
		ended := now.Add(-ago)
		return fleet.Attempt{Route: &r, Outcome: fleet.AttemptFailed, ErrorType: kind, EndedAt: &ended}
	}
	lost := fleet.Attempt{Route: &a, Outcome: fleet.AttemptLost, StartedAt: &now}
	returned := fleet.Attempt{Route: &a, Outcome: fleet.AttemptReturned}
	for name, c := range map[string]struct {
		history []fleet.Attempt
		want    fleet.Route
		wait    time.Duration
		none    bool
	}{
		"the first":              {want: a},
		"its rate is limited":    {history: []fleet.Attempt{after(a, mesh.ErrorRateLimited, 0)}, want: b},
		"unavailable":            {history: []fleet.Attempt{after(a, mesh.ErrorUnavailable, time.Second)}, want: b},
		"it has rested":          {history: []fleet.Attempt{after(a, mesh.ErrorUnavailable, 31*time.Second)}, want: a},
		"it rests twice as long": {history: []fleet.Attempt{after(a, mesh.ErrorTimeout, 2*time.Minute), after(a, mesh.ErrorTimeout, 31*time.Second)}, want: b},
		"all rest": {history: []fleet.Attempt{after(a, mesh.ErrorUnavailable, 10*time.Second),
			after(b, mesh.ErrorUnavailable, 5*time.Second), after(large, mesh.ErrorTimeout, time.Second)}, want: a,
			wait: 20 * time.Second},
		"a bad key":            {history: []fleet.Attempt{after(a, mesh.ErrorAuth, time.Hour)}, want: b},
		"too long":             {history: []fleet.Attempt{after(a, mesh.ErrorContext, time.Hour)}, want: large},
		"lost with its agent":  {history: []fleet.Attempt{lost}, want: b},
		"no agent took it":     {history: []fleet.Attempt{returned}, want: b},
		"it was taken later":   {history: []fleet.Attempt{returned, after(b, mesh.ErrorTimeout, 0)}, want: a},
		"all refuse the input": {history: []fleet.Attempt{after(a, mesh.ErrorInvalid, 0), after(b, mesh.ErrorAuth, 0), after(large, mesh.ErrorInvalid, 0)}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, wait, none := mesh.NextRoute([]fleet.Route{a, b, large}, c.history, now)
			require.Equal(t, c.none, none != "")
			if !c.none {
				require.Equal(t, c.want, got)
				require.Equal(t, c.wait, wait)
			}
		})
	}
	_, wait, _ := mesh.NextRoute([]fleet.Route{a}, []fleet.Attempt{{Route: &a, Outcome: fleet.AttemptCompleted, EndedAt: &now}}, now)
	require.Zero(t, wait, "an answer that was not accepted is no failure of the provider")
	require.JSONEq(t, `{"messages":[],"route":{"provider":"a","model":"m","window":1000}}`,
		string(mesh.WithRoute(json.RawMessage(`{"messages":[]}`), a)))
	require.Equal(t, `[1]`, string(mesh.WithRoute(json.RawMessage(`[1]`), a)))
}

func TestReroute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a, b := fleet.Route{Provider: "a", Model: "m"}, fleet.Route{Provider: "b", Model: "m"}
	failed := func(r fleet.Route, kind string) fleet.Attempt {
		return fleet.Attempt{Route: &r, Outcome: fleet.AttemptFailed, ErrorType: kind, EndedAt: &now, Reason: "oops"}
	}
	lost := fleet.Attempt{Route: &a, Outcome: fleet.AttemptLost, StartedAt: &now}
	backoff := fleet.Redelivery{Status: fleet.TaskRetryWait, Wait: 2 * time.Second}
	for name, c := range map[string]struct {
		safety  fleet.RetrySafety
		routes  []fleet.Route
		history []fleet.Attempt
		next    fleet.Redelivery
		status  fleet.TaskStatus
		wait    time.Duration
	}{
		"another is free": {"", []fleet.Route{a, b}, []fleet.Attempt{failed(a, mesh.ErrorUnavailable)}, backoff, fleet.TaskQueued, 0},
		"all rest":        {"", []fleet.Route{a}, []fleet.Attempt{failed(a, mesh.ErrorUnavailable)}, backoff, fleet.TaskRetryWait, mesh.Cooldown},
		"all are out":     {"", []fleet.Route{a, b}, []fleet.Attempt{failed(a, mesh.ErrorAuth), failed(b, mesh.ErrorInvalid)}, backoff, fleet.TaskFailed, 2 * time.Second},
		"no routes":       {"", nil, []fleet.Attempt{failed(a, "")}, backoff, fleet.TaskRetryWait, 2 * time.Second},
		"no attempt left": {"", []fleet.Route{a, b}, []fleet.Attempt{failed(a, "")}, fleet.Redelivery{Status: fleet.TaskDeadLetter}, fleet.TaskDeadLetter, 0},
		"a lease runs":    {fleet.Fenced, []fleet.Route{a, b}, []fleet.Attempt{lost}, fleet.Redelivery{Status: fleet.TaskRetryWait, Wait: time.Second}, fleet.TaskRetryWait, time.Second},
		"lost, no lease":  {fleet.Idempotent, []fleet.Route{a, b}, []fleet.Attempt{lost}, fleet.Redelivery{Status: fleet.TaskQueued}, fleet.TaskQueued, 0},
		"returned too often": {"", []fleet.Route{a, b}, []fleet.Attempt{{Route: &a, Outcome: fleet.AttemptReturned}},
			fleet.Redelivery{Status: fleet.TaskRetryWait, Wait: 9, Tally: fleet.Tally{Returns: 3}}, fleet.TaskRetryWait, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mesh.Reroute(&fleet.TaskSpec{Routes: c.routes, RetrySafety: c.safety}, c.history, c.next, now)
			require.Equal(t, c.status, got.Status)
			require.Equal(t, c.wait, got.Wait)
		})
	}
	spec := &fleet.TaskSpec{Routes: []fleet.Route{a, b}}
	require.Equal(t, []time.Duration{mesh.Cooldown, 2 * mesh.Cooldown, 10 * time.Minute},
		[]time.Duration{mesh.RouteWait(spec, 0), mesh.RouteWait(spec, 2), mesh.RouteWait(spec, 99)})
	require.Zero(t, mesh.RouteWait(&fleet.TaskSpec{Routes: []fleet.Route{a}}, 0), "there is no other")
	for result, want := range map[string][2]int{`{"invocation":{"input_tokens":9,"output_tokens":3}}`: {12, 0}, `[1]`: {},
		`{"invocation":{"input_tokens":9,"usd":0.000125}}`: {9, 125},
		`{"invocation":{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"usd":1e300}}`: {
			1 << 40, 1 << 40},
		`{"invocation":{"input_tokens":-1,"usd":-1}}`: {}} {
		tokens, microUSD := mesh.Taken(json.RawMessage(result))
		require.Equal(t, want, [2]int{tokens, microUSD}, result)
	}
}
