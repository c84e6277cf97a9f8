package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

// TestClustersThatNobodyAnswersForAreNotEmpty: 0 of 0 agents would be a statement.
func TestClustersThatNobodyAnswersForAreNotEmpty(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /api/v1/agents/overview": {Status: 200, Body: `{"at":"2026-11-21T12:00:00Z","problems":[],"lanes":[],"failovers":[],
		"agents":{"online":1},"tasks":{"open":1,"dead_letter":1},"clusters":[{"name":"c","status":"unknown","replication_mode":"active_active"}]}`}})
	got := clitest.Run(t.Context(), "", "overview", "--server", f.URL)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "c        unknown  ?       active_active")
	require.Contains(t, got.Stdout, "1 agent online,")
	require.Contains(t, got.Stdout, "1 open task, 0 in review, 1 dead letter\n")
}
