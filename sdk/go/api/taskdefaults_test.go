package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTaskDefaults(t *testing.T) {
	t.Parallel()
	d := TaskDefaults{MaxAttempts: 5, MaxTransfers: 7, ExpiresIn: Duration(time.Minute), RetrySafety: Unmarked}
	var left TaskSpec
	d.Apply(&left)
	require.Equal(t, TaskSpec{Retry: RetryPolicy{MaxAttempts: 5, MaxTransfers: 7}, ExpiresIn: Duration(time.Minute),
		RetrySafety: Unmarked}, left)
	own := TaskSpec{Retry: RetryPolicy{MaxAttempts: 1, MaxTransfers: 2}, ExpiresIn: Duration(time.Hour),
		RetrySafety: Fenced}
	kept := own
	d.Apply(&kept)
	require.Equal(t, own, kept, "what a task says counts")
	require.NoError(t, TaskDefaults{}.WithDefaults().Validate())
	for _, bad := range []TaskDefaults{{MaxAttempts: 101}, {MaxTransfers: -1},
		{ExpiresIn: Duration(time.Millisecond)}} {
		require.Error(t, bad.WithDefaults().Validate())
	}
}
