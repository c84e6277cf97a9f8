package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFewestAtWork(t *testing.T) {
	t.Parallel()
	entry := func(event string, pid, second int) ledgerEntry {
		return ledgerEntry{Event: event, PID: pid, At: time.Unix(int64(second), 0).UnixNano()}
	}
	entries := []ledgerEntry{entry(ledgerBegin, 1, 1), entry(ledgerBegin, 2, 2), entry(ledgerBegin, 3, 3),
		entry(ledgerStop, 1, 12), entry(ledgerBegin, 1, 11), entry(ledgerStop, 2, 13), entry(ledgerBegin, 2, 14)}
	require.Equal(t, 2, fewestAtWork(entries, time.Unix(10, 0), nil), "in the order of their times")
	require.Equal(t, 1, fewestAtWork(entries, time.Unix(10, 0), map[int]bool{3: true}))
	require.Equal(t, -1, fewestAtWork(entries, time.Unix(20, 0), nil), "nothing has happened since")
}
