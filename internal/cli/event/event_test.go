package event

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(Command)) }

// eventServer answers each stream in turn and then ends it; what stands for no stream is answered 503. It notes what
// was asked for. After the last it calls last.
func eventServer(t *testing.T, last func(), streams ...string) (*httptest.Server, *[]string) {
	t.Helper()
	var mu sync.Mutex
	asked := &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		*asked = append(*asked, strings.TrimSuffix(r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"), " "))
		if len(streams) == 0 {
			last()
			return
		}
		stream := streams[0]
		streams = streams[1:]
		if stream == "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(clitest.Problem(503, "temporal_unavailable", "try again").Body))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(stream))
	}))
	t.Cleanup(server.Close)
	return server, asked
}

func event(id, kind, at, data string) string {
	return fmt.Sprintf(
		`{"specversion":"1.0","id":%q,"source":"/","type":"dev.mainstay.%s","time":%q,"datacontenttype":"application/json","data":{%s}}`, id, kind, at, data)
}

func frame(id, event string) string { return "id: " + id + "\ndata: " + event + "\n\n" }

func timeOf(t *testing.T, at string) string {
	t.Helper()
	when, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	return when.UTC().Format("15:04:05.000Z")
}

func TestEventsShowsWhatHappenedLately(t *testing.T) {
	t.Parallel()
	const at = "2026-11-21T12:00:00.5Z"
	lost := event("1", "agent.lost", at, `"cluster":"c","agent_id":"a-1","reason":"its connection\u001b[2J closed"`)
	server, asked := eventServer(t, nil, ": hello\n\n"+frame("p1", lost), frame("p1", lost))
	got := clitest.Run(t.Context(), "", "events", "--server", server.URL, "--type", "agent,failover", "--cluster", "c",
		"--tenant", "film")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, timeOf(t, at)+"  agent.lost         a-1 in c: its connection closed\n", got.Stdout)
	got = clitest.Run(t.Context(), "", "events", "--server", server.URL, "-o", "json", "--since", "1h")
	require.Equal(t, lost+"\n", got.Stdout)
	require.Equal(t, []string{"cluster=c&follow=false&since=15m&tenant=film&type=agent&type=failover",
		"follow=false&since=1h"}, *asked)
}

func TestEventsGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	const at = "2026-11-21T12:00:00Z"
	one, two := event("1", "agent.joined", at, `"agent_id":"a-1","epoch":1,"hub":"h"`), event("2", "agent.left", at,
		`"agent_id":"a-1"`)
	missing := event("3", "gap", at, `"count":7,"reason":"hub h was restarted"`)
	ctx, cancel := context.WithCancel(t.Context())
	server, asked := eventServer(t, cancel, frame("p1", one), "",
		frame("p2", one)+frame("p3", two)+frame("p4", missing))
	got := clitest.Run(ctx, "", "events", "-f", "--server", server.URL)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	clock := timeOf(t, at)
	require.Equal(t, clock+"  agent.joined       a-1 (epoch 1, hub h)\n"+clock+"  agent.left         a-1\n"+clock+"  gap                events are missing (7): hub h was restarted\n", got.Stdout,
		"what comes again is shown once, and the gap is shown")
	require.Equal(t, "[the control plane does not answer; trying again]\n[connected again]\n", got.Stderr)
	require.Equal(t, []string{"", " p1", " p1", " p4"}, *asked)
}

func TestEventsThatCannotBegin(t *testing.T) {
	t.Parallel()
	server, _ := eventServer(t, nil, "")
	require.Equal(t, app.ExitUnreachable, clitest.Run(t.Context(), "", "events", "-f", "--server", server.URL).Code)
	require.Equal(t, app.ExitUnreachable, clitest.Run(t.Context(), "", "events", "-f", "--server", "127.0.0.1:1").Code)
	require.Equal(t, app.ExitUsage, clitest.Run(t.Context(), "", "events", "extra").Code)
	url, _ := clitest.Answering(t, http.StatusUnprocessableEntity, "application/problem+json",
		clitest.Problem(422, "invalid_request", "names no type").Body)
	require.Equal(t, app.ExitUsage, clitest.Run(t.Context(), "", "events", "-f", "--server", url, "--type", "no").Code)
}

func TestEventLines(t *testing.T) {
	t.Parallel()
	const at = "2026-11-21T12:00:00Z"
	for want, e := range map[string][2]string{
		"t-1 (exec) on a-1 in c": {"task.running",
			`"cluster":"c","task_id":"t-1","task_type":"exec","agent_id":"a-1","attempt":1`},
		"t-1, attempt 2 on a-2, before on a-1": {"task.running",
			`"task_id":"t-1","agent_id":"a-2","attempt":2,"previous_agent_id":"a-1"`},
		"t-1, attempt 1 lost on a-1: gone": {"task.queued",
			`"task_id":"t-1","agent_id":"a-1","attempt":1,"attempt_outcome":"lost","reason":"gone"`},
		"t-1 for a-1": {"task.queued", `"task_id":"t-1","agent_id":"a-1"`},
		"t-1 on a-1: 40% copy two files": {"task.progress",
			`"task_id":"t-1","agent_id":"a-1","attempt":1,"progress":{"percent":40,"step":"copy","message":"two files"}`},
		"t-1 on a-1": {"task.completed",
			`"task_id":"t-1","agent_id":"a-1","attempt":1,"attempt_outcome":"completed"`},
		"a-2, before a-1 (epoch 7) in c": {"leader.elected",
			`"cluster":"c","agent_id":"a-2","epoch":7,"previous_agent_id":"a-1"`},
		"a-2, shards 1 4": {"shard.assigned", `"agent_id":"a-2","shards":[1,4]`},
		"c:a-1:1, 3 tasks under way in c": {"failover.started",
			`"cluster":"c","id":"c:a-1:1","agent_id":"a-1","of":3`},
		"c:a-1:1 to a-2, 2 of 3 tasks moved in c: succeeded": {"failover.ended",
			`"cluster":"c","id":"c:a-1:1","agent_id":"a-1","target_agent_id":"a-2","count":2,"of":3,"outcome":"succeeded"`},
		"c:d-1 of 2 agents in c: upgrade": {"drain.started",
			`"cluster":"c","id":"c:d-1","count":2,"reason":"upgrade"`},
		"c":                             {"cluster.created", `"cluster":"c"`},
		"every lane in c: night":        {"lane.paused", `"cluster":"c","reason":"night"`},
		"hub h, 4 agents vanished in c": {"brake.engaged", `"cluster":"c","hub":"h","count":4`},
		"a-1 is degraded: cpu": {"agent.health",
			`"agent_id":"a-1","level":"degraded","reason":"cpu"`},
		"a-1 to 1 slot": {"agent.load_reduced", `"agent_id":"a-1","count":1`},
		"t-1, attempt 1 failed on a-1, next at " + timeOf(t, at)[:8] + "Z" +
			": x": {"task.retry_wait",
			`"task_id":"t-1","agent_id":"a-1","attempt":1,"attempt_outcome":"failed","next_attempt_at":"` + at + `","reason":"x"`},
	} {
		server, _ := eventServer(t, nil, frame("p", event("1", e[0], at, e[1])))
		got := clitest.Run(t.Context(), "", "events", "--server", server.URL)
		require.Equal(t, fmt.Sprintf("%s  %-18s %s\n", timeOf(t, at), e[0], want), got.Stdout)
	}
}
