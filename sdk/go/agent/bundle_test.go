package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// assignBundle is a bundle of so many elements, whose payloads are their numbers.
func assignBundle(task string, elements int) protocol.Assignment {
	a := assign(task, "work")
	for n := range elements {
		a.Elements = append(a.Elements, api.Element{Number: n, ID: "a~." + strconv.Itoa(n), Attempt: 2,
			Payload: json.RawMessage(strconv.Itoa(n))})
	}
	return a
}

// working runs an agent in a bubble with one handler, and gives it a bundle.
func working(t *testing.T, a protocol.Assignment, handler agent.Handler) (*agenttest.Hub, *bundle) {
	t.Helper()
	hub := agenttest.NewHub(t, agenttest.Options{InMemory: true})
	b := start(t, hub, inMemory(hub), map[string]agent.Handler{"work": handler})
	require.True(t, hub.WaitRegistered(1).Bundles)
	hub.Assign(a)
	return hub, b
}

func TestABundleRunsItsElementsOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []int
		hub, _ := working(t, assignBundle("a~.b1", 5), func(_ context.Context, task *agent.Task) (any, error) {
			var n int
			require.NoError(t, task.Decode(&n))
			require.Equal(t, "a~."+strconv.Itoa(n), task.ID)
			require.Equal(t, 2, task.Attempt)
			require.Equal(t, n, *task.Element)
			require.NoError(t, task.SaveCheckpoint("dropped"))
			order = append(order, n)
			switch n {
			case 1:
				return nil, agent.Typed("disk", errors.New("no space"))
			case 2:
				return nil, agent.NonRetryable(errors.New("no such file"))
			case 3:
				panic("oops")
			}
			return n * n, nil
		})
		result := hub.WaitResult("a~.b1")
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
		require.Equal(t, api.AttemptCompleted, result.Outcome)
		require.Len(t, result.Elements, 5)
		require.JSONEq(t, "16", string(result.Elements[4].Output))
		require.Equal(t, api.AttemptFailed, result.Elements[1].Outcome)
		require.Equal(t, "disk", result.Elements[1].ErrorType)
		require.False(t, result.Elements[1].NonRetryable)
		require.True(t, result.Elements[2].NonRetryable)
		require.Equal(t, agent.ErrorTypePanic, result.Elements[3].ErrorType)
		counters := hub.WaitPoll("without work", func(p protocol.Poll) bool { return p.Counters.Failed > 0 }).Counters
		require.Equal(t, protocol.Counters{Completed: 2, Failed: 3}, counters)
	})
}

func TestABundleThatTakesLongReportsWhatIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, _ := working(t, assignBundle("a~.b1", 10), func(context.Context, *agent.Task) (any, error) {
			pass(900 * time.Millisecond)
			return nil, nil
		})
		result := hub.WaitResult("a~.b1")
		require.Len(t, result.Elements, 3, "it reports after 2 s")
		require.EqualValues(t, 900, result.Elements[0].Milliseconds)
	})
}

func TestABundleWithMuchOutputReportsWhatIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, _ := working(t, assignBundle("a~.b1", 10), func(_ context.Context, task *agent.Task) (any, error) {
			return string(make([]byte, 25_000*(1+*task.Element))), nil // six bytes of JSON for each
		})
		result := hub.WaitResult("a~.b1")
		require.Len(t, result.Elements, 2)
		require.Equal(t, api.AttemptCompleted, result.Elements[1].Outcome)
	})
}

func TestABundleReportsBeforeItsResultsAreTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assignBundle("a~.b1", 10)
		a.ResultLimit = 60_000
		hub, _ := working(t, a, func(_ context.Context, task *agent.Task) (any, error) {
			return strings.Repeat("x", 10_000*(1+*task.Element)), nil
		})
		require.Len(t, hub.WaitResult("a~.b1").Elements, 2, "they have more than half of the limit: the next may have as much")
	})
}

func TestAnElementsOutputIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, _ := working(t, assignBundle("a~.b1", 2), func(context.Context, *agent.Task) (any, error) {
			return string(make([]byte, api.MaxElementOutput/6+1)), nil
		})
		result := hub.WaitResult("a~.b1").Elements[0]
		require.Equal(t, api.AttemptFailed, result.Outcome)
		require.True(t, result.NonRetryable)
		require.Contains(t, result.Error, "store it elsewhere")
	})
}

func TestTheTimeoutIsEachElements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assignBundle("a~.b1", 3)
		a.Timeout = api.Duration(time.Second)
		hub, _ := working(t, a, func(ctx context.Context, task *agent.Task) (any, error) {
			if *task.Element == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			pass(600 * time.Millisecond)
			return nil, nil
		})
		result := hub.WaitResult("a~.b1")
		require.Len(t, result.Elements, 3)
		require.Equal(t, api.AttemptTimedOut, result.Elements[1].Outcome)
		require.Equal(t, api.AttemptCompleted, result.Elements[2].Outcome)
		require.False(t, result.Elements[1].Stuck)
	})
}

func TestAStuckElementEndsItsBundleAndKeepsTheSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assignBundle("a~.b1", 3)
		a.Timeout = api.Duration(time.Second)
		release := make(chan struct{})
		hub, _ := working(t, a, func(_ context.Context, task *agent.Task) (any, error) {
			if *task.Element == 1 {
				<-release
			}
			return nil, nil
		})
		result := hub.WaitResult("a~.b1")
		require.Len(t, result.Elements, 2)
		require.True(t, result.Stuck)
		require.True(t, result.Elements[1].Stuck)
		require.Equal(t, api.AttemptTimedOut, result.Elements[1].Outcome)
		hub.WaitPoll("with the stuck bundle", func(p protocol.Poll) bool {
			return len(p.Running) == 1 && p.Running[0].State == protocol.RunningStuck
		})
		close(release)
		hub.WaitPoll("with a free slot", func(p protocol.Poll) bool { return len(p.Running) == 0 })
	})
}

func TestABundleThatIsCancelledReportsWhatIsDone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		at      int // the element that runs
		command protocol.CommandType
		outcome api.AttemptOutcome // "": nothing is reported
		done    int
	}{
		{"cancelled after two elements", 2, protocol.CommandCancel, api.AttemptCompleted, 2},
		{"cancelled before any element was done", 0, protocol.CommandCancel, api.AttemptCancelled, 0},
		{"dropped", 2, protocol.CommandDrop, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				hub, b := working(t, assignBundle("a~.b1", 5), func(ctx context.Context, task *agent.Task) (any, error) {
					if *task.Element < test.at {
						return nil, nil
					}
					return g.handle(ctx, task)
				})
				<-g.started
				hub.WaitRunning("a~.b1")
				hub.Command(protocol.Command{Type: test.command, TaskID: "a~.b1", Attempt: hub.Polls()[len(hub.Polls())-1].
					Running[0].Attempt})
				require.Error(t, <-g.cause)
				hub.WaitPoll("without work", func(p protocol.Poll) bool {
					return len(p.Running) == 0 && p.Sequence > 2
				})
				if test.outcome == "" {
					require.Empty(t, hub.Results())
				} else {
					result := hub.WaitResult("a~.b1")
					require.Equal(t, test.outcome, result.Outcome)
					require.Len(t, result.Elements, test.done)
				}
				require.Equal(t, 1, g.count(), "no other element begins")
				b.stop()
				require.NoError(t, b.ends())
			})
		})
	}
}
