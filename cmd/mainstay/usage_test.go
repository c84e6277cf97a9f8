package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

// TestResultOfAReviewedCommand: a person who completes a task may give it any result, also one of a command.
func TestResultOfAReviewedCommand(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"ok":true}`: "\nResult:\n{\n  \"ok\": true\n}\n",
		`{}`:          "\nResult:\n{}\n",
		`{"exit_code":0,"stdout":"hello\n","stderr":""}`: "\nExit code: 0\nOutput:\nhello\n",
	} {
		f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/tasks/t-1": {200, `{"id":"t-1","type":"exec","cluster":"c","status":"completed","result":` + result + `}`}})
		got := f.at(t, "task", "get", "t-1")
		require.Equal(t, app.ExitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, want)
	}
}

// TestDryRunsOfDrainsAreNoPlans: a list must not look as if an agent were about to be drained.
func TestDryRunsOfDrainsAreNoPlans(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/drains": {200, `{"drains":[{"id":"c:d-1","cluster":"c","status":"planned","agents":[{"agent_id":"a","status":"planned"}]},
		{"id":"c:d-2","cluster":"c","status":"running","agents":[{"agent_id":"a","status":"waiting"}]}]}`},
		"GET /api/v1/agents/drains/c:d-2": {200, `{"id":"c:d-2","cluster":"c","status":"running","timeout":"5m0s","agents":[{"agent_id":"a","status":"waiting"}]}`}})
	got := f.at(t, "drain", "list")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "c:d-1  dry run")
	require.NotContains(t, got.stdout, "planned")
	require.Contains(t, f.at(t, "drain", "get", "c:d-2").stdout, "See how far it is with: mainstay drain get c:d-2")
}

// TestClustersThatNobodyAnswersForAreNotEmpty: 0 of 0 agents would be a statement.
func TestClustersThatNobodyAnswersForAreNotEmpty(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"GET /api/v1/agents/overview": {200, `{"at":"2026-11-21T12:00:00Z","problems":[],"lanes":[],"failovers":[],
		"agents":{"online":1},"tasks":{"open":1,"dead_letter":1},"clusters":[{"name":"c","status":"unknown","replication_mode":"active_active"}]}`}})
	got := run(t.Context(), "", "overview", "--server", f.URL)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "c        unknown  ?       active_active")
	require.Contains(t, got.stdout, "1 agent online,")
	require.Contains(t, got.stdout, "1 open task, 0 in review, 1 dead letter\n")
}
