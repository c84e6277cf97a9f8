package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

var badTask = &workflowservice.PollActivityTaskQueueResponse{TaskToken: []byte("bad/1"), Input: &commonpb.Payloads{
	Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte("{")}}}}

func releaseOf(cluster string) contract.ReleaseBrakeRequest {
	return contract.ReleaseBrakeRequest{Cluster: cluster}
}

// report reports an attempt's end.
func (p *peer) report(a protocol.Assignment, outcome api.AttemptOutcome, change ...func(*resultInput)) error {
	now := time.Now()
	in := &resultInput{Authorized: Authorized{ID: p.claims.Agent,
		Authorization: "Bearer " + p.b.seal.session(p.claims)}, TaskID: a.TaskID,
		Body: protocol.Result{Token: a.Token, Attempt: a.Attempt, Outcome: outcome, StartedAt: now, EndedAt: now}}
	for _, c := range change {
		c(in)
	}
	_, err := p.b.reportResult(p.b.t.Context(), in)
	return err
}

// TestEndsAreReportedWhateverAnAgentSays: a report that cannot be sent is repeated for two minutes, and others of
// the hub waited for it.
func TestEndsAreReportedWhateverAnAgentSays(t *testing.T) {
	for name, respond := range map[string]error{"Temporal takes it": nil, "not now": errors.New("not now")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				a.poll(lists(a.give(aTask("t1"))))
				b.temporal.mu.Lock()
				b.temporal.respond = respond
				b.temporal.mu.Unlock()
				b.mu.Lock()
				b.endLocked(a.session0(), ending{reason: "it died: \xff", at: time.Now()})
				b.mu.Unlock()
				b.pass(0)
				require.Equal(t, respond == nil, len(b.reported()) == 1)
				require.Empty(t, b.responder.slots, "it holds none while it pauses")
			})
		})
	}
}

func TestResultFreesTheSlotAndCountsOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		require.Zero(t, a.session().serving.free)
		require.NoError(t, a.report(given, api.AttemptCompleted,
			func(in *resultInput) { in.Body.Output = json.RawMessage(`42`) }))
		require.Equal(t, 1, a.session().serving.free)
		require.Len(t, b.reported(), 1)
		require.Equal(t, "completed", b.reported()[0].how)
		require.JSONEq(t, `42`, string(b.reported()[0].Output))
		require.Equal(t, "a", b.reported()[0].AgentID)

		requireCode(t, protocol.CodeSuperseded, a.report(given, api.AttemptCompleted))
		require.Len(t, b.reported(), 1)
		require.EqualValues(t, 1, b.counted("mainstay_hub_stale_results_total"))
		require.EqualValues(t, 1, b.counted("mainstay_hub_results_total"))
	})
}

// A result of an attempt that is over is kept where a person has to decide because of it.
func TestAResultThatComesLateIsKeptForTheReview(t *testing.T) {
	for name, c := range map[string]struct {
		safety  api.RetrySafety
		outcome api.AttemptOutcome
		decided bool
		kept    int
		says    string
	}{
		"at_most_once":       {api.AtMostOnce, api.AttemptCompleted, false, 1, "kept for the person who decides"},
		"unmarked":           {api.Unmarked, api.AttemptFailed, false, 1, "kept for the person who decides"},
		"it is decided":      {api.AtMostOnce, api.AttemptCompleted, true, 0, "no longer counts"},
		"idempotent":         {api.Idempotent, api.AttemptCompleted, false, 0, "no longer counts"},
		"it has not ended":   {api.AtMostOnce, api.AttemptCancelled, false, 0, "no longer counts"},
		"it ran out of time": {api.AtMostOnce, api.AttemptTimedOut, false, 0, "no longer counts"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				given := a.give(aTask("t1", func(in *contract.RunTaskInput) { in.Spec.RetrySafety = c.safety }))
				b.temporal.respond, b.temporal.decided = serviceerror.NewNotFound("over"), c.decided
				err := a.report(given, c.outcome,
					func(in *resultInput) { in.Body.Output, in.Body.Error = json.RawMessage(`42`), "broken" })
				requireCode(t, protocol.CodeSuperseded, err)
				require.ErrorContains(t, err, c.says)
				require.Len(t, b.temporal.late, c.kept)
				for _, late := range b.temporal.late {
					require.Equal(t, 1, late.Attempt)
					require.Equal(t, "a", late.AgentID)
					require.Equal(t, c.outcome, late.Outcome)
					require.Equal(t, c.outcome == api.AttemptCompleted, late.Result != nil)
					require.Equal(t, c.outcome == api.AttemptFailed, late.Reason == "broken")
				}
			})
		})
	}
}

