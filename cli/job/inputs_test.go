package job

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInputsHaveTheTypesOfTheSchema(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"commit":{"type":"string"},"n":{"type":["string","integer"]}}}`
	for input, want := range map[string]string{
		`commit=4711`: `{"commit":"4711"}`, `commit="4711"`: `{"commit":"4711"}`, `commit=true`: `{"commit":"true"}`,
		`commit=4f1c`: `{"commit":"4f1c"}`, `n=3`: `{"n":3}`, `id=9007199254740993`: `{"id":9007199254740993}`,
		`list=[1]`: `{"list":[1]}`, `text=a b`: `{"text":"a b"}`,
	} {
		inputs, err := inputsOf([]string{input}, json.RawMessage(schema))
		require.NoError(t, err)
		require.Equal(t, want, string(inputs), input)
	}
	inputs, err := inputsOf([]string{"commit=4711"}, nil)
	require.NoError(t, err)
	require.Equal(t, `{"commit":4711}`, string(inputs), "without a definition")
}
