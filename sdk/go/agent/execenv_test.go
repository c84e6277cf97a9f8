//go:build unix

package agent_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// variables are those of ours that a command finds.
func variables(t *testing.T, a protocol.Assignment) map[string]string {
	t.Helper()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	a.Type = agent.ExecType
	a.Payload = json.RawMessage(`{"command":["env"],"env":{"MAINSTAY_TASK_ID":"forged","MAINSTAY_SERVER":"http://a"}}`)
	hub.Assign(a)
	result := hub.WaitResult(a.TaskID)
	require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
	var out agent.ExecResult
	require.NoError(t, json.Unmarshal(result.Output, &out))
	found := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if short, is := strings.CutPrefix(name, "MAINSTAY_"); is && short != "CHECKPOINT" {
			found[short] = value
		}
	}
	return found
}

func TestWhatACommandIsTold(t *testing.T) {
	t.Parallel()
	at := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		given protocol.Assignment
		want  map[string]string
	}{
		"a task": {protocol.Assignment{TaskID: "t1", Attempt: 2, Cluster: "demo"},
			map[string]string{"TASK_ID": "t1", "ATTEMPT": "2", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "t1", "SERVER": "http://a"}},
		"a step": {protocol.Assignment{TaskID: "r1~build", Attempt: 1, Cluster: "demo", IdempotencyKey: "key", DeadlineAt: &at},
			map[string]string{"TASK_ID": "r1~build", "ATTEMPT": "1", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "key", "RUN_ID": "r1", "STEP": "build", "DEADLINE": "2099-01-02T03:04:05Z", "SERVER": "http://a"}},
		"an element of a step": {protocol.Assignment{TaskID: "r1~build.3", Attempt: 1, Cluster: "demo", IdempotencyKey: "key"},
			map[string]string{"TASK_ID": "r1~build.3", "ATTEMPT": "1", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "key", "RUN_ID": "r1", "STEP": "build", "ELEMENT": "3", "SERVER": "http://a"}},
		"an element of a step's array": {protocol.Assignment{TaskID: "r1~build~.300", Attempt: 1, Cluster: "demo", Element: new(300)},
			map[string]string{"TASK_ID": "r1~build~.300", "ATTEMPT": "1", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "r1~build~.300", "RUN_ID": "r1", "STEP": "build", "ELEMENT": "300", "SERVER": "http://a"}},
		"an element of an array": {protocol.Assignment{TaskID: "a1~.7", Attempt: 1, Cluster: "demo", Element: new(7)},
			map[string]string{"TASK_ID": "a1~.7", "ATTEMPT": "1", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "a1~.7", "ELEMENT": "7", "SERVER": "http://a"}},
		"an instance": {protocol.Assignment{TaskID: "web~~0", Attempt: 1, Cluster: "demo",
			Instance: &api.InstanceOf{Job: "web", Name: "0"}},
			map[string]string{"TASK_ID": "web~~0", "ATTEMPT": "1", "CLUSTER": "demo", "AGENT_ID": "worker-1",
				"IDEMPOTENCY_KEY": "web~~0", "JOB": "web", "INSTANCE": "0", "SERVER": "http://a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, variables(t, c.given))
		})
	}
}

// A command finds the checkpoint of the attempt before in a file, and what it writes there is the next one.
func TestACommandsCheckpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, script, reads, kept string }{
		"an object":  {`{"page":7}`, `cat "$MAINSTAY_CHECKPOINT"; echo '{"page": 8}' >"$MAINSTAY_CHECKPOINT"`, `{"page":7}`, `{"page": 8}`},
		"text":       {`"line\n7\n"`, `cat "$MAINSTAY_CHECKPOINT"; echo 8 >"$MAINSTAY_CHECKPOINT"`, "line\n7\n", `"8\n"`},
		"none":       {``, `cat "$MAINSTAY_CHECKPOINT"; echo 1 >"$MAINSTAY_CHECKPOINT"`, "", `"1\n"`},
		"half of it": {``, `printf '{"page": ' >"$MAINSTAY_CHECKPOINT"`, "", `"{\"page\": "`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
			hub.WaitRegistered(1)
			payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c",
				c.script + `; sleep 1000`}})
			require.NoError(t, err)
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload, Checkpoint: json.RawMessage(c.before)})
			poll := hub.WaitPoll("the checkpoint", func(p protocol.Poll) bool {
				return len(p.Running) > 0 && len(p.Running[0].Checkpoint) > 0
			})
			require.JSONEq(t, c.kept, string(poll.Running[0].Checkpoint))
			hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
			result := hub.WaitResult("t1")
			var read []string
			for _, line := range result.Log {
				if line.Stream == "stdout" {
					read = append(read, line.Text)
				}
			}
			require.Equal(t, strings.TrimSuffix(c.reads, "\n"), strings.Join(read, "\n"))
		})
	}
}

// What a command leaves as it fails is there before its failure, because the next attempt begins with it.
func TestTheLastCheckpointOfACommandThatFails(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	hub.WaitRegistered(1)
	hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType,
		Payload: json.RawMessage(`{"command":["sh","-c","echo 7 >$MAINSTAY_CHECKPOINT; exit 3"]}`)})
	require.Equal(t, api.AttemptFailed, hub.WaitResult("t1").Outcome)
	require.True(t, slices.ContainsFunc(hub.Polls(), func(p protocol.Poll) bool {
		return len(p.Running) > 0 && string(p.Running[0].Checkpoint) == `"7\n"`
	}))
}
