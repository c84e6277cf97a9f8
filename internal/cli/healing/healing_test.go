package healing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

// What healing did is listed by "list" too, as other commands list theirs.
func TestListIsActions(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/healing/actions": {Status: 200, Body: `{"actions":[]}`}})
	for _, verb := range []string{"actions", "list"} {
		got := f.At(t, "healing", verb)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stdout, "There are no such healing actions.")
	}
}
