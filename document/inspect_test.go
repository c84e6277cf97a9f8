package document

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each key that is not known is compared with all that are.
func TestDocumentsAreUTF8(t *testing.T) {
	t.Parallel()
	var value struct {
		Name string `json:"name"`
	}
	_, err := Read("f.yaml", []byte("\ufeffname: ö\r\n"), &value, nil)
	require.NoError(t, err)
	require.Equal(t, "ö", value.Name)
	for text, want := range map[string]string{
		"name:\n  caf\xe9":   "f.yaml:2:1: is not UTF-8: write it as UTF-8",
		"\xff\xfen\x00a\x00": "f.yaml: is UTF-16: save it as UTF-8",
	} {
		_, err := Read("f.yaml", []byte(text), &value, nil)
		require.EqualError(t, err, want)
	}
}

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
