package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func watch(task string, after int64) protocol.Command {
	return protocol.Command{Type: protocol.CommandLog, TaskID: task, Attempt: 1, After: after,
		Hold: api.Duration(time.Minute)}
}

func texts(lines []api.LogLine) []string {
	list := make([]string, len(lines))
	for i, line := range lines {
		list[i] = line.Text
	}
	return list
}

// talker is a handler that logs its input.
func talker() (chan<- string, agent.Handler) {
	say := make(chan string)
	return say, func(_ context.Context, task *agent.Task) (any, error) {
		for text := range say {
			task.Log(text)
		}
		return nil, nil
	}
}

func TestLogTravelsOnlyWhileSomebodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		say, handler := talker()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"talk": handler})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "talk"))
		say <- "one"
		say <- "two\nthree"
		pass(time.Hour)
		require.Zero(t, hub.LogRequests(), "nobody watches")

		hub.Command(watch("t1", 1))
		hub.Until("the lines", func() bool { return len(hub.Lines("t1", 1)) == 2 })
		require.Equal(t, []string{"two", "three"}, texts(hub.Lines("t1", 1)))
		said := time.Now()
		say <- "four"
		hub.Until("the next line", func() bool { return len(hub.Lines("t1", 1)) == 3 })
		require.Less(t, time.Since(said), 500*time.Millisecond)
		lines := hub.Lines("t1", 1)
		require.EqualValues(t, 4, lines[2].Number)

		requests := hub.LogRequests()
		hub.Command(watch("t1", 0)) // a hub that has forgotten what it got
		hub.Until("all lines again", func() bool { return len(hub.Lines("t1", 1)) == 7 })
		require.Equal(t, requests+1, hub.LogRequests())

		pass(2 * time.Minute) // the time is over
		requests = hub.LogRequests()
		say <- "five"
		pass(time.Minute)
		require.Equal(t, requests, hub.LogRequests())

		hub.Command(watch("t1", 4))
		hub.Until("the rest", func() bool { return len(hub.Lines("t1", 1)) == 8 })
		say <- "last words"
		close(say)
		require.Equal(t, []string{"one", "two", "three", "four", "five", "last words"},
			texts(hub.WaitResult("t1").Log), "the result brings the log")
	})
}

func TestLogTravelsNowAndThenWhereAHubKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		say, handler := talker()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"talk": handler})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "talk"))
		hub.WaitRunning("t1")
		keep := watch("t1", 0)
		keep.Hold, keep.Every = 0, api.Duration(5*time.Second)
		hub.Command(keep)
		hub.Until("the answer", func() bool { return hub.LogRequests() == 1 })
		for range 20 {
			say <- "a line"
			pass(time.Second)
		}
		hub.Until("the lines", func() bool { return len(hub.Lines("t1", 1)) == 20 })
		require.LessOrEqual(t, hub.LogRequests(), 6, "once in five seconds")
		requests := hub.LogRequests()
		pass(time.Hour)
		require.Equal(t, requests, hub.LogRequests(), "nothing is sent while it is quiet")
		hub.Fail(agenttest.OpLog, agenttest.Fault{Status: 503, Code: protocol.CodeUnavailable})
		say <- "again"
		hub.Until("the line, in spite of the failure", func() bool { return len(hub.Lines("t1", 1)) == 21 })
		close(say)
		hub.WaitResult("t1")
	})
}

func TestLogOfAQuietHandlerIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		say, handler := talker()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"talk": handler})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "talk"))
		hub.WaitRunning("t1")
		hub.Command(watch("t1", 0), watch("other", 0))
		hub.Until("an answer without lines", func() bool { return hub.LogRequests() == 1 })
		hub.StopWatching()
		say <- "one"
		hub.Until("the line", func() bool { return hub.LogRequests() == 2 })
		say <- "two"
		pass(time.Minute)
		require.Equal(t, 2, hub.LogRequests(), "the hub said that nobody watches any more")
		close(say)
		hub.WaitResult("t1")
	})
}

func TestLogOutlivesAHubThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
		say, handler := talker()
		start(t, hub, inMemory(hub), map[string]agent.Handler{"talk": handler})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "talk"))
		say <- "one"
		hub.Fail(agenttest.OpLog, agenttest.Fault{Status: 503, Code: protocol.CodeUnavailable})
		hub.Command(watch("t1", 0))
		hub.Until("the failure", func() bool { return hub.FaultsLeft(agenttest.OpLog) == 0 })
		hub.Command(watch("t1", 0))
		hub.Until("the line", func() bool { return len(hub.Lines("t1", 1)) == 1 })
		close(say)
		hub.WaitResult("t1")
	})
}

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		log   func(*agent.Task)
		check func(*testing.T, []api.LogLine)
	}{
		"lines": {
			func(task *agent.Task) {
				for i := range 2000 {
					task.Log(fmt.Sprint(i))
				}
			},
			func(t *testing.T, lines []api.LogLine) {
				require.Len(t, lines, api.MaxLogLines)
				require.EqualValues(t, 1501, lines[0].Number)
				require.Equal(t, "1999", lines[len(lines)-1].Text)
			},
		},
		"bytes": {
			func(task *agent.Task) {
				for range 100 {
					task.Log(strings.Repeat("x", 4<<10))
				}
			},
			func(t *testing.T, lines []api.LogLine) { require.Len(t, lines, 16) },
		},
		"line": {
			func(task *agent.Task) { task.Log(strings.Repeat("é", 4500) + "\nnext") },
			func(t *testing.T, lines []api.LogLine) {
				var all strings.Builder
				for _, line := range lines[:len(lines)-2] {
					require.LessOrEqual(t, len(line.Text), api.MaxLogLineBytes)
					piece, goesOn := strings.CutSuffix(line.Text, "…")
					require.True(t, goesOn)
					all.WriteString(piece)
				}
				require.Equal(t, strings.Repeat("é", 4500), all.String()+lines[len(lines)-2].Text)
				require.Equal(t, "next", lines[len(lines)-1].Text)
			},
		},
		"a full line": {
			func(task *agent.Task) { task.Log(strings.Repeat("é", 2<<10) + "\nnext") },
			func(t *testing.T, lines []api.LogLine) {
				require.Equal(t, []string{strings.Repeat("é", 2<<10), "next"}, texts(lines))
			},
		},
		"a line that grows": {
			func(task *agent.Task) { task.Log(strings.Repeat("a\xff", 4<<10)) },
			func(t *testing.T, lines []api.LogLine) {
				all := strings.ReplaceAll(strings.Join(texts(lines), ""), "…", "")
				require.Equal(t, 4<<10, strings.Count(all, "a"))
			},
		},
		"invalid UTF-8": {
			func(task *agent.Task) { task.Log("a\xff\xfeb" + strings.Repeat("\xff", 4<<10)) },
			func(t *testing.T, lines []api.LogLine) {
				require.True(t, utf8.ValidString(lines[0].Text))
				require.LessOrEqual(t, len(lines[0].Text), api.MaxLogLineBytes)
				require.True(t, strings.HasPrefix(lines[0].Text, "a\uFFFDb\uFFFD"))
			},
		},
		"line ends": {
			func(task *agent.Task) { task.Log("a\r\nb\n\nc\r50%\r100%\n") },
			func(t *testing.T, lines []api.LogLine) {
				require.Equal(t, []string{"a", "b", "", "c", "50%", "100%"}, texts(lines))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			logged, proceed := make(chan struct{}), make(chan struct{})
			start(t, hub, nil, map[string]agent.Handler{"talk": func(_ context.Context, task *agent.Task) (any, error) {
				c.log(task)
				close(logged)
				<-proceed
				return nil, nil
			}})
			hub.WaitRegistered(1)
			hub.Assign(assign("t1", "talk"))
			<-logged
			hub.Command(watch("t1", 0))
			hub.Until("the log", func() bool { return hub.LogRequests() == 1 })
			c.check(t, hub.Lines("t1", 1))
			close(proceed)
			hub.WaitResult("t1")
		})
	}
}

func TestExecOutputIsLogAndBeacon(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	gate := t.TempDir() + "/gate"
	payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c",
		`echo one; echo two >&2; while [ ! -e "$GATE" ]; do sleep 0.05; done; printf three`}, Env: map[string]string{"GATE": gate}})
	require.NoError(t, err)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload})
	hub.WaitRunning("t1")
	hub.Command(watch("t1", 0))
	hub.Until("both lines", func() bool { return len(hub.Lines("t1", 1)) == 2 })
	streams := map[string]string{}
	for _, line := range hub.Lines("t1", 1) {
		streams[line.Stream] = line.Text
	}
	require.Equal(t, map[string]string{"stdout": "one", "stderr": "two"}, streams)
	touch(t, gate)
	result := hub.WaitResult("t1")
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	require.Equal(t, "three", result.Log[len(result.Log)-1].Text, "a last line without an end")

	quiet, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c",
		"echo 1; echo 2; sleep 30"}})
	require.NoError(t, err)
	hub.Assign(protocol.Assignment{TaskID: "t2", Type: agent.ExecType, Payload: quiet,
		Beacon: api.Duration(time.Second), Timeout: api.Duration(2500 * time.Millisecond)})
	result = hub.WaitResult("t2")
	require.Equal(t, api.AttemptTimedOut, result.Outcome)
	require.NotContains(t, result.Error, "beacon", "a command that lives is a sign of life, however quiet it is")
	require.Equal(t, []string{"1", "2"}, texts(result.Log), "a timed out attempt keeps its output")
}
