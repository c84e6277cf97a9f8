package hub

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/event"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// events returns the hub's events, in short.
func (b *bench) events(in contract.ReadEventsInput) ([]string, contract.ReadEventsResult) {
	b.t.Helper()
	read, err := b.Hub.events.Read(b.t.Context(), in)
	require.NoError(b.t, err)
	var lines []string
	for _, e := range read.Events {
		line := strings.TrimPrefix(string(e.Type), api.EventPrefix)
		for _, part := range []string{e.TaskID, e.AgentID, string(e.AttemptEnd)} {
			if part != "" {
				line += " " + part
			}
		}
		lines = append(lines, line)
	}
	return lines, read
}

func progresses(percent int) func(*protocol.Poll) {
	return func(p *protocol.Poll) { p.Running[0].Progress = &api.Progress{Percent: percent} }
}

func TestHubTellsOfTasks(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 4)
		one := a.give(aTask("t1", func(in *contract.RunTaskInput) { in.Spec.Tenant = "film" }))
		a.poll(lists(one))
		_, read := b.events(contract.ReadEventsInput{})
		require.Equal(t, api.EventTaskRunning, read.Events[0].Type)
		require.Equal(t, api.EventData{Cluster: "c", Tenant: "film", AgentID: "a", Epoch: 1, Hub: "hub-1",
			TaskID: "t1", TaskType: "echo", Attempt: 1}, read.Events[0].EventData)

		t.Log("progress, at most once a second")
		at := read.Seq
		a.poll(lists(one), progresses(10))
		a.poll(lists(one), progresses(20))
		b.pass(event.ProgressSpacing)
		a.poll(lists(one), progresses(30))
		a.poll(lists(one), progresses(30))
		lines, read := b.events(contract.ReadEventsInput{After: at})
		require.Equal(t, []string{"task.progress t1 a", "task.progress t1 a"}, lines)
		require.Equal(t, 30, read.Events[1].Progress.Percent)
		require.NoError(t, a.report(one, api.AttemptCompleted))

		t.Log("the ends of attempts, and what comes after them; one that the agent had not listed yet began all the same")
		at = read.Seq
		two := a.give(aTask("t2"))
		require.NoError(t, a.report(two, api.AttemptFailed, func(in *resultInput) { in.Body.Error = "no disk" }))
		three := a.give(aTask("t3", func(in *contract.RunTaskInput) { in.Tally.Failures = 2 }))
		require.NoError(t, a.report(three, api.AttemptFailed))
		lines, read = b.events(contract.ReadEventsInput{After: at})
		require.Equal(t, []string{"task.completed t1 a completed", "task.running t2 a", "task.retry_wait t2 a failed",
			"task.running t3 a", "task.attempt_failed t3 a failed"}, lines,
			"that t3 is a dead letter, visibility tells")
		require.Contains(t, read.Events[2].Reason, "no disk")
		require.True(t, read.Events[2].NextAttemptAt.After(time.Now()))

		at = read.Seq
		four := a.give(aTask("t4"))
		a.poll(lists(four))
		a.hangUp()
		b.pass(3 * time.Second)
		lines, _ = b.events(contract.ReadEventsInput{After: at})
		require.Equal(t, []string{"task.running t4 a", "agent.suspect a", "task.queued t4 a lost"}, lines)
	})
}

func TestProgressIsNotKeptWhileNobodyListens(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		one := a.give(aTask("t1"))
		for percent := range 20 {
			a.poll(lists(one), progresses(percent))
			b.pass(time.Second)
		}
		lines, _ := b.events(contract.ReadEventsInput{})
		require.Equal(t, []string{"task.running t1 a"}, lines)
		for range 30 {
			a.poll(lists(one), progresses(19))
			b.pass(4 * time.Second)
		}
		a.poll(lists(one), progresses(99))
		_, read := b.events(contract.ReadEventsInput{})
		require.Len(t, read.Events, 2, "and no longer after the reader has gone")
		require.Equal(t, 19, read.Events[1].Progress.Percent)
	})
}

