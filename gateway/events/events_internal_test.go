package events

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

func TestEventFilter(t *testing.T) {
	t.Parallel()
	data := api.EventData{Cluster: "c", AgentID: "a-1", PreviousAgentID: "a-0", TaskID: "t-1", TaskType: "model",
		Tenant: "film"}
	running := cluster.Event{Type: api.EventTaskRunning, EventData: data}
	lost := cluster.Event{Type: api.EventAgentLost, EventData: api.EventData{Cluster: "c", AgentID: "a-1"}}
	calls := eventFilter{types: []string{"task.queued@model"}}
	for end, isCall := range map[api.AttemptOutcome]bool{api.AttemptFailed: true, api.AttemptReturned: false,
		"": false} {
		queued := running
		queued.Type, queued.AttemptEnd = api.EventTaskQueued, end
		require.Equal(t, isCall, calls.allows(&queued), "%q", end)
	}
	missing := cluster.Event{Type: api.EventGap}
	elsewhere := cluster.Event{Type: api.EventGap, EventData: api.EventData{Cluster: "other"}}
	for _, c := range []struct {
		filter eventFilter
		want   string // of running, lost, missing, elsewhere
	}{
		{eventFilter{}, "1111"},
		{eventFilter{types: []string{"task"}}, "1011"},
		{eventFilter{types: []string{"task.run"}}, "0011"},
		{eventFilter{types: []string{"task."}}, "1011"},
		{eventFilter{types: []string{"agent.lost", "task.running"}}, "1111"},
		{eventFilter{types: []string{"task.running@model"}}, "0011"}, // no attempt has ended
		{eventFilter{types: []string{"task.running@exec"}}, "0011"},
		{eventFilter{types: []string{"agent"}}, "0111"},
		{eventFilter{clusters: []string{"x", "c"}}, "1110"},
		{eventFilter{clusters: []string{"x"}}, "0010"},
		{eventFilter{agent: "a-1"}, "1111"},
		{eventFilter{agent: "a-0"}, "1011"},
		{eventFilter{agent: "a-9"}, "0011"},
		{eventFilter{task: "t-1"}, "1011"},
		{eventFilter{tenant: "film"}, "1011"},
		{eventFilter{tenant: "other"}, "0011"},
		{eventFilter{tenant: "film", clusters: []string{"c"}}, "1011"},
		{eventFilter{tenant: "film", clusters: []string{"none"}}, "0011"}, // as for a cluster of others
	} {
		got := ""
		for _, e := range []cluster.Event{running, lost, missing, elsewhere} {
			if c.filter.allows(&e) {
				got += "1"
			} else {
				got += "0"
			}
		}
		require.Equal(t, c.want, got, "%+v", c.filter)
	}
}

func TestParseTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []string
		want []string
		ok   bool
	}{
		{nil, nil, true},
		{[]string{"agent,task.completed", "failover"}, []string{"agent", "task.completed", "failover"}, true},
		{[]string{"dev.mainstay.agent.lost"}, []string{"agent.lost"}, true},
		{[]string{"agent.*"}, []string{"agent."}, true},
		{[]string{"*"}, nil, true},
		{[]string{"AgentTaskFailed, agent"}, []string{"task.failed", "task.dead_letter",
			"task.expired", "step.failed", "step.escalated", "agent"}, true},
		{[]string{"ModelInvoked"}, []string{"task.completed@model", "task.queued@model",
			"task.retry_wait@model", "task.attempt_failed@model"}, true},
		{[]string{"task.completed@model"}, nil, false},
		{[]string{"agents"}, nil, false},
		{[]string{"agent,"}, nil, false},
		{[]string{""}, nil, false},
	} {
		got, err := parseTypes(c.in)
		require.Equal(t, c.ok, err == nil, "%q", c.in)
		if c.ok {
			require.Equal(t, c.want, got, "%q", c.in)
		}
	}
}

func TestPositionKeepsWhatIsRecent(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	p := position{at: now, tasks: now.Add(-time.Second), clusters: map[string]clusterMark{
		"new": {created: now.Add(-time.Hour), seq: 12, at: now.Add(-time.Second)},
		"old": {created: now.Add(-time.Hour), seq: 7, at: now.Add(-positionWindow)},
	}, hubs: map[string]hubMark{"hub-1": {process: "abcdef12", seq: 99, at: now}}}
	got, err := parsePosition(p.String())
	require.NoError(t, err)
	require.True(t, got.at.Equal(now))
	require.True(t, got.tasks.Equal(p.tasks))
	require.Len(t, got.clusters, 1, "of others the time tells")
	require.EqualValues(t, 12, got.clusters["new"].seq)
	require.True(t, got.clusters["new"].created.Equal(now.Add(-time.Hour)))
	require.Equal(t, hubMark{process: "abcdef12", seq: 99, at: got.at}, got.hubs["hub-1"])
	require.True(t, got.from().Equal(now.Add(-positionWindow)))
}

