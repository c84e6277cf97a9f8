package contract

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"mainstay.dev/sdk/api"
)

func TestPayloadsKeepTheirLength(t *testing.T) {
	t.Parallel()
	spec := api.TaskSpec{Type: "a", Payload: json.RawMessage(`{"html":"<p>&</p>"}`)}
	ours, err := Payloads.ToPayload(spec)
	require.NoError(t, err)
	require.Contains(t, string(ours.GetData()), `{"html":"<p>&</p>"}`)
	theirs, err := converter.GetDefaultDataConverter().ToPayload(spec)
	require.NoError(t, err)
	require.Equal(t, theirs.GetMetadata(), ours.GetMetadata())
	require.JSONEq(t, string(theirs.GetData()), string(ours.GetData()))
	for _, reader := range []converter.DataConverter{Payloads, converter.GetDefaultDataConverter()} {
		var read api.TaskSpec
		require.NoError(t, reader.FromPayload(ours, &read))
		require.Equal(t, spec, read)
	}
	_, err = Payloads.ToPayload(func() {})
	require.ErrorIs(t, err, converter.ErrUnableToEncode)
}
