package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidateTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec  TaskSpec
		wants string // empty: valid
	}{
		"priority":         {TaskSpec{Priority: PriorityBackground}, ""},
		"no such priority": {TaskSpec{Priority: 6}, "priority must be"},
		"error types": {TaskSpec{Retry: RetryPolicy{NonRetryable: []string{"bad_input", "de.acme/Fehler 7"}}},
			""},
		"blank error type": {TaskSpec{Retry: RetryPolicy{NonRetryable: []string{" x"}}}, "retry.non_retryable"},
		"long error type": {TaskSpec{Retry: RetryPolicy{NonRetryable: []string{strings.Repeat("x", 129)}}},
			"retry.non_retryable"},
		"too many error types": {TaskSpec{Retry: RetryPolicy{NonRetryable: make([]string, 33)}}, "at most 32"},
		"intervals": {TaskSpec{Retry: RetryPolicy{InitialInterval: Duration(10 * time.Minute),
			MaxInterval: Duration(time.Hour)}}, ""},
		"only a short bound": {TaskSpec{Retry: RetryPolicy{MaxInterval: Duration(time.Second)}}, ""},
		"crossed intervals": {TaskSpec{Retry: RetryPolicy{InitialInterval: Duration(10 * time.Minute)}},
			"retry.initial_interval must not be longer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Type, c.spec.Cluster = "x", "default"
			err := c.spec.Validate()
			if c.wants == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wants)
		})
	}
}

func TestValidateStartAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for at, valid := range map[time.Time]bool{
		{}: true, now.Add(-1000 * time.Hour): true, now.Add(time.Second): true, now.AddDate(1, 0, 0): true,
		now.AddDate(1, 0, 0).Add(time.Second): false, time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*3600)): false,
	} {
		require.Equal(t, valid, ValidateStartAt(at, now) == nil, at)
	}
}
