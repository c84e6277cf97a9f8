package e2e

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/testsuite/plane"
)

// listening is a stream of events and what came of it.
type listening struct {
	mu     sync.Mutex
	events []gateway.CloudEvent
	at     []time.Time // when each came
	last   string
	stop   context.CancelFunc
	ended  chan struct{}
}

// listen opens a stream and returns when it has begun: what happens afterwards is in it.
func listen(t *testing.T, node *plane.Node, query url.Values, last string) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, node.URL+"/api/v1/agents/events?"+query.Encode(), nil)
	require.NoError(t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	l := &listening{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer response.Body.Close()
		reader := gateway.NewEventReader(response.Body)
		for {
			_, event, err := reader.Next()
			l.mu.Lock()
			l.last = reader.LastID
			if err != nil {
				l.mu.Unlock()
				return
			}
			l.events, l.at = append(l.events, *event), append(l.at, time.Now())
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-l.ended })
	return l
}

func (l *listening) list() []gateway.CloudEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// line is an event in short: its type without the prefix, and its subject.
func line(e *gateway.CloudEvent) string {
	return strings.TrimPrefix(string(e.Type), fleet.EventPrefix) + " " + e.Subject
}

func (l *listening) lines() []string {
	var lines []string
	for _, e := range l.list() {
		lines = append(lines, line(&e))
	}
	return lines
}

// await waits for an event by its line and returns the first.
func (l *listening) await(t *testing.T, want string) gateway.CloudEvent {
	t.Helper()
	var found gateway.CloudEvent
	ok := func() bool {
		for _, e := range l.list() {
			if line(&e) == want {
				found = e
				return true
			}
		}
		return false
	}
	if !waits(t, ok) {
		require.Failf(t, "no event", "%s is not in\n%s", want, strings.Join(l.lines(), "\n"))
	}
	return found
}

// waits looks until ok, for 20 s at most.
func waits(t *testing.T, ok func() bool) bool {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(20 * time.Second); ; {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
}

// inOrder requires that the lines come in this order, whatever is between them.
func (l *listening) inOrder(t *testing.T, want ...string) {
	t.Helper()
	lines := l.lines()
	rest := lines
	for _, w := range want {
		i := slices.Index(rest, w)
		require.GreaterOrEqual(t, i, 0, "%s, in its order, is not in\n%s", w, strings.Join(lines, "\n"))
		rest = rest[i+1:]
	}
}

func TestEventsOfAKillComeInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, fleet.ClusterConfig{})
	l := listen(t, b.node, url.Values{"cluster": {b.cluster}}, "")
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := b.agent(t, first)
	l.await(t, "agent.joined agents/"+first)
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	b.agent(t, second)
	wire.cut()
	b.waitBegins(t, id, 2)
	b.finish.Store(true)
	l.await(t, "task.completed tasks/"+id)
	record := b.failover(t, first, 1)
	l.await(t, "failover.ended failovers/"+record.ID)
	l.inOrder(t, "agent.joined agents/"+first, "task.queued tasks/"+id, "task.running tasks/"+id, "agent.suspect agents/"+first,
		"agent.lost agents/"+first, "task.running tasks/"+id, "task.completed tasks/"+id)
	l.inOrder(t, "agent.lost agents/"+first, "failover.started failovers/"+record.ID, "failover.ended failovers/"+record.ID)
	t.Log(strings.Join(l.lines(), "\n"))
}
