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

func TestValuesThatNeedQuotes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`    cron: */5 * * * *`:      `f.yaml:3:11: put it in quotes: cron: "*/5 * * * *"`,
		`    cron: @hourly # often`:  `f.yaml:3:11: put it in quotes: cron: "@hourly"`,
		`    - * * * * *`:            `f.yaml:3:7: put it in quotes: "* * * * *"`,
		`    - cron: *x`:             `f.yaml:3:13: put it in quotes: cron: "*x"`,
		"    if: `a\"`":              "f.yaml:3:9: put it in quotes: if: '`a\"`'",
		`    if: %x`:                 `f.yaml:3:9: put it in quotes: if: "%x"`,
		`    if: "it's" == inputs.a`: `f.yaml:3:9: put it in quotes: if: '"it''s" == inputs.a'`,
		`    if: 'a' == inputs.a`:    `f.yaml:3:9: put it in quotes: if: "'a' == inputs.a"`,
		`    if: a ? b : c`:          `f.yaml:3:9: put it in quotes: if: "a ? b : c"`,
		`    text: see: this`:        `f.yaml:3:11: put it in quotes: text: "see: this"`,
		`    text: {{ a }} b`:        `f.yaml:3:11: put it in quotes: text: "{{ a }} b"`,
		`    text: {{ a }}`:          `f.yaml:3:12: one.two.text: has a key that is no text: put a text that begins with {{ in quotes`,
		`    list: [a, @b, *c]`:      `f.yaml:3:15: put it in quotes: list: [a, "@b", "*c"]`,
		`    map: {a: *.txt}`:        `f.yaml:3:14: put it in quotes: map: {a: "*.txt"}`,
		`    a: &b`:                  `f.yaml:3:8: one.two.a: begins with &, which is YAML's mark of an anchor: put it in quotes`,
		`    a: !b c`:                `f.yaml:3:8: one.two.a: begins with !, which is YAML's mark of a type: put it in quotes`,
		`    if: >= 3`:               `f.yaml:3:9: put it in quotes: if: ">= 3"`,
		// These are other mistakes.
		"    a: 1\n   b: 2":    "f.yaml:4:4: does not fit what stands above it: indent it like the other lines of its section",
		"    - a\n   - b: 2\n": "f.yaml:4:4: does not fit what stands above it: indent it like the other lines of its section",
		`    text: "a`:         "f.yaml:3:1: is not valid YAML: found unexpected end of stream",
		`    list: [a`:         "f.yaml:2:1: is not valid YAML: did not find expected ',' or ']'",
		"\ta: 1":               "f.yaml:3:1: is not valid YAML: found character that cannot start any token; lines are indented with blanks, not with tabs",
	} {
		var value struct {
			One map[string]any `json:"one"`
			Two any            `json:"two"`
		}
		_, err := Read("f.yaml", []byte("one:\n  two:\n"+line+"\n  # a: *b\n\ntwo: |\n  a: b: c\n  - @d\n"), &value, nil)
		require.EqualError(t, err, want, line)
	}
}