func TestReadEventsWaits(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		_, start := b.events(contract.ReadEventsInput{Newest: true})
		require.Equal(t, b.Hub.events.Process(), start.Process)
		begun := time.Now()
		lines, _ := b.events(contract.ReadEventsInput{Process: start.Process, After: start.Seq, Hints: start.Hints,
			Wait: api.Duration(10 * time.Second)})
		require.Empty(t, lines)
		require.Equal(t, 10*time.Second, time.Since(begun))

		a := b.register("a", 1)
		a.poll()
		_, start = b.events(contract.ReadEventsInput{Newest: true})
		read := make(chan contract.ReadEventsResult, 1)
		go func() {
			r, _ := b.Hub.events.Read(t.Context(), contract.ReadEventsInput{Process: start.Process, After: start.Seq,
				Hints: start.Hints, Wait: api.Duration(time.Minute)})
			read <- r
		}()
		synctest.Wait()
		begun = time.Now()
		a.hangUp()
		r := <-read
		require.Equal(t, api.EventAgentSuspect, r.Events[0].Type)
		require.Less(t, time.Since(begun), 400*time.Millisecond)
		b.pass(2 * time.Second)
		_, r = b.events(contract.ReadEventsInput{Process: r.Process, After: r.Seq, Hints: r.Hints})
		require.Equal(t, []string{"c"}, r.Changed, "the cluster was told that the agent is lost, so it has an event")

		_, r = b.events(contract.ReadEventsInput{Process: "another", After: 99})
		require.EqualValues(t, -1, r.Missing)
		require.Len(t, r.Events, 1, "all that this process saw")
		_, r = b.events(contract.ReadEventsInput{From: time.Now().Add(-time.Hour)})
		require.Len(t, r.Events, 1)
		require.Zero(t, r.Missing)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.Hub.events.Read(ctx, contract.ReadEventsInput{Process: r.Process, After: r.Seq, Hints: r.Hints,
			Wait: api.Duration(time.Hour)})
		require.NoError(t, err, "a reader that has gone waits no longer")
	})
}

func TestSuspectAgentRecovers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.poll()
		a.hangUp()
		b.pass(400 * time.Millisecond)
		status, since := a.session().status()
		require.Equal(t, api.AgentSuspect, status)
		require.WithinDuration(t, time.Now(), since, 200*time.Millisecond)
		a.poll()
		b.pass(200 * time.Millisecond)
		lines, _ := b.events(contract.ReadEventsInput{})
		require.Equal(t, []string{"agent.suspect a", "agent.recovered a"}, lines)
		status, _ = a.session().status()
		require.Equal(t, api.AgentOnline, status)
		require.Empty(t, b.changed(), "short trouble is written nowhere")
	})
}

// An agent that opens a connection for each poll is not suspect, and one that comes and goes makes one pair of events a
// minute, which counts the others.
func TestFlappingAgentMakesFewEvents(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		flap := func(away time.Duration, times int) []string {
			for range times {
				a.poll()
				b.pass(time.Second)
				a.hangUp()
				b.pass(away)
			}
			a.poll()
			b.pass(time.Second)
			lines, _ := b.events(contract.ReadEventsInput{})
			return lines
		}
		require.Empty(t, flap(100*time.Millisecond, 20))
		require.Equal(t, []string{"agent.suspect a", "agent.recovered a"}, flap(500*time.Millisecond, 20))
		b.pass(time.Second)
		require.Len(t, flap(500*time.Millisecond, 25), 4)
		_, read := b.events(contract.ReadEventsInput{})
		require.Contains(t, read.Events[2].Reason, "its connection closed, for the ")
	})
}

// Silence and an announced stop are live statuses, which cost no history.
func TestLiveStatus(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.poll()
		live := func() api.AgentStatus {
			for _, entry := range (facts{b.Hub}).entries(func(string) bool { return true }) {
				status, _, _ := contract.StatusOf(entry)
				return status
			}
			return "no entry"
		}
		require.Empty(t, live())
		b.pass(b.config.Timing.WarningThreshold + time.Second)
		require.Equal(t, api.AgentWarning, live())
		a.poll(func(p *protocol.Poll) { p.Stopping = true })
		b.pass(time.Second)
		require.Equal(t, api.AgentStopping, live())
		require.Empty(t, b.changed())
	})
}
