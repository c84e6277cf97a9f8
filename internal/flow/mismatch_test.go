package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMismatchesOfTypes(t *testing.T) {
	t.Parallel()
	facts, err := FactsOf([]byte(`{"s": "a", "n": 3, "l": [1], "m": {"a": 1}, "z": null, "d": 1.5, "big": 1e3}`), nil, nil)
	require.NoError(t, err)
	for source, want := range map[string]string{
		`inputs.s + inputs.n`:                           "+ does not take (text, a whole number); write string(…) around what is no text (column 10 of the expression)",
		`1 + inputs.d`:                                  "+ does not take (a whole number, a number with a fraction); write double(…) around the whole number (column 3 of the expression)",
		`inputs.d % 2`:                                  "% does not take (a number with a fraction, a whole number) (column 10 of the expression)",
		`inputs.z < inputs.m`:                           "< does not take (null, a map) (column 10 of the expression)",
		`!inputs.s`:                                     "! does not take (text) (column 1 of the expression)",
		`inputs.n ? 1 : 2`:                              "? : does not take (a whole number) (column 10 of the expression)",
		`inputs.n || inputs.s`:                          "|| does not take (a whole number, text) (column 10 of the expression)",
		`inputs.n in inputs.s`:                          "in does not take (a whole number, text) (column 10 of the expression)",
		`inputs.s.matches(inputs.n)`:                    "matches does not take (text, a whole number) (column 17 of the expression)",
		`size(inputs.big)`:                              "size does not take (a number with a fraction) (column 5 of the expression)",
		`math.greatest(inputs.s, 1)`:                    "math.greatest does not take (text, a whole number) (column 14 of the expression)",
		`inputs.l.map(x, x + "a")`:                      "+ does not take (a whole number, text); write string(…) around what is no text (column 19 of the expression)",
		`(inputs.n - inputs.s == 1 ? 1 : 2) + inputs.s`: "- does not take (a whole number, text) (column 11 of the expression)",
		`1 + "a"`:                                       "is not valid CEL: + does not take (a whole number, text); write string(…) around what is no text (column 3 of the expression)",
		`inputs.n - "a"`:                                "is not valid CEL: - does not take (a value, text) (column 10 of the expression)",
		`size(1)`:                                       "is not valid CEL: size does not take (a whole number) (column 5 of the expression)",
		`[[1]].startsWith({"a": [1]})`:                  "is not valid CEL: startsWith does not take (a list, a map) (column 17 of the expression)",
		`inputs.l["a"]`:                                 "[ ] of a list takes a whole number, and gets text",
		`inputs.l[5]`:                                   "there is no item 5 in the list; the first is 0",
		`inputs.s.map(x, x)`:                            "map, filter, all and the like take a list or a map, and get text",
		`int(inputs.s)`:                                 "int(…) does not take this text",
		`${inputs.n} == 3`:                              "is not valid CEL: unexpected '$'; an expression stands here without ${ and } (column 1 of the expression)",
		`inputs.n == ${inputs.s}`:                       "is not valid CEL: unexpected '$'; an expression stands here without ${ and } (column 13 of the expression)",
	} {
		_, err := (&Evaluator{}).value(t.Context(), source, facts)
		require.EqualError(t, err, want, source)
	}
	for _, source := range []string{`(inputs.n - inputs.s == 1) || true`, `inputs.l.exists(x, x == 1 || x + "a" == "")`} {
		value, err := (&Evaluator{}).value(t.Context(), source, facts)
		require.NoError(t, err)
		require.Equal(t, true, value, source)
	}
}
