package job

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangesOfLargeNumbers(t *testing.T) {
	t.Parallel()
	before := &Definition{Job: "a", Inputs: json.RawMessage(`{"maximum":9007199254740993}`)}
	after := &Definition{Job: "a", Inputs: json.RawMessage(`{"maximum":9007199254740992}`)}
	require.Equal(t, []string{"~ inputs.maximum"}, Changes(before, after))
}
