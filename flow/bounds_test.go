package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/job"
)

// Each of these takes the memory or the processor of the whole control plane where nothing bounds it.
func TestExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"many": [`+strings.Repeat("1,", 99)+`1]}`), nil, nil)
	require.NoError(t, err)
	ten := "'aaaaaaaaaa'"
	for name, c := range map[string]struct{ expression, want string }{
		"replace": {ten + strings.Repeat(".replace('a',"+ten+")", 9), "makes a text of more than 256 KiB"},
		"join":    {"lists.range(10000).map(i, '" + strings.Repeat("x", 100) + "').join('')", "makes a text of more than"},
		"range":   {"lists.range(1000000000)", "makes a list of more than 10000 elements"},
		"trim, often": {"lists.range(9999).map(i, (" + ten + strings.Repeat(".replace('a',"+ten+")", 4) + ").trim())",
			"takes more work than an expression may"},
		"one value many times": {"inputs.many.map(x, inputs.many.map(y, inputs.many))", "gives more than a task may hold"},
		"nesting":              {strings.Repeat("[", 200) + strings.Repeat("]", 200), "recursion limit"},
		"length":               {strings.Repeat("1+", 3000) + "1", "is not valid CEL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v flow.Evaluator
			_, err := v.Elements(t.Context(), &job.ForEach{List: c.expression}, facts)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestExpressionsOfARunAreBoundedTogether(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(nil, nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	const costly = "lists.range(300).all(a, lists.range(300).all(b, a + b >= 0))"
	evaluate := func(ctx context.Context) (err error) {
		for range 100 {
			if _, err = v.Bool(ctx, costly, facts); err != nil {
				return err
			}
		}
		return nil
	}
	require.ErrorContains(t, evaluate(flow.WithLimit(t.Context())), "take more work than expressions may")
}

func TestAPayloadIsNoDeeperThanAgentsRead(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"deep": `+strings.Repeat("[", 250)+strings.Repeat("]", 250)+`}`), nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	_, err = v.Task(t.Context(), &fleet.TaskSpec{Type: "x", Cluster: "c",
		Payload: json.RawMessage(`"${[[[[[[[[inputs.deep]]]]]]]]}"`)}, facts, nil, 0)
	require.ErrorContains(t, err, "task.payload")
}

func TestUsualExpressionsAreNot(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"text": " Red,green,BLUE ", "n": 4}`), nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	for expression, want := range map[string]string{
		"inputs.text.trim().split(',')":                                     `["Red","green","BLUE"]`,
		"inputs.text.lowerAscii().trim().split(',').map(x, x.upperAscii())": `["RED","GREEN","BLUE"]`,
		"[inputs.text.replace(',', ';').trim()]":                            `["Red;green;BLUE"]`,
		"[['a', 'b'].join('-'), 'häuser'.substring(1, 3)]":                  `["a-b","äu"]`,
		"['häuser'.indexOf('u'), 'a'.indexOf('b')]":                         `[2,-1]`,
		"lists.range(inputs.n)":                                             `[0,1,2,3]`,
		"[" + strings.Repeat("1 + ", 24) + "1]":                             `[25]`,
	} {
		list, err := v.Elements(t.Context(), &job.ForEach{List: expression}, facts)
		require.NoError(t, err, expression)
		text, err := json.Marshal(list)
		require.NoError(t, err)
		require.Equal(t, want, string(text), expression)
	}
}

func TestDefinitionsAreBounded(t *testing.T) {
	t.Parallel()
	doubling := map[string]any{}
	for i := range 30 {
		next := map[string]string{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}
		doubling[fmt.Sprintf("d%d", i)] = map[string]any{"allOf": []any{next, next}}
	}
	doubling["d30"] = map[string]any{"type": "object"}
	schema, err := json.Marshal(map[string]any{"$defs": doubling, "$ref": "#/$defs/d0"})
	require.NoError(t, err)
	const steps = "\nsteps: {a: {task: {type: x, payload: %s}}}\n"
	deep := "1"
	for range 30 {
		deep = "{" + strings.Repeat("k", 900) + ": " + deep + "}"
	}
	for name, c := range map[string]struct{ text, want string }{
		"a schema that doubles": {fmt.Sprintf("job: j\ncluster: c\ninputs: %s"+steps, schema, "1"),
			"has more than 1000 parts with its references written out"},
		"a schema in a circle": {fmt.Sprintf("job: j\ncluster: c\ninputs: {$defs: {a: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}"+steps, "1"),
			"refers to itself"},
		"a long key": {fmt.Sprintf("job: j\ncluster: c"+steps, "{? "+strings.Repeat("k", 1100)+" : 1}"), "has a key of more than 1000 bytes"},
		"expressions": {fmt.Sprintf("job: j\ncluster: c"+steps, "["+strings.Repeat("'${["+strings.Repeat("1,", 900)+"1]}',", 40)+"1]"),
			"and the expressions before it have more than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := flow.Read("job.yaml", []byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, _, err = flow.Read("job.yaml", fmt.Appendf(nil, "job: j\ncluster: c"+steps, "{list: ["+strings.Repeat(deep+",", 3)+"1]}"))
	require.NoError(t, err, "deep names of fields cost nothing")
}
