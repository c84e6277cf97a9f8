package document

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each key that is not known is compared with all that are.
func TestWhatIsWrongInADocumentIsBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&text, "k%d: 1\n", n)
	}
	hints := 0
	_, err := Read("f.yaml", []byte(text.String()), &struct {
		Name string `json:"name"`
	}{}, func(string, string) string { hints++; return "" })
	var wrong *Error
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.Problems, maxProblems)
	require.Equal(t, maxProblems, hints)
}
