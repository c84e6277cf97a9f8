package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWholeNumberMayHaveAFraction(t *testing.T) {
	t.Parallel()
	type counts struct {
		N     int             `json:"n"`
		Inner struct{ M int } `json:"inner"`
		List  []int           `json:"list"`
		Raw   json.RawMessage `json:"raw"`
	}
	var c counts
	require.NoError(t, jsonFormat.Unmarshal([]byte(`{"raw":2.0,"n":2.0,"inner":{"M":2e0},"list":[20e-1, 3.0,-1.0]}`), &c))
	require.Equal(t, 2, c.N)
	require.Equal(t, 2, c.Inner.M)
	require.Equal(t, []int{2, 3, -1}, c.List)
	require.Equal(t, "2.0", string(c.Raw), "kept as it was sent")
	for _, number := range []string{"2.5", "1e30", "1e400", `"2.0"`} {
		err := jsonFormat.Unmarshal([]byte(`{"inner":{"M":`+number+`}}`), &c)
		require.ErrorContains(t, err, "body.inner.M has a value of the wrong type, or a number that is too large")
	}
}
