package hub

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/tasklog"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// reading is the result of reading a log, and how long it took.
type reading struct {
	contract.ReadLogResult
	err  error
	took time.Duration
}

func (b *bench) read(after int64, wait time.Duration) <-chan reading {
	done := make(chan reading, 1)
	begun := time.Now()
	go func() {
		result, err := b.logs.Read(b.t.Context(), contract.ReadLogInput{TaskID: "t1", Attempt: 1, After: after,
			Wait: api.Duration(wait)})
		done <- reading{result, err, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

// sendLog sends lines with these numbers, and reports whether more are wanted.
func (p *peer) sendLog(numbers ...int64) bool {
	p.b.t.Helper()
	in := &logInput{Authorized: Authorized{ID: p.claims.Agent, Authorization: "Bearer " + p.b.seal.session(p.claims)},
		TaskID: "t1", Body: protocol.Log{Attempt: 1}}
	for _, n := range numbers {
		in.Body.Lines = append(in.Body.Lines, api.LogLine{Number: n, At: time.Now(), Text: fmt.Sprint("line ", n)})
	}
	out, err := p.b.sendLog(p.b.t.Context(), in)
	require.NoError(p.b.t, err)
	synctest.Wait()
	return out.Body.Watching
}

func numbers(r reading) []int64 {
	var list []int64
	for _, line := range r.Lines {
		list = append(list, line.Number)
	}
	return list
}

func TestLogIsReadFromTheAgent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		require.False(t, a.sendLog(1), "nobody watches")
		held := a.poll(lists(given))
		got := b.read(0, 20*time.Second)
		require.Equal(t, []protocol.Command{{Type: protocol.CommandLog, TaskID: "t1", Attempt: 1,
			Hold: api.Duration(tasklog.Interest)}}, (<-held).Commands)
		require.True(t, a.sendLog(2, 1, 3))
		first := <-got
		require.NoError(t, first.err)
		require.Zero(t, first.took)
		require.Equal(t, []int64{1, 2, 3}, numbers(first))
		require.Equal(t, "a", first.AgentID)
		require.False(t, first.Gone || first.Silent)

		got = b.read(3, 20*time.Second)
		a.poll(lists(given))
		b.pass(4 * time.Second)
		require.True(t, a.sendLog(3, 4)) // one of them again
		b.pass(100 * time.Millisecond)
		second := <-got
		require.Equal(t, []int64{4}, numbers(second))
		require.Less(t, second.took, 4*time.Second+tasklog.Gather)

		a.poll(lists(given))
		require.Empty(t, (<-b.read(4, 0)).Lines)
		require.Equal(t, []int64{2, 3, 4}, numbers(<-b.read(1, 0)))

		got = b.read(4, 20*time.Second)
		a.poll(lists(given))
		a.sendLog(5)
		b.pass(100 * time.Millisecond)
		a.sendLog(6)
		both := <-got
		require.Equal(t, []int64{5, 6}, numbers(both), "what comes at once is one answer")
		require.Less(t, both.took, time.Second)
	})
}

// Readings whose clients have gone wait on. They leave room for what else the hub is asked to do.
func TestNotAllReadingsOfLogsWait(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		waiting := make([]<-chan reading, 200)
		waiting[0] = b.read(1, time.Minute)
		a.poll(lists(given))
		a.sendLog(1)
		for n := range waiting[1:] {
			waiting[n+1] = b.read(1, time.Minute)
		}
		require.Zero(t, (<-b.read(1, time.Minute)).took)
		a.poll(lists(given))
		b.pass(10 * time.Second)
		a.sendLog(2)
		b.pass(time.Second)
		for _, r := range waiting {
			require.Equal(t, []int64{2}, numbers(<-r))
		}
	})
}

func TestLogEndsWithItsAttempt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		got := b.read(0, 20*time.Second)
		a.sendLog()
		a.poll(lists(given))
		a.sendLog(1)
		require.Equal(t, []int64{1}, numbers(<-got))
		got = b.read(1, 20*time.Second)
		require.NoError(t, a.report(given, api.AttemptCompleted))
		end := <-got
		require.True(t, end.Gone)
		require.Less(t, end.took, time.Second)
		a.sendLog(2) // a straggler
		require.Equal(t, []int64{2}, numbers(<-b.read(1, 20*time.Second)), "the end is kept for a while")
		b.pass(tasklog.Interest + time.Second)
		late := <-b.read(0, 20*time.Second)
		require.Equal(t, contract.ReadLogResult{Gone: true}, late.ReadLogResult, "nothing of it is left")
		require.Zero(t, late.took)
	})
}

func TestLogOfAnAgentThatDoesNotAnswer(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		a.give(aTask("t1"))
		got := b.read(0, 0)
		b.pass(tasklog.Answer + time.Second)
		end := <-got
		require.True(t, end.Silent)
		require.False(t, end.Gone)
		require.Empty(t, end.Lines)
		require.InDelta(t, tasklog.Answer, end.took, float64(tasklog.Look))
	})
}

func TestLogInTheHubIsBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		<-func() <-chan reading {
			got := b.read(0, time.Second)
			a.sendLog(1)
			return got
		}()
		for n := int64(2); n < 3*api.MaxLogLines; n++ {
			a.sendLog(n)
		}
		got := <-b.read(0, 0)
		require.Len(t, got.Lines, api.MaxLogLines)
		a.poll(lists(given))
	})
}

// The output of every attempt goes into history with the attempt's end: what the result brings, or else what was sent.
func TestOutputIsKeptWithTheAttempt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.start(beater{b.Hub})
		given := map[string]protocol.Assignment{}
		agents := map[string]*peer{}
		for _, id := range []string{"t1", "t2", "t3"} { // each agent has one slot
			agents[id] = b.register("agent-of-"+id, 1)
			given[id] = agents[id].give(aTask(id))
		}
		held := agents["t1"].poll(lists(given["t1"]))
		b.pass(keepFirst + beatSweep*beatTick)
		asked := (<-held).Commands
		require.Len(t, asked, 1, "what runs for a while is asked for its output")
		require.NotZero(t, asked[0].Every)
		require.True(t, agents["t1"].sendLog(1, 2))
		for id, outcome := range map[string]api.AttemptOutcome{"t2": api.AttemptFailed, "t3": api.AttemptCompleted} {
			_, err := b.reportResult(t.Context(), &resultInput{
				Authorized: Authorized{ID: agents[id].claims.Agent,
					Authorization: "Bearer " + b.seal.session(agents[id].claims)},
				TaskID: id,
				Body: protocol.Result{Token: given[id].Token, Attempt: 1, Outcome: outcome,
					Log: []api.LogLine{{Number: 8, Text: "first"}, {Number: 9, Text: "last"}}},
			})
			require.NoError(t, err)
		}
		agents["t1"].poll() // it no longer has its attempt
		b.pass(time.Second)
		kept := map[string]int{}
		for _, r := range b.reported() {
			kept[r.token+" "+string(r.Outcome)] = len(r.log)
		}
		require.Equal(t, map[string]int{"t1/1 lost": 2, "t2/1 failed": 2, "t3/1 completed": 2}, kept)
	})
}

func TestLogOfAnotherAgentsAttemptIsNotTaken(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1"))
		other := b.register("b", 1)
		got := b.read(0, time.Second)
		require.False(t, other.sendLog(1, 2))
		b.pass(time.Second)
		a.poll(lists(given))
		a.sendLog(1)
		require.Equal(t, []int64{1}, numbers(<-got))
	})
}
