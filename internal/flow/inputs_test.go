package flow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultsAreFilledIn(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","required":["env"],"properties":{
		"env":{"type":"string","default":"prod"},"rate":{"type":"number","default":1.10},
		"big":{"default":12345678901234567890},"none":{"type":"string"},
		"db":{"type":"object","properties":{"port":{"default":5432},"host":{}}},
		"all":{"type":"object","default":{"a":1},"properties":{"b":{"default":2}}},
		"list":{"items":{"properties":{"n":{"default":0}}}},
		"named":{"$ref":"#/$defs/named"}},
		"$defs":{"named":{"default":"x","allOf":[{"type":"string"}]}}}`
	for inputs, want := range map[string]string{
		"":   `{"env":"prod","rate":1.10,"big":12345678901234567890,"all":{"a":1,"b":2},"named":"x"}`,
		"{}": `{"env":"prod","rate":1.10,"big":12345678901234567890,"all":{"a":1,"b":2},"named":"x"}`,
		`{"env":"e","rate":2.50,"big":0,"all":{},"db":{"host":"h"},"list":[{},{"n":1.0},3],"named":"y"}`: `{"env":"e","rate":2.50,
			"big":0,"all":{"b":2},"db":{"host":"h","port":5432},"list":[{"n":0},{"n":1.0},3],"named":"y"}`,
		`{"env":"e","rate":1e1,"big":null,"all":{"b":0},"named":"z"}`: `{"env":"e","rate":1e1,"big":null,"all":{"b":0},"named":"z"}`,
	} {
		filled, err := CheckInputs(t.Context(), json.RawMessage(schema), json.RawMessage(inputs))
		require.NoError(t, err, inputs)
		require.JSONEq(t, want, string(filled), inputs)
		for _, number := range []string{"1.10", "12345678901234567890", "2.50", "1.0", "1e1"} {
			require.Equal(t, strings.Contains(want, number), strings.Contains(string(filled), number), number)
		}
	}
	filled, err := CheckInputs(t.Context(), json.RawMessage(`{"default":{"a":1}}`), nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(filled))
	filled, err = CheckInputs(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Empty(t, filled)

	large := `{"items":{"properties":{"x":{"default":"` + strings.Repeat("x", 1000) + `"}}}}`
	_, err = CheckInputs(t.Context(), json.RawMessage(large), json.RawMessage("[{}"+strings.Repeat(",{}", 100)+"]"))
	require.ErrorIs(t, err, errLargeDefaults)
}

func TestWordsOfTheSchemaHaveAnEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, inputs, wrong string }{
		"format":           {`{"properties":{"on":{"type":"string","format":"date"}}}`, `{"on":"tomorrow"}`, "on: 'tomorrow' is not valid date"},
		"a right format":   {`{"properties":{"on":{"format":"date"}}}`, `{"on":"2026-11-28"}`, ""},
		"another format":   {`{"properties":{"on":{"format":"pin"}}}`, `{"on":"x"}`, ""},
		"const":            {`{"properties":{"a":{"const":1}}}`, `{"a":2}`, "a: value must be 1"},
		"enum":             {`{"properties":{"a":{"enum":["x","y"]}}}`, `{"a":"z"}`, "a: value must be one of 'x', 'y'"},
		"a whole number":   {`{"properties":{"a":{"type":"integer"}}}`, `{"a":12e4}`, ""},
		"maximum of large": {`{"properties":{"a":{"maximum":9007199254740992}}}`, `{"a":9007199254740993}`, "a: maximum:"},
		"readOnly":         {`{"properties":{"a":{"readOnly":true,"deprecated":true}}}`, `{"a":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := CheckInputs(t.Context(), json.RawMessage(c.schema), json.RawMessage(c.inputs))
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
	_, _, err := Read("f.yaml", []byte(head+"inputs: {properties: {n: {type: integer, default: x}}}\nsteps: {a: {task: {type: echo}}}"))
	require.ErrorContains(t, err, "f.yaml:3:1: inputs: the default of inputs.n does not fit: got string, want integer")
}

func TestGivenInputs(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"commit":{"type":"string"},"n":{"type":["string","integer"]},
		"tag":{"enum":["1.10","2"]},"name":{"$ref":"#/$defs/name"},"rate":{"type":"number"},"short":{"type":"string","maxLength":2}},
		"$defs":{"name":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`
	for input, want := range map[string]string{
		`commit=4711`: `"4711"`, `commit="4711"`: `"4711"`, `commit=true`: `"true"`, `commit=12e4`: `"12e4"`,
		`commit=12345678901234567890`: `"12345678901234567890"`, `commit=4f1c`: `"4f1c"`, `commit=`: `""`,
		`n=3`: `3`, `n=x`: `"x"`, `tag=1.10`: `"1.10"`, `name=1.10`: `"1.10"`, `name=null`: `null`, `short=12345`: `"12345"`,
		`rate=1.10`: `1.10`, `rate=12e4`: `12e4`, `rate=x`: `"x"`,
		`id=9007199254740993`: `9007199254740993`, `version=1.10`: `1.10`, `e=12e4`: `12e4`, `zip=01234`: `"01234"`,
		`list=[1]`: `[1]`, `text=a b`: `"a b"`, `nan=NaN`: `"NaN"`,
	} {
		name, text, _ := strings.Cut(input, "=")
		inputs, err := GivenInputs(json.RawMessage(schema), map[string]string{name: text})
		require.NoError(t, err)
		require.Equal(t, `{"`+name+`":`+want+`}`, string(inputs), input)
	}
	inputs, err := GivenInputs(nil, map[string]string{"commit": "4711"})
	require.NoError(t, err)
	require.Equal(t, `{"commit":4711}`, string(inputs), "without a schema")
	_, err = GivenInputs(json.RawMessage(schema), map[string]string{"comit": "4711"})
	require.EqualError(t, err, "the job has no input comit: did you mean commit?")
	_, err = GivenInputs(nil, map[string]string{"commit": "\xff"})
	require.EqualError(t, err, "commit is not UTF-8 text: encode it, as with base64")
}
