package flow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheOutputOfASkippedStep(t *testing.T) {
	t.Parallel()
	var v Evaluator
	facts, err := FactsOf(nil, json.RawMessage(`{"a":{"status":"skipped","output":null},
		"b":{"status":"failed","output":null},"c":{"status":"pending","output":null},
		"d":{"status":"completed","output":{"x":1}}}`), nil)
	require.NoError(t, err)
	for source, want := range map[string]string{
		"steps.a.output.x":                    "step a was skipped and has no output",
		"steps['a'].output['x'].y":            "step a was skipped and has no output",
		"steps.d.output.x + steps.a.output.x": "step a was skipped and has no output",
		"steps.b.output.x":                    "step b failed and has no output",
		"steps.c.output.x":                    "step c has not ended and has no output",
		"steps.d.output.y":                    "there is no y in what it reads",
		"steps.a.missing":                     "there is no missing in what it reads",
	} {
		_, err := v.value(t.Context(), source, facts)
		require.EqualError(t, err, want, source)
	}
	for _, source := range []string{"has(steps.a.output.x)", "steps.a.output != null"} {
		yes, err := v.Bool(t.Context(), source, facts)
		require.NoError(t, err, source)
		require.False(t, yes, source)
	}
}

func TestWarningsOfSkippedSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		b    string
		warn bool
	}{
		"payload":           {`task: {type: echo, payload: {x: "${steps.a.output.x}"}}`, true},
		"message":           {`approve: {message: "take ${steps.a.output.x}?"}`, true},
		"for_each":          {`task: {type: echo, payload: "${item}"}, for_each: steps.a.output.list`, true},
		"output":            {`task: {type: echo}, output: {x: "steps.a.output.x + result"}`, true},
		"a condition":       {`task: {type: echo, payload: "${steps.a.output.x}"}, if: steps.a.status == "completed"`, false},
		"the same one":      {`task: {type: echo, payload: "${steps.a.output.x}"}, if: inputs.yes`, false},
		"has":               {`task: {type: echo, payload: "${has(steps.a.output.x) ? steps.a.output.x : 1}"}`, false},
		"null":              {`task: {type: echo, payload: "${steps.a.output == null ? 0 : steps.a.output.x}"}`, false},
		"the status":        {`task: {type: echo, payload: "${steps.a.status == 'skipped' ? 0 : steps.a.output.x}"}`, false},
		"another step":      {`task: {type: echo, payload: "${steps.c.output.x}"}`, false},
		"the status itself": {`task: {type: echo, payload: "${steps.a.status}"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, plan, err := Read("f.yaml", []byte(head+"safety: idempotent\nsteps:\n  a: {task: {type: echo}, if: inputs.yes}\n"+
				"  c: {task: {type: echo}}\n  b: {after: [a, c], "+c.b+"}"))
			require.NoError(t, err)
			if warnings := Warnings(d, plan); c.warn {
				require.Len(t, warnings, 1)
				require.Contains(t, warnings[0], "step b reads the output of a, which its if may skip")
			} else {
				require.Empty(t, warnings)
			}
		})
	}
}
