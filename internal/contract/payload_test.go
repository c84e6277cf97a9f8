package contract

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/job"
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

// A run that failed leaves its ledger in the details of its failure, and a cancelled one in those of the cancellation.
func TestFailuresKeepLongDetails(t *testing.T) {
	t.Parallel()
	ledger := job.Ledger{Job: "large", Steps: []api.StepEntry{{Step: "a"}}}
	ledger.Steps[0].Output = json.RawMessage(`"` + strings.Repeat("large ", 600<<10) + `"`)
	for _, left := range []error{
		temporal.NewApplicationErrorWithOptions("failed", "failed", temporal.ApplicationErrorOptions{Details: []any{ledger}}),
		temporal.NewCanceledError(ledger),
	} {
		failure := Failures.ErrorToFailure(left)
		require.Less(t, proto.Size(failure), 100<<10)
		var read job.Ledger
		var failed *temporal.ApplicationError
		var cancelled *temporal.CanceledError
		switch err := Failures.FailureToError(failure); {
		case errors.As(err, &failed):
			require.NoError(t, failed.Details(&read))
		case errors.As(err, &cancelled):
			require.NoError(t, cancelled.Details(&read))
		}
		require.Equal(t, ledger, read)
	}
}
