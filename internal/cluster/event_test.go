package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// TestEventTypesAreDocumented holds docs/EVENTS.md to the table. UPDATE_DOCS=1 writes it.
func TestEventTypesAreDocumented(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../docs/EVENTS.md", "<!-- types: kept up to date by a test -->\n", "<!-- /types -->"
	var table strings.Builder
	table.WriteString("| type | means |\n|---|---|\n")
	seen := map[api.EventType]bool{}
	for _, m := range api.EventTypes {
		require.False(t, seen[m.Type], m.Type)
		require.True(t, strings.HasPrefix(string(m.Type), api.EventPrefix))
		seen[m.Type] = true
		fmt.Fprintf(&table, "| `%s` | %s |\n", strings.TrimPrefix(string(m.Type), api.EventPrefix), m.Meaning)
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	present, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, table.String(), present, "run UPDATE_DOCS=1 go test ./internal/cluster -run TestEventTypesAreDocumented")
}

func TestEveryTaskStatusHasAnEvent(t *testing.T) {
	t.Parallel()
	known := map[api.EventType]bool{}
	for _, m := range api.EventTypes {
		known[m.Type] = true
	}
	for _, s := range []api.TaskStatus{api.TaskQueued, api.TaskRunning, api.TaskRetryWait, api.TaskReview,
		api.TaskDeadLetter,
		api.TaskCompleted, api.TaskFailed, api.TaskCancelled, api.TaskExpired} {
		require.True(t, known[api.TaskEvent(s)], s)
	}
}

func TestEventLogKeepsTheNewest(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var log cluster.EventLog
	for i := range 10 {
		log.Add(cluster.Event{Type: api.EventAgentJoined, Time: begin.Add(time.Duration(i) * time.Second),
			EventData: api.EventData{Count: i + 1}}, 4)
	}
	for _, c := range []struct {
		after, missing int64
		want           []int
	}{
		{0, 6, []int{7, 8, 9, 10}}, {5, 1, []int{7, 8, 9, 10}}, {6, 0, []int{7, 8, 9, 10}}, {8, 0, []int{9, 10}},
		{10, 0, nil}, {1 << 62, 0, nil}, {-3, 9, []int{7, 8, 9, 10}},
	} {
		events, missing := log.After(c.after)
		require.Equal(t, c.missing, missing, "after %d", c.after)
		require.Equal(t, c.want, numbers(events), "after %d", c.after)
	}
	for _, c := range []struct {
		from    time.Duration
		missing bool
		want    []int
	}{{0, true, []int{7, 8, 9, 10}}, {6 * time.Second, true, []int{7, 8, 9, 10}}, {7 * time.Second, false,
		[]int{8, 9, 10}}, {time.Minute, false, nil}} {
		events, missing := log.Since(begin.Add(c.from))
		require.Equal(t, c.missing, missing, c.from)
		require.Equal(t, c.want, numbers(events), c.from)
	}
}

// One tenant can have any number of events put into quarantine.
func TestTenantsLeaveRoomForTheFleet(t *testing.T) {
	t.Parallel()
	var log cluster.EventLog
	log.Add(cluster.Event{Type: api.EventAgentLost}, cluster.MaxEventsKept)
	for range 2 * cluster.MaxEventsKept {
		log.Add(cluster.Event{Type: api.EventQuarantined}, cluster.MaxEventsKept)
		log.Add(cluster.Event{Type: api.EventStepEscalated}, cluster.MaxEventsKept)
	}
	require.Len(t, log.Events, 129)
	require.Equal(t, api.EventAgentLost, log.Events[0].Type)
	require.Equal(t, log.Seq, log.Events[128].Seq, "the newest are kept")
}

func TestEventLogCutsLongReasons(t *testing.T) {
	t.Parallel()
	var log cluster.EventLog
	log.Add(cluster.Event{EventData: api.EventData{Reason: strings.Repeat("ä", 1000)}}, 4)
	require.Less(t, len(log.Events[0].Reason), 310)
	require.True(t, strings.HasSuffix(log.Events[0].Reason, "ä…"))
}

func numbers(events []cluster.Event) []int {
	var list []int
	for _, e := range events {
		list = append(list, e.Count)
	}
	return list
}
