package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// What is dropped for want of a share is missing, and what was told before is not told again.
func TestWhatHasNoRoomInALogIsMissing(t *testing.T) {
	t.Parallel()
	var log cluster.EventLog
	at := time.Date(2026, time.November, 23, 5, 0, 0, 0, time.UTC)
	for range 50 {
		log.Add(cluster.Event{Type: api.EventHealing, Time: at}, cluster.MaxEventsKept)
	}
	for range 100 {
		log.Add(cluster.Event{Type: api.EventQuarantined, Time: at.Add(time.Minute)}, cluster.MaxEventsKept)
	}
	events, missing := log.After(50)
	require.Len(t, events, 64) // its share
	require.EqualValues(t, 36, missing)
	for _, e := range events {
		require.Greater(t, e.Seq, int64(50))
	}
	log.Events[0].Time = at.Add(-time.Hour)
	since, gap := log.Since(at)
	require.Len(t, since, 49+64)
	require.True(t, gap)
}
