package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/sdk/api"
)

// Each of these takes the memory or the processor of the whole control plane where nothing bounds it.
func TestExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"text": "`+strings.Repeat("x", 1000)+`", "long": "`+
		strings.Repeat("a", 128<<10)+`", "many": [`+
		strings.Repeat("1,", 99)+`1]}`), nil, nil)
	require.NoError(t, err)
	ten, shared := "'aaaaaaaaaa'", "[[1]]"+strings.Repeat(".map(a, [a, a, a, a, a])", 8)
	for name, c := range map[string]struct{ expression, want string }{
		"replace": {ten + strings.Repeat(".replace('a',"+ten+")", 9), "makes a text of more than 256 KiB"},
		"join":    {"lists.range(10000).map(i, '" + strings.Repeat("x", 100) + "').join('')", "makes a text of more than"},
		"range":   {"lists.range(1000000000)", "makes a list of more than 10000 elements"},
		"trim, often": {"lists.range(9999).map(i, (" + ten + strings.Repeat(".replace('a',"+ten+")", 4) + ").trim())",
			"takes more work than an expression may"},
		"one value many times": {"inputs.many.map(x, inputs.many.map(y, inputs.many))", "gives more than a task may hold"},
		"nesting":              {strings.Repeat("[", 200) + strings.Repeat("]", 200), "recursion limit"},
		"length":               {strings.Repeat("1+", 3000) + "1", "is not valid CEL"},
		"a large pattern":      {`[1].filter(x, 'a'.matches('\\pL{1000}\\pL{1000}'))`, "names too many classes of characters"},
		"a long pattern":       {`[1].filter(x, 'a'.matches('` + strings.Repeat("a", 1001) + `'))`, "more than 1000 characters"},
		"patterns, often":      {`lists.range(9999).filter(x, 'a'.matches('\\pL{9}' + string(x)))`, "takes more work"},
		"a large pattern and text": {"[1].filter(x, inputs.long.matches('(.*a.*){90}b'))",
			"matches a regular expression of 632 parts with a text of 131072 bytes"},
		"a list twice, often": {"[[1]]" + strings.Repeat(".map(a, a + a)", 21) + "[0]", "takes more work"},
		"equal, of shared lists": {"[1].filter(x, " + shared + " == " + shared + ")",
			"compares more than 200000 values"},
		"the greatest, often": {"lists.range(9999).exists(i, math.greatest(lists.range(9999)) == i - 1)", "takes more work"},
		"conversions, often": {"lists.range(9999).map(i, size(bytes('" + strings.Repeat("x", 2000) + "')))",
			"takes more work"},
		"texts of inputs, twice": {"[inputs.text]" + strings.Repeat(".map(a, a + a)", 9), "takes more work"},
		"lists of inputs, twice": {"[inputs.many]" + strings.Repeat(".map(a, a + a)", 15) + ".map(a, size(a))",
			"takes more work"},
		"time zones, often": {"lists.range(2000).map(i, timestamp('2026-11-22T03:00:00Z').getHours('Europe/Berlin'))",
			"takes more work"},
		"in shared lists": {"[1].filter(x, dyn(x) in " + shared + ")", "compares more than 200000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v flow.Evaluator
			_, err := v.Elements(t.Context(), &api.ForEach{List: c.expression}, facts)
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
	require.ErrorContains(t, evaluate(flow.WithLimit(t.Context())), "more work than")
}

// Empty maps take memory too, though they have no text.
func TestManyEmptyValuesAreBounded(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(nil, nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	one := `"${[[{}]]` + strings.Repeat(".map(a, a + a)", 16) + `[0]}"`
	_, err = v.Task(flow.WithLimit(t.Context()), &api.TaskSpec{Type: "x", Cluster: "c",
		Payload: json.RawMessage("[" + strings.Repeat(one+",", 9) + one + "]")}, facts, nil, 0)
	require.ErrorContains(t, err, "give more than a run may begin with")
}

// A schema may ask that texts are patterns: then each is compiled while a value is checked.
func TestPatternsAsValuesAreBounded(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"$schema": "http://json-schema.org/draft-07/schema#", "properties":
		{"v": {"items": {"format": "regex"}}}}`)
	values := func(n int) json.RawMessage {
		return json.RawMessage(`{"v": [` + strings.TrimSuffix(strings.Repeat(`"\\pL{9}",`, n), ",") + `]}`)
	}
	require.NoError(t, checkInputs(t.Context(), schema, values(5)))
	require.Error(t, checkInputs(t.Context(), schema, values(1000)))
	require.ErrorContains(t, checkInputs(t.Context(), schema, json.RawMessage(`{"v": [1e2000000]}`)), "too large")
}

func TestOneLargeValueIsNotGivenThousandsOfTimes(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"big": "`+strings.Repeat("x", 60<<10)+`"}`), nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	for _, many := range []string{`"` + strings.Repeat("${inputs.big}", 1000) + `"`,
		"[" + strings.Repeat(`"${inputs.big}",`, 1000) + "1]"} {
		_, err = v.Task(flow.WithLimit(t.Context()), &api.TaskSpec{Type: "x", Cluster: "c",
			Payload: json.RawMessage(many)}, facts, nil, 0)
		require.ErrorContains(t, err, "give more than a run may begin with")
	}
}

