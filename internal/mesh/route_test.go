package mesh_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func TestNextRoute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := api.Route{Provider: "a", Model: "m", Window: 1000}
	b := api.Route{Provider: "b", Model: "m", Window: 1000}
	large := api.Route{Provider: "b", Model: "large", Window: 9000}
	after := func(r api.Route, kind string, ago time.Duration) api.Attempt {
		ended := now.Add(-ago)
		return api.Attempt{Route: &r, Outcome: api.AttemptFailed, ErrorType: kind, EndedAt: &ended}
	}
	lost := api.Attempt{Route: &a, Outcome: api.AttemptLost, StartedAt: &now}
	returned := api.Attempt{Route: &a, Outcome: api.AttemptReturned}
	for name, c := range map[string]struct {
		history []api.Attempt
		want    api.Route
		wait    time.Duration
		none    bool
	}{
		"the first":              {want: a},
		"its rate is limited":    {history: []api.Attempt{after(a, mesh.ErrorRateLimited, 0)}, want: b},
		"unavailable":            {history: []api.Attempt{after(a, mesh.ErrorUnavailable, time.Second)}, want: b},
		"it has rested":          {history: []api.Attempt{after(a, mesh.ErrorUnavailable, 31*time.Second)}, want: a},
		"it rests twice as long": {history: []api.Attempt{after(a, mesh.ErrorTimeout, 2*time.Minute), after(a, mesh.ErrorTimeout, 31*time.Second)}, want: b},
		"all rest": {history: []api.Attempt{after(a, mesh.ErrorUnavailable, 10*time.Second),
			after(b, mesh.ErrorUnavailable, 5*time.Second), after(large, mesh.ErrorTimeout, time.Second)}, want: a,
			wait: 20 * time.Second},
		"a bad key":            {history: []api.Attempt{after(a, mesh.ErrorAuth, time.Hour)}, want: b},
		"too long":             {history: []api.Attempt{after(a, mesh.ErrorContext, time.Hour)}, want: large},
		"lost with its agent":  {history: []api.Attempt{lost}, want: b},
		"no agent took it":     {history: []api.Attempt{returned}, want: b},
		"it was taken later":   {history: []api.Attempt{returned, after(b, mesh.ErrorTimeout, 0)}, want: a},
		"all refuse the input": {history: []api.Attempt{after(a, mesh.ErrorInvalid, 0), after(b, mesh.ErrorAuth, 0), after(large, mesh.ErrorInvalid, 0)}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, wait, none := mesh.NextRoute([]api.Route{a, b, large}, c.history, now)
			require.Equal(t, c.none, none != "")
			if !c.none {
				require.Equal(t, c.want, got)
				require.Equal(t, c.wait, wait)
			}
		})
	}
	_, wait, _ := mesh.NextRoute([]api.Route{a}, []api.Attempt{{Route: &a, Outcome: api.AttemptCompleted, EndedAt: &now}}, now)
	require.Zero(t, wait, "an answer that was not accepted is no failure of the provider")
	require.JSONEq(t, `{"messages":[],"route":{"provider":"a","model":"m","window":1000}}`,
		string(mesh.WithRoute(json.RawMessage(`{"messages":[]}`), a)))
	require.Equal(t, `[1]`, string(mesh.WithRoute(json.RawMessage(`[1]`), a)))
}

func TestReroute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a, b := api.Route{Provider: "a", Model: "m"}, api.Route{Provider: "b", Model: "m"}
	failed := func(r api.Route, kind string) api.Attempt {
		return api.Attempt{Route: &r, Outcome: api.AttemptFailed, ErrorType: kind, EndedAt: &now, Reason: "oops"}
	}
	lost := api.Attempt{Route: &a, Outcome: api.AttemptLost, StartedAt: &now}
	backoff := task.Redelivery{Status: api.TaskRetryWait, Wait: 2 * time.Second}
	for name, c := range map[string]struct {
		safety  api.RetrySafety
		routes  []api.Route
		history []api.Attempt
		next    task.Redelivery
		status  api.TaskStatus
		wait    time.Duration
	}{
		"another is free": {"", []api.Route{a, b}, []api.Attempt{failed(a, mesh.ErrorUnavailable)}, backoff, api.TaskQueued, 0},
		"all rest":        {"", []api.Route{a}, []api.Attempt{failed(a, mesh.ErrorUnavailable)}, backoff, api.TaskRetryWait, mesh.Cooldown},
		"all are out":     {"", []api.Route{a, b}, []api.Attempt{failed(a, mesh.ErrorAuth), failed(b, mesh.ErrorInvalid)}, backoff, api.TaskFailed, 2 * time.Second},
		"no routes":       {"", nil, []api.Attempt{failed(a, "")}, backoff, api.TaskRetryWait, 2 * time.Second},
		"no attempt left": {"", []api.Route{a, b}, []api.Attempt{failed(a, "")}, task.Redelivery{Status: api.TaskDeadLetter}, api.TaskDeadLetter, 0},
		"a lease runs":    {api.Fenced, []api.Route{a, b}, []api.Attempt{lost}, task.Redelivery{Status: api.TaskRetryWait, Wait: time.Second}, api.TaskRetryWait, time.Second},
		"lost, no lease":  {api.Idempotent, []api.Route{a, b}, []api.Attempt{lost}, task.Redelivery{Status: api.TaskQueued}, api.TaskQueued, 0},
		"returned too often": {"", []api.Route{a, b}, []api.Attempt{{Route: &a, Outcome: api.AttemptReturned}},
			task.Redelivery{Status: api.TaskRetryWait, Wait: 9, Tally: task.Tally{Returns: 3}}, api.TaskRetryWait, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mesh.Reroute(&api.TaskSpec{Routes: c.routes, RetrySafety: c.safety}, c.history, c.next, now)
			require.Equal(t, c.status, got.Status)
			require.Equal(t, c.wait, got.Wait)
		})
	}
	spec := &api.TaskSpec{Routes: []api.Route{a, b}}
	require.Equal(t, []time.Duration{mesh.Cooldown, 2 * mesh.Cooldown, 10 * time.Minute},
		[]time.Duration{mesh.RouteWait(spec, 0), mesh.RouteWait(spec, 2), mesh.RouteWait(spec, 99)})
	require.Zero(t, mesh.RouteWait(&api.TaskSpec{Routes: []api.Route{a}}, 0), "there is no other")
	for result, want := range map[string][2]int{`{"invocation":{"input_tokens":9,"output_tokens":3}}`: {12, 0}, `[1]`: {},
		`{"invocation":{"input_tokens":9,"usd":0.000125}}`: {9, 125},
		`{"invocation":{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"usd":1e300}}`: {
			1 << 40, 1 << 40},
		`{"invocation":{"input_tokens":-1,"usd":-1}}`: {}} {
		tokens, microUSD := mesh.Taken(json.RawMessage(result))
		require.Equal(t, want, [2]int{tokens, microUSD}, result)
	}
}
