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

// deep is JSON text of a depth.
func deep(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
}

// TestAnAssignmentThatCannotBeReadGoesBack has it come beside one that can, in one answer. The fake hub leaves the text
// as it is.
func TestAnAssignmentThatCannotBeReadGoesBack(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]json.RawMessage{"deeper than may be": deep(api.MaxJSONDepth + 1),
		"deeper than a parser goes": deep(9_998)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := agenttest.NewHub(t, agenttest.Options{})
			start(t, hub, nil, map[string]agent.Handler{"echo": func(_ context.Context, task *agent.Task) (any,
				error) {
				return task.Payload, nil
			}})
			hub.WaitRegistered(1)
			hub.Assign(
				protocol.Assignment{TaskID: "poison", Type: "echo", Payload: payload},
				protocol.Assignment{TaskID: "good", Type: "echo", Payload: []byte(`7`), RetrySafety: api.Fenced},
			)
			require.Equal(t, api.AttemptCompleted, hub.WaitResult("good").Outcome)
			var returned []protocol.RunningAttempt
			require.Eventually(t, func() bool {
				returned = nil
				for _, p := range hub.Polls() {
					returned = append(returned, p.Returned...)
				}
				return len(returned) > 0
			}, 10*time.Second, 5*time.Millisecond)
			require.Equal(t, []protocol.RunningAttempt{{TaskID: "poison", Attempt: 1,
				Unreadable: api.ErrJSONDepth.Error()}}, returned)
			require.Len(t, hub.Registrations(), 1, "the session goes on")
		})
	}
}

// TestWhatIsNestedTooDeepIsNotSent has a handler save and return it: the hub would refuse the agent's polls with it.
func TestWhatIsNestedTooDeepIsNotSent(t *testing.T) {
	t.Parallel()
	hub := agenttest.NewHub(t, agenttest.Options{})
	start(t, hub, nil, map[string]agent.Handler{"deep": func(_ context.Context, task *agent.Task) (any, error) {
		if err := task.SaveCheckpoint(deep(api.MaxJSONValueDepth)); err != nil {
			return nil, err
		}
		if err := task.SaveCheckpoint(deep(api.MaxJSONValueDepth + 1)); !errors.Is(err, api.ErrJSONDepth) {
			return nil, fmt.Errorf("the checkpoint was taken: %w", err)
		}
		return deep(api.MaxJSONValueDepth + 1), nil
	}})
	hub.WaitRegistered(1)
	hub.Assign(assign("t", "deep"))
	result := hub.WaitResult("t")
	require.Equal(t, api.AttemptFailed, result.Outcome)
	require.True(t, result.NonRetryable)
	require.Contains(t, result.Error, "nested")
	state := agent.NewState()
	require.ErrorIs(t, state.SetConfiguration("a", deep(api.MaxJSONValueDepth+1)), api.ErrJSONDepth)
	require.NoError(t, state.SetConfiguration("a", deep(api.MaxJSONValueDepth)))
}