func TestResultIsKeptWhileTemporalIsAway(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		b.temporal.respond = serviceerror.NewUnavailable("away")
		requireCode(t, protocol.CodeUnavailable, a.report(given, api.AttemptCompleted))
		require.NotNil(t, a.session().work.attempts[attemptKey{"t1", 1}], "the attempt is not over")
		b.temporal.respond = serviceerror.NewInvalidArgument("no")
		requireCode(t, protocol.CodeInvalidRequest, a.report(given, api.AttemptCompleted))
		b.temporal.respond = nil
		require.NoError(t, a.report(given, api.AttemptCompleted))
	})
}

func TestResultOfAnySessionNeedsItsOwnToken(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		given := a.give(aTask("t1"))
		for name, change := range map[string]func(*resultInput){
			"no bearer":       func(in *resultInput) { in.Authorization = in.Authorization[len("Bearer "):] },
			"another agent":   func(in *resultInput) { in.ID = "b" },
			"another task":    func(in *resultInput) { in.TaskID = "t2" },
			"another attempt": func(in *resultInput) { in.Body.Attempt = 2 },
			"another session": func(in *resultInput) {
				in.Authorization = "Bearer " + b.seal.session(sessionClaims{Hub: "hub-1", Agent: "a", Cluster: "c",
					Instance: "another", Epoch: 1})
			},
		} {
			require.Error(t, a.report(given, api.AttemptCompleted, change), name)
		}
		tooLarge := func(in *resultInput) { in.Body.Output = make([]byte, api.MaxPayloadBytes+1) }
		requireCode(t, protocol.CodePayloadTooLarge, a.report(given, api.AttemptCompleted, tooLarge))
		require.Empty(t, b.reported())
		require.NoError(t, a.report(given, api.AttemptCompleted))
	})
}

func TestFailedAndCancelledResults(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 3)
		failed := a.give(aTask("failed"))
		require.NoError(t, a.report(failed, api.AttemptFailed,
			func(in *resultInput) { in.Body.Error, in.Body.NonRetryable = "broken", true }))
		asked := a.give(aTask("asked"))
		b.cancelAttempt(a.session().work.attempts[attemptKey{"asked", 1}])
		b.pass(0) // the held poll brings the command
		require.NoError(t, a.report(asked, api.AttemptCancelled))
		own := a.give(aTask("own"))
		require.NoError(t, a.report(own, api.AttemptCancelled))
		got := b.reported()
		require.Len(t, got, 3)
		require.Equal(t, "broken", got[0].Reason)
		require.True(t, got[0].Final)
		require.Equal(t, "cancelled", got[1].how)
		require.Equal(t, "failed", got[2].how, "an agent that gives work up hands it to others")
		require.Equal(t, api.AttemptMoved, got[2].Outcome)
		require.Zero(t, *got[2].LeaseRemaining)
		require.False(t, got[2].Planned, "its lease ran out: that counts as a loss")
	})
}

// Rolling restarts of agents under a long task do not use up its transfers.
func TestGracefulStopIsNoLoss(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		a.poll(lists(given), func(p *protocol.Poll) { p.Stopping = true })
		require.NoError(t, a.report(given, api.AttemptCancelled))
		got := b.reported()
		require.Len(t, got, 1)
		require.Equal(t, api.AttemptMoved, got[0].Outcome)
		require.True(t, got[0].Planned)
		end := got[0].End()
		require.Equal(t, api.TaskQueued, task.Redeliver(&api.TaskSpec{}, "t1", task.Tally{Losses: 3}, end).Status)
	})
}

