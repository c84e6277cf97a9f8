package job

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestChangesOfLargeNumbers(t *testing.T) {
	t.Parallel()
	before := &api.JobDefinition{Job: "a", Inputs: json.RawMessage(`{"maximum":9007199254740993}`)}
	after := &api.JobDefinition{Job: "a", Inputs: json.RawMessage(`{"maximum":9007199254740992}`)}
	require.Equal(t, []string{"~ inputs.maximum"}, Changes(before, after))
}
