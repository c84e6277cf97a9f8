package job

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestDigestsOfTheSameDispatch(t *testing.T) {
	t.Parallel()
	of := func(inputs string) string { return digestOf(&api.DispatchRequest{Inputs: json.RawMessage(inputs)}) }
	require.Equal(t, of(`{"a":1,"b":"x"}`), of(` {"b": "\u0078", "a":1}`))
	require.Equal(t, of(``), of(`null`))
	for _, other := range []string{`{"a":1.0,"b":"x"}`, `{"a":1e0,"b":"x"}`, `{"a":1}`, ``} {
		require.NotEqual(t, of(`{"a":1,"b":"x"}`), of(other), other)
	}
}