func TestBeatsAreRareAndBringTemporalsWord(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.start(beater{b.Hub})
		a := b.register("a", 3)
		keep := func(given ...protocol.Assignment) []protocol.Command {
			for begun := time.Now(); time.Since(begun) < 2*beatRenew; {
				if commands := (<-a.poll(lists(given...))).Commands; len(commands) > 0 {
					return commands
				}
			}
			return nil
		}
		beats := func() int {
			b.temporal.mu.Lock()
			defer b.temporal.mu.Unlock()
			return b.temporal.beats["t1/1"]
		}
		first := a.give(aTask("t1"))
		b.pass(beatFirst + beatTick)
		require.Equal(t, 1, beats(), "one soon, to show who runs it")
		require.LessOrEqual(t, beatFirst+beatTick, 250*time.Millisecond)
		other := b.register("b", 1)
		quick := other.give(aTask("quick"))
		b.pass(beatFirst - time.Millisecond)
		b.settled(other.claims, attemptKey{"quick", 1}, api.AttemptCompleted)
		b.pass(keepFirst)
		require.Zero(t, b.temporal.beats[quick.TaskID+"/1"], "what ends soon costs no write")
		require.Empty(t, keep(first))
		require.InDelta(t, 3, beats(), 1)

		b.temporal.mu.Lock()
		b.temporal.beat = func(string) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
			return &workflowservice.RecordActivityTaskHeartbeatResponse{CancelRequested: true}, nil
		}
		b.temporal.mu.Unlock()
		commands := keep(first)
		require.NotEmpty(t, commands)
		require.Equal(t, protocol.CommandCancel, commands[0].Type)
		b.temporal.mu.Lock()
		b.temporal.beat = func(string) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
			return nil, serviceerror.NewNotFound("gone")
		}
		b.temporal.mu.Unlock()
		commands = keep(first)
		require.Equal(t, protocol.CommandDrop, commands[0].Type)
		require.Empty(t, a.session().work.attempts)
		require.Empty(t, b.reported(), "there is nobody left to tell")
	})
}

// A result that is larger than its task allows does not get into the history of the task's run. It fails the attempt.
func TestAResultBeyondItsLimitFails(t *testing.T) {
	for name, limit := range map[string]int{"beyond": 10, "within": 11, "no limit": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1)
				given := a.give(aTask("t1", func(in *contract.RunTaskInput) { in.ResultLimit = limit }))
				require.NoError(t, a.report(given, api.AttemptCompleted,
					func(in *resultInput) { in.Body.Output = json.RawMessage(`"123456789"`) }))
				got := b.reported()[0]
				if name != "beyond" {
					require.Equal(t, "completed", got.how)
					return
				}
				require.Equal(t, "failed", got.how)
				require.True(t, got.Final)
				require.Empty(t, got.Output)
				require.Contains(t, got.Reason, "its result has 11 bytes, and result_limit allows 10")
			})
		})
	}
}

// The output of an attempt that failed is nobody's: an agent could fill the history of its run with it.
func TestAFailureHasNoOutput(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		require.NoError(t, a.report(a.give(aTask("t1")), api.AttemptFailed, func(in *resultInput) {
			in.Body.Output = json.RawMessage(`"` + strings.Repeat("x", api.MaxPayloadBytes-2) + `"`)
		}))
		require.Equal(t, "failed", b.reported()[0].how)
		require.Empty(t, b.reported()[0].Output)
	})
}

