package flow

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	var v Evaluator
	facts, err := FactsOf(json.RawMessage(`{"v":1.10,"e":12e4,"big":12345678901234567890,"same":12345678901234567890,
		"other":12345678901234567891,"odd":9007199254740993,"neg":-0,"huge":1e400,"half":0.5,"one":1.0,"n":3,
		"list":[1.10,2.50,3],"map":{"a":[1.10]}}`), nil, nil)
	require.NoError(t, err)
	for source, want := range map[string]string{
		"inputs.v": "1.10", "inputs.e": "12e4", "inputs.big": "12345678901234567890", "inputs.neg": "-0",
		"inputs.odd": "9007199254740993", "inputs.huge": "1e400", "inputs.list": "[1.10,2.50,3]",
		"inputs.map": `{"a":[1.10]}`, "[inputs.v, inputs.list[1]]": "[1.10,2.50]", `{"x": inputs.map.a[0]}`: `{"x":1.10}`,
		"inputs.n > 2 ? inputs.v : inputs.e": "1.10", "inputs.list.map(x, x)": "[1.10,2.50,3]",
		"inputs.list.filter(x, x > 2)": "[2.50,3]", "inputs.list + [inputs.e]": "[1.10,2.50,3,12e4]",
		"string(inputs.v)": `"1.10"`, "string(inputs.big)": `"12345678901234567890"`, "string(inputs.e)": `"12e4"`,
		"'v' + string(inputs.v)": `"v1.10"`,
		"inputs.odd + 2":         "9007199254740995", "inputs.half + 1.0": "1.5", "1.0 + inputs.half": "1.5",
		"-inputs.half": "-0.5", "inputs.half < 1": "true", "1.25 > inputs.half": "true", "inputs.e == 120000": "true",
		"120000 == inputs.e": "true", "inputs.v == 1.1": "true", "1.1 == inputs.v": "true", "inputs.v != 1.1": "false",
		"inputs.big == inputs.same": "true", "inputs.big == inputs.other": "false", "inputs.big == 5": "false",
		"inputs.big == 12345678901234567890u": "true", "1.1 in inputs.list": "true", "inputs.v in [1.1]": "true",
		"inputs.list == [1.1, 2.5, 3]": "true", "[1.1, 2.5, 3] == inputs.list": "true",
		"inputs.map == {'a': [1.1]}": "true", "{'a': [1.1]} == inputs.map": "true", "{'a': 1} == inputs.map": "false",
		"inputs.list == inputs.map": "false", "inputs.v in {'a': 1}": "false",
		"math.greatest(inputs.list)": "3", "math.greatest([inputs.v, inputs.half])": "1.1",
		"math.least(inputs.v, inputs.half)": "0.5", "math.ceil(inputs.v)": "2",
		"(inputs.n > 2 ? inputs.half : inputs.v) * 2.0": "1", "inputs.list[inputs.one]": "2.50", "int(inputs.e)": "120000",
		"double(inputs.big) > 1.0": "true", "type(inputs.v) == double": "true", "has(inputs.v)": "true",
		"inputs.list.all(x, x > 1)": "true", "inputs.list.exists_one(x, x == 1.1)": "true", "dyn(inputs.v)": "1.10",
		"size(inputs.list)": "3",
	} {
		value, err := v.value(context.Background(), source, facts)
		require.NoError(t, err, source)
		text, err := json.Marshal(value)
		require.NoError(t, err, source)
		require.Equal(t, want, string(text), source)
	}
	for source, want := range map[string]string{
		"inputs.big + 1":      "computes with a whole number that has more than 64 bits: pass it on as it is, or do it in a task",
		"inputs.big > 1":      "computes with a whole number",
		"int(inputs.big)":     "computes with a whole number",
		"inputs.odd * 999999": "overflow",
		"inputs.half / 0.0":   "gives a number that is infinite or none, which JSON cannot hold",
	} {
		_, err := v.value(context.Background(), source, facts)
		require.ErrorContains(t, err, want, source)
	}
}

