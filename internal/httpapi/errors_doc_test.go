package httpapi

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsAreDocumented holds the table in docs/API.md to the one table of problems.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/API.md")
	require.NoError(t, err)
	for code, status := range statuses {
		require.Contains(t, string(text), fmt.Sprintf("\n| `%s` | %d |", code, status), "docs/API.md, Errors")
	}
}