func TestAPayloadIsNoDeeperThanAgentsRead(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"deep": `+strings.Repeat("[", 250)+strings.Repeat("]", 250)+`}`), nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	_, err = v.Task(t.Context(), &api.TaskSpec{Type: "x", Cluster: "c",
		Payload: json.RawMessage(`"${[[[[[[[[inputs.deep]]]]]]]]}"`)}, facts, nil, 0)
	require.ErrorContains(t, err, "task.payload")
}

func TestUsualExpressionsAreNot(t *testing.T) {
	t.Parallel()
	facts, err := flow.FactsOf(json.RawMessage(`{"text": " Red,green,BLUE ", "n": 4}`), nil, nil)
	require.NoError(t, err)
	var v flow.Evaluator
	for expression, want := range map[string]string{
		"inputs.text.trim().split(',')":                                                    `["Red","green","BLUE"]`,
		"inputs.text.lowerAscii().trim().split(',').map(x, x.upperAscii())":                `["RED","GREEN","BLUE"]`,
		"[inputs.text.replace(',', ';').trim()]":                                           `["Red;green;BLUE"]`,
		"[['a', 'b'].join('-'), 'häuser'.substring(1, 3)]":                                 `["a-b","äu"]`,
		"['häuser'.indexOf('u'), 'a'.indexOf('b')]":                                        `[2,-1]`,
		"lists.range(inputs.n)":                                                            `[0,1,2,3]`,
		"['ab1', 'a'].filter(x, x.matches('^[a-z]+[0-9]$'))":                               `["ab1"]`,
		"lists.range(5).filter(x, x in [1, 2] || [x] == [4] || {'a': x} != {'a': x})":      `[1,2,4]`,
		"lists.range(2000).filter(x, string(x).matches('^[0-9]{4}$')).filter(x, x < 1001)": `[1000]`,
		"[" + strings.Repeat("1 + ", 24) + "1]":                                            `[25]`,
	} {
		list, err := v.Elements(t.Context(), &api.ForEach{List: expression}, facts)
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
		"a reference with an escaped name": {"job: j\ncluster: c\ninputs: {$ref: '#/$defs/a~1b', $defs: {a~1b: {}, a/b: {}}}" +
			fmt.Sprintf(steps, "1"), "is not like #/$defs/name"},
		"a reference with an encoded name": {"job: j\ncluster: c\ninputs: {$ref: '#/$defs/%61', $defs: {'%61': {}, a: {}}}" +
			fmt.Sprintf(steps, "1"), "is not like #/$defs/name"},
		"a schema whose references may name something else": {"job: j\ncluster: c\ninputs: {$schema: " +
			"'http://json-schema.org/draft-04/schema#'}" + fmt.Sprintf(steps, "1"), "not supported"},
		"a pattern in a schema": {fmt.Sprintf("job: j\ncluster: c\ninputs: {pattern: '(\\pL{100}){9}'}"+steps, "1"),
			"names too many classes of characters"},
		"patterns in a schema": {fmt.Sprintf("job: j\ncluster: c\ninputs: {anyOf: [%s{}]}"+steps,
			strings.Repeat("{pattern: 'a{900}'},", 20), "1"), "in all"},
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

// Each value that fits none of many schemas makes as many errors, and each pattern reads all of a text.
func TestWhatIsCheckedAgainstASchemaIsBounded(t *testing.T) {
	t.Parallel()
	constants := make([]string, 300)
	for i := range constants {
		constants[i] = fmt.Sprintf(`{"const": %d}`, i)
	}
	any := `{"items": {"anyOf": [` + strings.Join(constants, ",") + `]}}`
	numbers := "[" + strings.Repeat("-1,", 9_999) + "-1]"
	require.ErrorContains(t, checkInputs(t.Context(), json.RawMessage(any), json.RawMessage(numbers)), "too many values")
	var v flow.Evaluator
	wrong := v.Check(t.Context(), &api.StepCheck{Schema: json.RawMessage(any)}, flow.Facts{}, json.RawMessage(numbers))
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "too many values")
	slow := json.RawMessage(`{"items": {"pattern": "(?:a?){450}b"}}`)
	texts := json.RawMessage("[" + strings.Repeat(`"`+strings.Repeat("a", 1000)+`b",`, 150) + `"b"]`)
	require.ErrorContains(t, checkInputs(t.Context(), slow, texts), "does not match pattern")
	require.NoError(t, checkInputs(t.Context(), slow, json.RawMessage(`["aab"]`)))
	require.NoError(t, checkInputs(t.Context(), json.RawMessage(any), json.RawMessage(`[1, 299]`)))
}

// Each mistake in a deep value has the whole way to it.
func TestDeepValuesHaveFewerMistakes(t *testing.T) {
	t.Parallel()
	const levels = 60
	schema := strings.Repeat(`{"items": `, levels) + `{"anyOf": [` + strings.Repeat("false,", 99) + `false]}` +
		strings.Repeat("}", levels)
	values := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("1,", n-1) + "1" + strings.Repeat("]", levels))
	}
	require.ErrorContains(t, checkInputs(t.Context(), json.RawMessage(schema), values(1500)), "too many values")
	require.ErrorContains(t, checkInputs(t.Context(), json.RawMessage(schema), values(10)), "false schema")
}

// A mistake may repeat what the schema asks for.
func TestWhatIsToldOfMistakesIsBounded(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"items": {"const": "` + strings.Repeat("ä", 50_000) + `"}}`)
	var v flow.Evaluator
	wrong := v.Check(t.Context(), &api.StepCheck{Schema: schema}, flow.Facts{},
		json.RawMessage("["+strings.Repeat("1,", 99)+"1]"))
	require.Len(t, wrong, 10)
	require.Less(t, len(strings.Join(wrong, "")), 20_000)
	require.Contains(t, wrong[0], "value must be 'ää")
}