// jsonTexts draws JSON with numbers of all forms.
func jsonTexts(depth int) *rapid.Generator[string] {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`)
	word := rapid.SampledFrom([]string{"null", "true", "false", `""`, `"1.10"`, `"a b"`})
	if depth == 0 {
		return rapid.OneOf(number, word)
	}
	inner := jsonTexts(depth - 1)
	list := rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(inner, 0, 4).Draw(t, "list"), ",") + "]"
	})
	object := rapid.Custom(func(t *rapid.T) string {
		var members []string
		for i, member := range rapid.SliceOfN(inner, 0, 4).Draw(t, "object") {
			members = append(members, `"`+string(rune('a'+i))+`":`+member)
		}
		return "{" + strings.Join(members, ",") + "}"
	})
	return rapid.OneOf(number, word, list, object)
}

func TestWhatIsPassedOnIsTheSame(t *testing.T) {
	t.Parallel()
	var v Evaluator
	ways := []string{"${inputs.x}", "${[inputs.x][0]}", "${true ? inputs.x : 0}", "${[1].map(i, inputs.x)[0]}"}
	rapid.Check(t, func(t *rapid.T) {
		value := jsonTexts(3).Draw(t, "value")
		inputs := json.RawMessage(`{"x":` + value + `}`)
		facts, err := FactsOf(inputs, nil, nil)
		require.NoError(t, err)
		payload, err := json.Marshal(map[string]any{"value": rapid.SampledFrom(ways).Draw(t, "way"),
			"text": "<${inputs.x}>"})
		require.NoError(t, err)
		task, err := v.Task(context.Background(), &api.TaskSpec{Type: "x", Cluster: "c", Payload: payload}, facts, nil, 0)
		require.NoError(t, err)
		var got struct {
			Value json.RawMessage
			Text  string
		}
		require.NoError(t, json.Unmarshal(task.Payload, &got))
		require.Equal(t, value, string(got.Value))
		want, err := job.Text(json.RawMessage(value))
		require.NoError(t, err)
		require.Equal(t, "<"+want+">", got.Text)

		budget := 1 << 20
		filled, ok := job.Fill(&api.TaskSpec{Type: "x", Cluster: "c", Payload: json.RawMessage(`{"value":"${inputs.x}"}`)},
			inputs, nil, &budget)
		require.True(t, ok)
		require.Equal(t, `{"value":`+value+`}`, string(filled.Payload))
	})
}

func TestTextWhereOnlyTextFits(t *testing.T) {
	t.Parallel()
	var v Evaluator
	inputs := json.RawMessage(`{"n":5,"v":1.10,"yes":true,"words":["sleep",1.50],"big":12345678901234567890,"none":null,
		"map":{"a":"<b>"}}`)
	facts, err := FactsOf(inputs, nil, nil)
	require.NoError(t, err)
	for name, c := range map[string]struct{ task, payload, want string }{
		"words":   {`"type":"exec"`, `{"command":["echo","${inputs.n}","${inputs.v}","${inputs.yes}","${inputs.map}"]}`, `{"command":["echo","5","1.10","true","{\"a\":\"<b>\"}"]}`},
		"a list":  {`"type":"exec"`, `{"command":"${inputs.words}"}`, `{"command":["sleep","1.50"]}`},
		"env":     {`"type":"exec"`, `{"command":["x"],"dir":"${inputs.none}","env":{"A":"${inputs.big}","B":"b"}}`, `{"command":["x"],"dir":null,"env":{"A":"12345678901234567890","B":"b"}}`},
		"a tool":  {`"type":"mcp-tool"`, `{"arguments":{"n":"${inputs.v}"},"server":"s","tool":"${inputs.n}"}`, `{"arguments":{"n":1.10},"server":"s","tool":"5"}`},
		"a model": {`"type":"model","routes":[{"provider":"p","model":"m"}]`, `{"messages":[{"role":"user","content":"${inputs.n}"}]}`, `{"messages":[{"content":"5","role":"user"}]}`},
		"another": {`"type":"x"`, `{"command":["${inputs.n}"]}`, `{"command":[5]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var template api.TaskSpec
			require.NoError(t, json.Unmarshal([]byte(`{"cluster":"c",`+c.task+`,"payload":`+c.payload+`}`), &template))
			task, err := v.Task(context.Background(), &template, facts, nil, 0)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(task.Payload))
			budget := 1 << 20
			filled, ok := job.Fill(&template, inputs, nil, &budget)
			require.True(t, ok)
			require.JSONEq(t, c.want, string(filled.Payload))
		})
	}
	task, err := v.Task(context.Background(), &api.TaskSpec{Type: "x", Cluster: "c", Agent: "${inputs.n}",
		ShardKey: "${inputs.v}", RequiredCapabilities: []string{"${inputs.n}"},
		Labels: map[string]string{"a": "${inputs.v}", "b": "${inputs.yes}"}}, facts, nil, 0)
	require.NoError(t, err)
	require.Equal(t, "5", task.Agent)
	require.Equal(t, "1.10", task.ShardKey)
	require.Equal(t, []string{"5"}, task.RequiredCapabilities)
	require.Equal(t, map[string]string{"a": "1.10", "b": "true"}, task.Labels)
}
