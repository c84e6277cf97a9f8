package hub

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// bundleOf makes a delivery a bundle of elements.
func bundleOf(numbers ...int) func(*contract.RunTaskInput) {
	return func(in *contract.RunTaskInput) {
		for _, n := range numbers {
			in.Elements = append(in.Elements, api.Element{Number: n, ID: "a~.1", Attempt: 1})
		}
	}
}

func knowsBundles(r *protocol.Register) { r.Bundles = true }

func elements(results ...api.ElementResult) func(*resultInput) {
	return func(in *resultInput) { in.Body.Elements = results }
}

func TestBundlesGoToAgentsThatKnowThem(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 9).poll()
		able := b.register("b", 1, knowsBundles)
		given := able.give(aTask("a~.b1", bundleOf(3, 4)))
		require.Len(t, given.Elements, 2)
		require.Equal(t, 4, given.Elements[1].Number)
	})
}

func TestABundleThatNoAgentKnowsGoesBack(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1).poll()
		b.queue("lane/c", aTask("a~.b1", bundleOf(3, 4)))
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.True(t, b.reported()[0].Unhandled)
		require.Contains(t, b.reported()[0].Reason, "bundles")
	})
}

func TestResultsOfABundleReachTemporal(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1, knowsBundles)
		given := a.give(aTask("a~.b1", bundleOf(3, 4)))
		require.NoError(t, a.report(given, api.AttemptCompleted, elements(
			api.ElementResult{Number: 3, Outcome: api.AttemptCompleted, Output: json.RawMessage(`9`)},
			api.ElementResult{Number: 4, Outcome: api.AttemptFailed, Error: "no"})))
		require.Len(t, b.reported(), 1)
		require.Len(t, b.reported()[0].Elements, 2)
		require.JSONEq(t, `9`, string(b.reported()[0].Elements[0].Output))
		require.Equal(t, 1, a.session().serving.free)
	})
}

func TestResultsOfABundleAreChecked(t *testing.T) {
	done := func(n int) api.ElementResult {
		return api.ElementResult{Number: n, Outcome: api.AttemptCompleted}
	}
	for name, c := range map[string]struct {
		results []api.ElementResult
		code    string
	}{
		"of another bundle": {[]api.ElementResult{done(3), done(5)}, protocol.CodeInvalidRequest},
		"twice":             {[]api.ElementResult{done(3), done(3)}, protocol.CodeInvalidRequest},
		"of none":           {nil, protocol.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1, knowsBundles)
				given := a.give(aTask("a~.b1", bundleOf(3, 4)))
				requireCode(t, c.code, a.report(given, api.AttemptCompleted, elements(c.results...)))
				require.Empty(t, b.reported())
			})
		})
	}
}

// The results of all bundles under way are to fit into the history of the array's workflow. What an agent reports
// beyond its limit is delivered again, or fails if it is alone too large. Each takes 40 bytes beside its output.
func TestResultsOfABundleAreBounded(t *testing.T) {
	of := func(n, bytes int) api.ElementResult {
		return api.ElementResult{Number: n, Outcome: api.AttemptCompleted, Output: json.RawMessage(`"` +
			strings.Repeat("x", bytes-2) + `"`)}
	}
	failed := of(3, 90)
	failed.Outcome, failed.Error = api.AttemptFailed, strings.Repeat("x", 60)
	for name, c := range map[string]struct {
		limit   int
		results []api.ElementResult
		kept    []int // by the sizes of their outputs
	}{
		"as many as fit":     {180, []api.ElementResult{of(3, 50), of(4, 50)}, []int{50, 50}},
		"too large together": {180, []api.ElementResult{of(3, 50), of(4, 51)}, []int{50}},
		"too large alone":    {500, []api.ElementResult{of(3, 501), of(4, 50)}, []int{0, 50}},
		"of failures, none":  {500, []api.ElementResult{failed, of(4, 40)}, []int{0, 40}},
		"without a limit":    {0, []api.ElementResult{of(3, api.MaxPayloadBytes), of(4, 2)}, []int{api.MaxPayloadBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1, knowsBundles)
				given := a.give(aTask("a~.b1", bundleOf(3, 4), func(in *contract.RunTaskInput) { in.ResultLimit = c.limit }))
				require.Equal(t, c.limit, given.ResultLimit)
				require.NoError(t, a.report(given, api.AttemptCompleted, elements(c.results...)))
				var kept []int
				for _, r := range b.reported()[0].Elements {
					kept = append(kept, len(r.Output))
					if r.Outcome == api.AttemptFailed && r.Error != failed.Error {
						require.Contains(t, r.Error, "lower max_parallel")
						require.True(t, r.NonRetryable)
					}
				}
				require.Equal(t, c.kept, kept)
			})
		})
	}
}

func TestTheResultOfAnElementSaysWhichItIs(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("a~.7", func(in *contract.RunTaskInput) { in.Element = new(7) }))
		require.Equal(t, 7, *given.Element)
		require.NoError(t, a.report(given, api.AttemptCompleted, func(in *resultInput) {
			in.Body.Output, in.Body.EndedAt = json.RawMessage(`42`), in.Body.StartedAt.Add(time.Second)
		}))
		require.Equal(t, []api.ElementResult{{Number: 7, Outcome: api.AttemptCompleted, Output: json.RawMessage(`42`),
			Milliseconds: 1000}}, b.reported()[0].Elements)
	})
}

// The details of all heartbeats under way count against the 8 MiB at which Temporal ends a workflow, and an array may
// have 512.
func TestAnElementKeepsNoCheckpoint(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("a~.7", func(in *contract.RunTaskInput) { in.Element = new(7) }))
		a.poll(func(p *protocol.Poll) {
			p.Running = []protocol.RunningAttempt{{TaskID: given.TaskID, Attempt: 1, Checkpoint: json.RawMessage(`1`),
				Progress: &api.Progress{Percent: 50}}}
		})
		a.hangUp()
		b.pass(2 * time.Second)
		require.Len(t, b.reported(), 1)
		require.Empty(t, b.reported()[0].Checkpoint)
		require.EqualValues(t, 50, b.reported()[0].Progress.Percent)
	})
}

func TestResultsOfATaskHaveNoElements(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1, knowsBundles)
		given := a.give(aTask("t1"))
		requireCode(t, protocol.CodeInvalidRequest,
			a.report(given, api.AttemptCompleted, elements(api.ElementResult{Number: 0})))
	})
}