// The end of a bundle takes what the array's history has room for, and 16 KiB beside its log, whatever its agent says.
func TestTheEndOfABundleIsBounded(t *testing.T) {
	const limit, beside = 49152, 16 << 10
	text := func(char string) string { return strings.Repeat(char, 8192) }
	large := json.RawMessage(`"` + strings.Repeat("x", limit-2) + `"`)
	done := func(n int) api.ElementResult {
		return api.ElementResult{Number: n, Outcome: api.AttemptCompleted}
	}
	failed := func(n int) api.ElementResult {
		return api.ElementResult{Number: n, Outcome: api.AttemptFailed, Error: text(`"`), ErrorType: "\x01"}
	}
	var numbers []int
	var all []api.ElementResult
	for n := range api.MaxBundle {
		numbers, all = append(numbers, n), append(all, done(n))
	}
	for name, c := range map[string]struct {
		result protocol.Result
		kept   int // elements
	}{
		"an output of the whole": {protocol.Result{Output: large,
			Elements: []api.ElementResult{{Number: 0, Outcome: api.AttemptCompleted, Output: large}, done(1)}}, 1},
		"a whole that is too large": {protocol.Result{Output: append(slices.Clone(large), ' '),
			Elements: []api.ElementResult{done(0), done(1)}}, 2},
		"an error of what completed": {protocol.Result{Error: text("\U0001F642"), Elements: []api.ElementResult{
			{Number: 0, Outcome: api.AttemptCompleted, Output: large, Error: text("\U0001F642")}}}, 1},
		"errors as JSON": {protocol.Result{
			Elements: []api.ElementResult{failed(0), failed(1), failed(2), failed(3)}}, 2},
		"what is not outputs":    {protocol.Result{Elements: all}, api.MaxBundle},
		"one element, as a task": {protocol.Result{Output: large}, 1},
		"a failure of the whole": {protocol.Result{Outcome: api.AttemptFailed, Error: text("\U0001F642")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 1, knowsBundles)
				given := a.give(aTask("a~.b1", bundleOf(numbers[:max(1, len(c.result.Elements))]...),
					func(in *contract.RunTaskInput) { in.ResultLimit = limit }))
				require.NoError(t, a.report(given, cmp.Or(c.result.Outcome, api.AttemptCompleted), func(in *resultInput) {
					r := &in.Body
					r.Output, r.Error, r.ErrorType, r.Elements = c.result.Output, c.result.Error, c.result.ErrorType,
						slices.Clone(c.result.Elements)
				}))
				report := b.reported()[0].AttemptReport
				p, err := store.AttemptPayloads(report, nil)
				require.NoError(t, err)
				require.LessOrEqual(t, len(p.Payloads[0].Data)+len(report.Reason), limit+beside, "a failure says why twice")
				require.Len(t, report.Elements, c.kept)
				for _, e := range report.Elements {
					require.Equal(t, e.Outcome == api.AttemptFailed, e.Error != "")
				}
			})
		})
	}
}

// What an attempt leaves in Temporal has a bound as JSON, in which control characters take six bytes each. Ordinary
// text of 64 KiB stays whole.
func TestWhatAnAttemptLeavesIsBounded(t *testing.T) {
	for name, char := range map[string]string{"text": "x", "control characters": "\x01"} {
		t.Run(name, func(t *testing.T) {
			var log []api.LogLine
			for n := range int64(api.MaxLogLines) {
				log = append(log, api.LogLine{Number: n + 1, At: time.Now(), Stream: "stdout", Text: strings.Repeat(char, 131)})
			}
			for _, c := range []struct {
				claims attemptClaims
				most   int
				whole  bool
			}{
				{attemptClaims{}, 128 << 10, name == "text"},
				{attemptClaims{ResultLimit: 40_000}, 128 << 10, name == "text"},
				{attemptClaims{ResultLimit: 480_000, Elements: []int{1}}, 120_000, name == "text"},
				{attemptClaims{ResultLimit: 40_000, Elements: []int{1}}, 10_000, false},
			} {
				got := boundLog(log, c.claims.logLimit())
				require.Equal(t, log[len(log)-1].Number, got[len(got)-1].Number, "the end is kept")
				kept, err := json.Marshal(got)
				require.NoError(t, err)
				require.LessOrEqual(t, len(kept), c.most)
				require.Greater(t, len(kept), c.most/2)
				require.Equal(t, c.whole, len(got) == len(log))
			}
		})
	}
}
