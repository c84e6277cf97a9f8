package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

func TestDrainedCounts(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	when := func(seconds int) *time.Time { t := at(seconds); return &t }
	entry := func(event, agent string, seconds int) ledgerEntry {
		return ledgerEntry{Event: event, Agent: agent, At: at(seconds).UnixNano()}
	}
	record := fleet.DrainRecord{Agents: []fleet.AgentDrain{
		{AgentID: "a", Status: fleet.DrainCompleted, AcknowledgedAt: when(10), CompletedAt: when(21)},
		{AgentID: "b", Status: fleet.DrainCompleted, AcknowledgedAt: when(10), CompletedAt: when(12), Moved: 1},
		{AgentID: "c", Status: fleet.DrainFailed, AcknowledgedAt: when(10), CompletedAt: when(12)},
	}}
	var d drained
	d.count(&record, []ledgerEntry{
		entry(ledgerBegin, "a", 5), entry(ledgerEnd, "a", 20), entry(ledgerBegin, "b", 9), entry(ledgerEnd, "b", 9),
		entry(ledgerBegin, "b", 11), entry(ledgerBegin, "rest", 30),
	})
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, d.tails)
	require.Equal(t, 1, d.Late, "b was given work after it was said that none arrives")
	require.Equal(t, 1, d.Moved)
	require.Equal(t, 1, d.Undue)
	require.False(t, d.met())
	require.True(t, (&drained{}).met())
}
