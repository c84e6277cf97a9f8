package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	good := agent.Options{HubURLs: []string{"http://hub:8080/"}, Cluster: "demo", ID: "worker-1"}
	_, err := agent.New(good)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*agent.Options)
		want   string
	}{
		"no hub": {func(o *agent.Options) { o.HubURLs = nil }, "HubURLs is empty"},
		"hub not a URL": {func(o *agent.Options) { o.HubURLs = []string{"ftp://hub:8080"} },
			"HubURLs[0] must be like http://host:port"},
		"cluster": {func(o *agent.Options) { o.Cluster = "Demo" }, "Cluster must be in lower case"},
		"id":      {func(o *agent.Options) { o.ID = "" }, "ID is empty"},
		"capability": {func(o *agent.Options) { o.Capabilities = []string{"gpu", "a b"} },
			"Capabilities[1] may hold only"},
		"slots":          {func(o *agent.Options) { o.Slots = -1 }, "Slots must be 1 to 10000"},
		"negative times": {func(o *agent.Options) { o.StopTimeout = -1 }, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			c.change(&o)
			_, err := agent.New(o)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRunRefusesBadHandlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handlers map[string]agent.Handler
		want     string
	}{
		"none":     {nil, "no handlers"},
		"nil":      {map[string]agent.Handler{"echo": nil}, "is nil"},
		"bad type": {map[string]agent.Handler{"Echo": newGate().handle}, "task type must be in lower case"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, agenttest.NewHub(t, agenttest.Options{}), nil, c.handlers)
			require.ErrorContains(t, b.ends(), c.want)
		})
	}
}

// TestDamagedCheckpointIsNotHandedOver compares the checkpoint with the digest that its maker sent.
func TestDamagedCheckpointIsNotHandedOver(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{"count": func(_ context.Context, task *agent.Task) (any, error) {
		return task.Checkpoint, task.SaveCheckpoint(map[string]any{"b": "<2>", "a": 1})
	}})
	saved := json.RawMessage(`{"a": 1, "b": "<2>"}`)
	digest := api.JSONDigest(saved)
	hub.Assign(protocol.Assignment{TaskID: "good", Type: "count", Attempt: 2, Checkpoint: saved, CheckpointDigest: digest})
	require.Equal(t, api.AttemptCompleted, hub.WaitResult("good").Outcome)
	for name, checkpoint := range map[string]string{"flipped": `{"a":0,"b":"<2>"}`, "missing": ``} {
		hub.Assign(protocol.Assignment{TaskID: name, Type: "count", Attempt: 2, Checkpoint: json.RawMessage(checkpoint),
			CheckpointDigest: digest})
		result := hub.WaitResult(name)
		require.Equal(t, api.AttemptFailed, result.Outcome, name)
		require.Equal(t, api.ErrorTypeCheckpoint, result.ErrorType, name)
	}
}

func TestTaskIsRunAndItsResultReported(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	type greeting struct {
		Name string `json:"name"`
	}
	var got *agent.Task
	proceed := make(chan struct{})
	b := start(t, hub, func(o *agent.Options) {
		o.Capabilities, o.Zone, o.Group, o.Version = []string{"gpu"}, "z1", "g1", "v1"
		o.Metadata = map[string]string{"rack": "7"}
	}, map[string]agent.Handler{"greet": func(_ context.Context, task *agent.Task) (any, error) {
		got = task
		var in greeting
		if err := task.Decode(&in); err != nil {
			return nil, err
		}
		task.Progress(50, "greeting")
		<-proceed
		return greeting{Name: "hello " + in.Name}, nil
	}})
	reg := hub.WaitRegistered(1)
	require.Equal(t, []string{"greet"}, reg.TaskTypes)
	require.Equal(t, []string{"gpu"}, reg.Capabilities)
	require.Equal(t, 4, reg.MaxTasks)
	require.Equal(t, "demo", reg.Cluster)
	require.Equal(t, "worker-1", reg.AgentID)
	require.Equal(t, map[string]string{"rack": "7"}, reg.Metadata)
	require.Len(t, reg.InstanceID, 32)

	hub.Assign(protocol.Assignment{
		TaskID:     "t1",
		Type:       "greet",
		Attempt:    2,
		Payload:    json.RawMessage(`{"name":"ada"}`),
		Labels:     map[string]string{"a": "b"},
		Checkpoint: json.RawMessage(`{"n":1}`), TransferredFrom: "worker-0", Tenant: "acme", Shard: new(3),
	})
	listed := hub.WaitRunning("t1")
	require.Equal(t, 2, listed.Attempt)
	require.NotEmpty(t, listed.Token, "the first listing is the acknowledgement and carries the token")
	require.NotNil(t, listed.StartedAt)
	poll := hub.WaitPoll("acknowledgement", func(p protocol.Poll) bool { return len(p.Running) == 1 })
	require.Equal(t, int64(1), *poll.Answered, "the answer that brought it was read")

	close(proceed)
	result := hub.WaitResult("t1")
	require.Equal(t, api.AttemptCompleted, result.Outcome)
	require.JSONEq(t, `{"name":"hello ada"}`, string(result.Output))
	require.False(t, result.EndedAt.Before(result.StartedAt))
	require.Equal(t, "t1", got.ID)
	require.Equal(t, "greet", got.Type)
	require.Equal(t, "demo", got.Cluster)
	require.Equal(t, 2, got.Attempt)
	require.Equal(t, "worker-0", got.TransferredFrom)
	require.Equal(t, "acme", got.Tenant)
	require.Equal(t, 3, *got.Shard)
	require.JSONEq(t, `{"n":1}`, string(got.Checkpoint))
	require.Equal(t, map[string]string{"a": "b"}, got.Labels)

	b.await(agent.EventResultAccepted)
	b.stop()
	require.NoError(t, b.ends())
	require.Equal(t, 1, hub.Goodbyes())
	last := hub.Polls()[len(hub.Polls())-1]
	require.True(t, last.Stopping, "the last poll says that the agent stops")
	require.Equal(t, protocol.Counters{Completed: 1}, last.Counters)
}

func TestAssignmentDeliveredTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	b := start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "gate"), assign("t1", "gate"))
	hub.WaitRunning("t1")
	hub.Assign(assign("t1", "gate"), assign("t2", "gate"))
	hub.WaitRunning("t2")
	close(g.open)
	hub.WaitResult("t1")
	hub.WaitResult("t2")
	b.await(agent.EventResultAccepted)
	hub.Assign(assign("t1", "gate"), assign("t3", "gate")) // t1 again, after its end
	hub.WaitResult("t3")
	require.Equal(t, 3, g.count())
}

func TestNewAttemptOfTheSameTaskReplacesTheOld(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	g := newGate()
	start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "gate"))
	<-g.started
	second := assign("t1", "gate")
	second.Attempt = 2
	hub.Assign(second)
	require.ErrorIs(t, <-g.cause, agent.ErrDropped)
	<-g.started
	close(g.open)
	require.Equal(t, 2, hub.WaitResult("t1").Attempt)
	require.Len(t, hub.Results(), 1)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20_000)
	for name, c := range map[string]struct {
		handler agent.Handler
		task    protocol.Assignment
		error   string
		final   bool
		kind    string
	}{
		"error": {
			handler: func(context.Context, *agent.Task) (any, error) { return nil, errors.New("disk full") },
			error:   "disk full",
		},
		"final error": {
			handler: func(context.Context, *agent.Task) (any, error) {
				return nil, agent.NonRetryable(errors.New("no such host"))
			},
			error: "no such host", final: true,
		},
		"panic": {
			handler: func(context.Context, *agent.Task) (any, error) { panic("index out of luck") },
			error:   "the handler panicked: index out of luck", kind: agent.ErrorTypePanic,
		},
		"typed": {
			handler: func(context.Context, *agent.Task) (any, error) {
				return nil, fmt.Errorf("load: %w", agent.Typed("bad_input", errors.New("no such host")))
			},
			error: "load: no such host", kind: "bad_input",
		},
		"typed and final": {
			handler: func(context.Context, *agent.Task) (any, error) {
				return nil, agent.NonRetryable(agent.Typed(strings.Repeat("é", 100), errors.New("no such host")))
			},
			error: "no such host", final: true, kind: strings.Repeat("é", 64),
		},
		"unknown type": {
			task:  protocol.Assignment{Type: "mystery"},
			error: `no handler for the task's type; this agent handles ["probe"]`, final: true,
		},
		"bad payload": {
			handler: func(_ context.Context, task *agent.Task) (any, error) { return nil, task.Decode(new(int)) },
			task:    protocol.Assignment{Payload: json.RawMessage(`"text"`)},
			error:   "payload of task type probe", final: true,
		},
		"result is not JSON": {
			handler: func(context.Context, *agent.Task) (any, error) { return func() {}, nil },
			error:   "cannot be written as JSON", final: true,
		},
		"result too large": {
			handler: func(context.Context, *agent.Task) (any, error) {
				return strings.Repeat("x", api.MaxPayloadBytes), nil
			},
			error: "1048578 bytes, 1048576 are allowed", final: true,
		},
		"long error": {
			handler: func(context.Context, *agent.Task) (any, error) {
				return nil,
					errors.New("begin " + long + " end")
			},
			error: "begin xxx",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			handler := c.handler
			if handler == nil {
				handler = newGate().handle
			}
			start(t, hub, nil, map[string]agent.Handler{"probe": handler})
			hub.WaitRegistered(1)
			c.task.TaskID = "t1"
			if c.task.Type == "" {
				c.task.Type = "probe"
			}
			hub.Assign(c.task)
			result := hub.WaitResult("t1")
			require.Equal(t, api.AttemptFailed, result.Outcome)
			require.Contains(t, result.Error, c.error)
			require.Equal(t, c.final, result.NonRetryable)
			require.Equal(t, c.kind, result.ErrorType)
			require.Empty(t, result.Output)
			require.LessOrEqual(t, len(result.Error), 8192)
			require.NotContains(t, result.Error, "goroutine")
		})
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	t.Run("cancel reports cancelled", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{})
		g := newGate()
		start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "gate"))
		<-g.started
		cancel := protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1}
		hub.Command(cancel, cancel, protocol.Command{Type: protocol.CommandCancel, TaskID: "other", Attempt: 1})
		require.ErrorIs(t, <-g.cause, agent.ErrCancelled)
		require.Equal(t, api.AttemptCancelled, hub.WaitResult("t1").Outcome)
	})
	t.Run("a handler that completes although cancelled has completed", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{})
		begun := make(chan struct{})
		start(t, hub, nil, map[string]agent.Handler{"stubborn": func(ctx context.Context, _ *agent.Task) (any, error) {
			close(begun)
			<-ctx.Done()
			return "done anyway", nil
		}})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "stubborn"))
		<-begun
		hub.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: "t1", Attempt: 1})
		result := hub.WaitResult("t1")
		require.Equal(t, api.AttemptCompleted, result.Outcome)
		require.JSONEq(t, `"done anyway"`, string(result.Output))
	})
	t.Run("drop reports nothing", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{})
		g := newGate()
		start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "gate"))
		<-g.started
		hub.Command(protocol.Command{Type: protocol.CommandDrop, TaskID: "t1", Attempt: 1})
		require.ErrorIs(t, <-g.cause, agent.ErrDropped)
		hub.Assign(assign("t2", "gate"))
		<-g.started
		close(g.open)
		hub.WaitResult("t2")
		require.Len(t, hub.Results(), 1)
	})
	t.Run("a dropped attempt that has stopped is told at once", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: time.Hour}) // no poll ends by itself
		g := newGate()
		start(t, hub, nil, map[string]agent.Handler{"gate": g.handle})
		hub.WaitRegistered(1)
		hub.Assign(assign("t1", "gate"))
		<-g.started
		running := hub.WaitPoll("t1 running", func(p protocol.Poll) bool { return len(p.Running) == 1 })
		hub.Command(protocol.Command{Type: protocol.CommandDrop, TaskID: "t1", Attempt: 1})
		require.ErrorIs(t, <-g.cause, agent.ErrDropped)
		hub.WaitPoll("t1 gone", func(p protocol.Poll) bool {
			return p.Sequence > running.Sequence &&
				len(p.Running) == 0
		})
	})
	t.Run("role", func(t *testing.T) {
		t.Parallel()
		hub := agenttest.NewHub(t, agenttest.Options{})
		b := start(t, hub, nil, map[string]agent.Handler{"gate": newGate().handle})
		require.Empty(t, b.agent.Role())
		hub.WaitRegistered(1)
		hub.Command(
			protocol.Command{Type: protocol.CommandRole, Role: api.RoleLeader, Epoch: 7, Shards: []int{1, 2}},
			protocol.Command{Type: protocol.CommandRole, Role: api.RoleStandby, Epoch: 6},
			protocol.Command{Type: "dance"},
			protocol.Command{Type: protocol.CommandRole, Role: api.RoleMember, Epoch: 8},
		)
		hub.Until("the last role", func() bool { return b.agent.Role() == api.RoleMember })
		b.stop()
		require.NoError(t, b.ends())
		require.Equal(t, 2, b.count(agent.EventRole), "an older epoch's role does not count")
		e := b.await(agent.EventRole)
		require.Equal(t, api.RoleLeader, e.Role)
		require.Equal(t, []int{1, 2}, e.Shards)
		b.await(agent.EventStopping)
		require.Equal(t, 1, hub.Goodbyes())
	})
}

func TestCheckpointsAndProgressAreSentPromptly(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	proceed := make(chan struct{})
	start(t, hub, nil, map[string]agent.Handler{"steps": func(_ context.Context, task *agent.Task) (any, error) {
		task.Progress(140, strings.Repeat("é", 200))
		for i := range 50 {
			if err := task.SaveCheckpoint(map[string]int{"i": i}); err != nil {
				return nil, err
			}
		}
		if err := task.SaveCheckpoint(strings.Repeat("x", api.MaxCheckpointBytes)); err == nil {
			return nil, errors.New("a checkpoint that is too large was taken")
		}
		<-proceed
		return nil, nil
	}})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "steps"))
	poll := hub.WaitPoll("newest checkpoint", func(p protocol.Poll) bool {
		return len(p.Running) == 1 && string(p.Running[0].Checkpoint) == `{"i":49}`
	})
	require.Equal(t, 100, poll.Running[0].Progress.Percent)
	require.LessOrEqual(t, len(poll.Running[0].Progress.Step), 200)
	require.NotZero(t, poll.Running[0].Beacons)
	require.Less(t, len(hub.Polls()), 20, "checkpoints in a row are coalesced")
	close(proceed)
	require.Empty(t, hub.WaitResult("t1").Output)
}