// Nor does what is wrong repeat the names in a value, which are as long as it is: a run keeps it.
func TestWhatIsToldOfLongNamesIsBounded(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("ä", 50_000)
	var v flow.Evaluator
	_, err := v.Bool(t.Context(), "inputs.m[inputs.k] == 1",
		flow.Facts{"inputs": map[string]any{"m": map[string]any{}, "k": name}})
	require.ErrorContains(t, err, "there is no ää")
	require.Less(t, len(err.Error()), 2000)
	wrong := v.Check(t.Context(), &api.StepCheck{Schema: json.RawMessage(`{"additionalProperties": {"type": "object"}}`)},
		flow.Facts{}, json.RawMessage(`{"`+name+`": 1}`))
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "want object")
	require.Less(t, len(wrong[0]), 3000)
}

// A time is one that JSON can hold.
func TestTimesAreKeptInUTC(t *testing.T) {
	t.Parallel()
	var v flow.Evaluator
	at, err := v.Time(t.Context(), "'2026-11-26T03:00:00+24:00'", nil)
	require.NoError(t, err)
	text, err := at.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, `"2026-11-25T03:00:00Z"`, string(text))
	_, err = v.Time(t.Context(), "'0000-01-01T00:00:00+10:00'", nil)
	require.ErrorContains(t, err, "must be of the years 0 to 9999")
}

// What a task's template has beside its expressions is there for each element.
func TestALargeTemplateIsNotFilledThousandsOfTimes(t *testing.T) {
	t.Parallel()
	var v flow.Evaluator
	ctx, spec := flow.WithLimit(t.Context()), &api.TaskSpec{Type: "x", Cluster: "c",
		Payload: json.RawMessage(`{"fixed": "` + strings.Repeat("x", 200<<10) + `", "n": "${index}"}`)}
	fill := func() (err error) {
		for n := range 200 {
			if _, err = v.Task(ctx, spec, flow.Facts{}, nil, n); err != nil {
				return err
			}
		}
		return nil
	}
	require.ErrorContains(t, fill(), "more than a run may begin with")
}

// The checks of all that one event or one evaluation starts count together.
func TestChecksAreBoundedTogether(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"items": {"anyOf": [` + strings.Repeat("false,", 99) + `true]}}`)
	values := json.RawMessage("[" + strings.Repeat("1,", 4999) + "1]")
	ctx := flow.WithLimit(t.Context())
	for range 3 {
		require.NoError(t, checkInputs(ctx, schema, values))
	}
	require.Greater(t, flow.Spent(ctx), 5000)
	require.ErrorContains(t, checkInputs(ctx, schema, values), "take more work than expressions may")
}

func checkInputs(ctx context.Context, schema, inputs json.RawMessage) error {
	_, err := flow.CheckInputs(ctx, schema, inputs)
	return err
}
