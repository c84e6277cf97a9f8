package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Definitions are large, and an event of another type has those of other jobs.
func TestWhatEventsStartIsNotKeptForLong(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(nil, nil)
	now := time.Now()
	d.keep(jobsOn{"acme", "a"}, triggered{until: now.Add(-time.Second)})
	d.keep(jobsOn{"acme", "b"}, triggered{until: now.Add(time.Hour)})
	d.keep(jobsOn{"beta", "a"}, triggered{until: now.Add(time.Hour)})
	require.Len(t, d.jobs, 2)
	_, fresh := d.known(jobsOn{"acme", "b"})
	require.True(t, fresh)
}