// TestEventIDsAreSealed has gateways with one key and another read an id.
func TestEventIDsAreSealed(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	p := position{at: now, tasks: now, hubs: map[string]hubMark{"hub-1": {process: "abcdef12", seq: 99, at: now}}}
	ours, same, other, none := newSeal([]byte("a")), newSeal([]byte("a")), newSeal([]byte("b")), newSeal(nil)
	id := ours.close(p.String())
	require.NotEqual(t, id, ours.close(p.String()), "not even that two are the same")
	raw, err := base64.RawURLEncoding.DecodeString(id[2:])
	require.NoError(t, err)
	require.NotContains(t, string(raw), "hub-1")
	require.Equal(t, p.String(), same.open(id))
	made := positionVersion + base64.RawURLEncoding.EncodeToString([]byte(`{"t":1,"v":1,"c":{"not-mine":[1,1]}}`))
	for name, id := range map[string]string{"made up": made, "told without a key": p.String()} {
		request, err := readRequest(&watchInput{LastEventID: id}, ours, p.at)
		require.NoError(t, err, name)
		require.True(t, request.lost && request.from == nil, "%s: nothing is read for it", name)
	}
	require.Equal(t, p.String(), none.open(none.close(p.String())))
	require.Equal(t, ours.name("hub-1.7"), same.name("hub-1.7"), "listeners drop what they know")
	require.NotEqual(t, ours.name("hub-1.7"), other.name("hub-1.7"))
	require.NotContains(t, ours.name("hub-1.7"), "hub")
	for name, text := range map[string]string{"another key": other.open(id), "no key": none.open(id),
		"changed": ours.open(id[:20] + map[bool]string{true: "B", false: "A"}[id[20] == 'A'] + id[21:]),
		"cut":     ours.open(id[:8]), "no base64": ours.open("2.*")} {
		_, err := parsePosition(text)
		require.Error(t, err, name)
	}
}

func FuzzParsePosition(f *testing.F) {
	now := time.UnixMilli(1_800_000_000_000)
	p := position{at: now, tasks: now, clusters: map[string]clusterMark{"c": {created: now, seq: 1, at: now}},
		hubs: map[string]hubMark{"h": {"p", 2, now}}}
	for _, seed := range []string{p.String(), "", "1.", "1.e30", "2." + p.String()[2:], p.String()[:20],
		strings.Repeat("1.", 10_000), "1.bnVsbA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePosition(text)
		if err != nil {
			return
		}
		again, err := parsePosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p.String(), again.String())
		require.False(t, p.at.IsZero())
	})
}

func someEvents(from, n int) []told {
	events := make([]told, n)
	for i := range events {
		events[i] = told{id: fmt.Sprint(from + i), Event: cluster.Event{Type: api.EventAgentJoined,
			EventData: api.EventData{Count: from + i}}}
	}
	return events
}

func TestSlowListenerGetsAGap(t *testing.T) {
	t.Parallel()
	l := newListener(eventFilter{}, "p0")
	l.offer(someEvents(0, maxWaiting-1), "p1")
	l.offer(someEvents(maxWaiting-1, 3), "p2")
	l.offer(someEvents(maxWaiting+2, 1), "p3")
	events, missed, at, ended := l.take()
	require.Len(t, events, maxWaiting)
	require.EqualValues(t, 3, missed, "what came after the first that was dropped is dropped too")
	require.Equal(t, "p3", at)
	require.False(t, ended)
	l.offer(someEvents(0, 2), "p4")
	events, missed, at, _ = l.take()
	require.Len(t, events, 2, "it has caught up")
	require.Zero(t, missed)
	require.Equal(t, "p4", at)
	l.end()
	_, _, _, ended = l.take()
	require.True(t, ended)
}

func TestListenerIsNotWokenForOthersEvents(t *testing.T) {
	t.Parallel()
	l := newListener(eventFilter{types: []string{"task"}}, "p0")
	l.offer(someEvents(0, 3), "p1")
	require.Empty(t, l.wake)
	events, missed, at, _ := l.take()
	require.Empty(t, events)
	require.Zero(t, missed)
	require.Equal(t, "p1", at, "the position moves on all the same")
}

func TestCloudEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, e := range map[string]cluster.Event{
		"agents/a-1": {Type: api.EventAgentLost, EventData: api.EventData{AgentID: "a-1", ID: "x"}},
		"tasks/t-1": {Type: api.EventTaskRunning,
			EventData: api.EventData{TaskID: "t-1", AgentID: "a-1"}},
		"failovers/c:a-1:1": {Type: api.EventFailoverEnded,
			EventData: api.EventData{ID: "c:a-1:1", AgentID: "a-1"}},
		"schedules/acme:n": {Type: api.EventScheduleFailed, EventData: api.EventData{ID: "acme:n"}},
		"drains/c:d-1":     {Type: api.EventDrainStarted, EventData: api.EventData{ID: "c:d-1"}},
		"lanes/cap/gpu":    {Type: api.EventLanePaused, EventData: api.EventData{Lane: "cap/gpu"}},
		"":                 {Type: api.EventGap},
		"tasks/t-2": {Type: api.EventHealing, EventData: api.EventData{TaskID: "t-2", AgentID: "a-1",
			ID: "x"}},
		"lanes/shard/3":       {Type: api.EventHealing, EventData: api.EventData{Lane: "shard/3", ID: "x"}},
		"agents/a-2":          {Type: api.EventHealing, EventData: api.EventData{AgentID: "a-2", ID: "x"}},
		"agents/a-1 (leader)": {Type: api.EventLeaderElected, EventData: api.EventData{AgentID: "a-1"}},
	} {
		require.Equal(t, strings.TrimSuffix(want, " (leader)"), subjectOf(&e), e.Type)
	}
	list := ofCluster("c", &contract.ClusterEvents{CreatedAt: at, Seq: 3, Events: []cluster.Event{
		{Seq: 3, Type: api.EventAgentLost, Time: at, EventData: api.EventData{Cluster: "c",
			AgentID: "a-1"}}}}, contract.EventsSince{})
	list[0].encode(seal{})
	var fields map[string]any
	require.NoError(t, json.Unmarshal(list[0].json, &fields))
	require.Equal(t, map[string]any{
		"specversion": "1.0", "id": list[0].id, "source": "/api/v1/agents/clusters/c",
		"type": "dev.mainstay.agent.lost", "subject": "agents/a-1",
		"time": "2026-11-21T12:00:00Z", "datacontenttype": "application/json",
		"data": map[string]any{"cluster": "c", "agent_id": "a-1"},
	}, fields)
}

func TestFirstRunOfATaskTellsThatItWasQueued(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(attempt int) []told {
		return ofHub("h", &contract.ReadEventsResult{Process: "p", Seq: 5,
			Events: []cluster.Event{{Seq: 5, Type: api.EventTaskRunning, Time: at.Add(time.Second),
				EventData: api.EventData{
					Cluster: "c", Tenant: "film", TaskID: "t-1", TaskType: "x", AgentID: "a-1", Attempt: attempt, QueuedAt: &at}}}},
			contract.ReadEventsInput{})
	}
	first := run(1)
	require.Len(t, first, 2)
	require.Equal(t, "t-1.queued", first[0].id, "as visibility calls it")
	require.Equal(t, cluster.Event{Type: api.EventTaskQueued, Time: at,
		EventData: api.EventData{Cluster: "c", Tenant: "film", TaskID: "t-1", TaskType: "x"}}, first[0].Event)
	require.Equal(t, "h.p.5", first[1].id)
	require.Len(t, run(2), 1)
}

// A token that asks for the past many times at once waits for itself, and few read it at once in all.
func TestFewReadThePastAtOnce(t *testing.T) {
	t.Parallel()
	f := New(Options{})
	of := func(id string) context.Context {
		return access.With(t.Context(), access.Identity{Kind: api.IdentityToken, ID: id})
	}
	full := func(id string) {
		t.Helper()
		gone, leave := context.WithCancel(of(id))
		leave()
		_, err := f.turn(gone)
		require.ErrorIs(t, err, context.Canceled)
	}
	var done []func()
	for i := range pastOfAll {
		end, err := f.turn(of(strconv.Itoa(i / pastOfOne)))
		require.NoError(t, err)
		done = append(done, end)
		if i == pastOfOne-1 {
			full("0")
		}
	}
	full("another")
	tenants := access.With(t.Context(), access.Identity{Kind: api.IdentityToken, ID: "x", Tenant: "acme"})
	done[0]()
	done[1]()
	for range pastOfOne {
		end, err := f.turn(tenants)
		require.NoError(t, err)
		end()
	}
	end, err := f.turn(tenants)
	require.NoError(t, err)
	again, err := f.turn(tenants)
	require.NoError(t, err)
	gone, leave := context.WithCancel(access.With(t.Context(), access.Identity{Kind: api.IdentityToken, ID: "y",
		Tenant: "acme"}))
	leave()
	_, err = f.turn(gone)
	require.ErrorIs(t, err, context.Canceled, "a tenant's tokens share")
	end()
	again()
	end, err = f.turn(of("another"))
	require.NoError(t, err)
	end()
	end, err = f.turn(of("0"))
	require.NoError(t, err)
	end()
}

// A gap tells a tenant that something is missing, and nothing of the fleet.
func TestGapTellsATenantNothingOfTheFleet(t *testing.T) {
	t.Parallel()
	e := gap(time.Now(), "c", "hub h-1 did not answer", 7)
	require.Same(t, &e, (&eventFilter{}).shown(&e))
	shown := (&eventFilter{tenant: "film"}).shown(&e)
	require.Equal(t, api.EventData{Reason: "some events are not known"}, shown.EventData)
	require.Equal(t, e.id, shown.id, "it is the same event")
	require.Equal(t, e.Time, shown.Time)
}
