//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const arraysPath = "/api/v1/agents/arrays"

// poisonLosses is how many agents an element may end until it is a dead letter.
const poisonLosses = 5

// arrayWork is one array of the workload and what became of it.
type arrayWork struct {
	key    string
	safety api.RetrySafety
	items  []work
	at     time.Duration
	// transfers bounds the agents that an element may be lost with; 0: as Mainstay bounds them.
	transfers int

	id       string // set once acknowledged
	seen     apiArray
	statuses []api.ElementStatus // of its elements
	results  []apiResult
}

// apiArray is an array as the API answers it.
type apiArray struct {
	ID     string            `json:"id"`
	Status api.ArrayStatus   `json:"status"`
	Why    string            `json:"why"`
	Counts api.ElementCounts `json:"counts"`
}

// apiResult is a result of an element as the API answers it.
type apiResult struct {
	Element int  `json:"element"`
	Output  done `json:"output"`
}

func newArray(key string, safety api.RetrySafety, elements, ms int) *arrayWork {
	a := &arrayWork{key: key, safety: safety}
	for n := range elements {
		a.items = append(a.items, work{MS: ms, Nonce: fmt.Sprintf("%s-%d", key, n)})
	}
	return a
}

// planArrays makes the arrays: of all safeties, some of whose elements fail at first.
func planArrays(random *rand.Rand, n int, duration time.Duration) []*arrayWork {
	all := make([]*arrayWork, n)
	safeties := []api.RetrySafety{api.Idempotent, api.Fenced, api.AtMostOnce}
	for i := range all {
		a := newArray(fmt.Sprintf("array-%d", i), safeties[i%len(safeties)], []int{200, 60, 20}[i%len(safeties)], 0)
		a.transfers = 20 // a long run ends many agents, whatever they run
		a.at = time.Duration(float64(duration) * float64(i) / float64(n))
		for n := range a.items {
			if a.items[n].MS = random.IntN(200); a.safety == api.Idempotent && random.IntN(40) == 0 {
				a.items[n].Fail = failFirst
			}
		}
		all[i] = a
	}
	return all
}

// submitArrays submits every array at its time.
func (in *installation) submitArrays(ctx context.Context, arrays []*arrayWork) {
	begun := time.Now()
	var wg sync.WaitGroup
	for i, a := range arrays {
		if !pause(ctx, time.Until(begun.Add(a.at))) {
			break
		}
		wg.Go(func() { in.submitArray(ctx, a, clusterAll, i) })
	}
	wg.Wait()
}

// submitArray sends one key again until it is acknowledged.
func (in *installation) submitArray(ctx context.Context, a *arrayWork, cluster string, first int) {
	body := map[string]any{"type": "work", "cluster": cluster, "items": a.items, "retry_safety": a.safety,
		"idempotency_key": a.key, "timeout": "60s",
		"retry": map[string]any{"max_attempts": 2, "max_transfers": cmp.Or(a.transfers, api.DefaultMaxTransfers),
			"initial_interval": "200ms", "max_interval": "1s"}}
	for try := first; ctx.Err() == nil; try++ {
		status, err := in.call(try, http.MethodPost, arraysPath, body, &a.seen)
		if err == nil && status < 300 && a.seen.ID != "" {
			a.id = a.seen.ID
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// settleArrays waits until every array has ended or waits for a person, and reads what came of its elements. With
// retry, dead letters run again. It returns how many arrays are still open.
func (in *installation) settleArrays(ctx context.Context, arrays []*arrayWork, limit time.Duration, retry bool) int {
	deadline := time.Now().Add(limit)
	for round := 0; ; round++ {
		open := 0
		for _, a := range arrays {
			path := arraysPath + "/" + a.id
			if a.id == "" || a.statuses != nil {
				continue
			}
			open++
			status, err := in.call(round, http.MethodGet, path, nil, &a.seen)
			switch {
			case err != nil || status != http.StatusOK || !a.seen.Status.Final() && a.seen.Status != api.ArrayBlocked:
			case retry && a.seen.Counts.DeadLetter > 0:
				_, _ = in.call(round, http.MethodPost, path+"/retry", nil, nil)
			case in.readArray(round, a) == nil:
				open--
			}
		}
		if open == 0 || time.Now().After(deadline) || !pause(ctx, 250*time.Millisecond) {
			return open
		}
	}
}

// readArray reads the statuses and the results of an array's elements.
func (in *installation) readArray(i int, a *arrayWork) error {
	var statuses []api.ElementStatus
	a.results = nil
	for _, list := range []string{"elements", "results"} {
		for token, more := "", true; more; more = token != "" {
			var page struct {
				Elements []api.ElementEntry `json:"elements"`
				Results  []apiResult        `json:"results"`
				Next     string             `json:"next_page_token"`
			}
			path := fmt.Sprintf("%s/%s/%s?page_token=%s", arraysPath, a.id, list, token)
			if status, err := in.call(i, http.MethodGet, path, nil, &page); err != nil || status != http.StatusOK {
				return fmt.Errorf("read the %s: status %d, %w", list, status, err)
			}
			for _, e := range page.Elements {
				statuses = append(statuses, e.Status)
			}
			a.results = append(a.results, page.Results...)
			token = page.Next
		}
	}
	a.statuses = statuses
	return nil
}

// acknowledge notes which elements completed by a result that a hub has accepted.
func (w *wire) acknowledge(path string, body []byte) {
	var r protocol.Result
	_, task, _ := strings.Cut(strings.TrimSuffix(path, "/result"), "/tasks/")
	owner, _, element := strings.Cut(task, array.Mark)
	if json.Unmarshal(body, &r) != nil || !element {
		return
	}
	if _, number, single := array.ElementOf(task); single {
		r.Elements = []api.ElementResult{{Number: number, Outcome: r.Outcome}}
	}
	now := monotonic()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range r.Elements {
		id := array.ElementID(owner, r.Elements[i].Number)
		if _, known := w.acked[id]; !known && r.Elements[i].Outcome == api.AttemptCompleted {
			w.acked[id] = now
		}
	}
}

// acknowledged is when hubs first acknowledged that each element completed.
func (in *installation) acknowledged() map[string]int64 {
	all := map[string]int64{}
	for _, m := range in.agents {
		m.wire.mu.Lock()
		for id, at := range m.wire.acked {
			if first, known := all[id]; !known || at < first {
				all[id] = at
			}
		}
		m.wire.mu.Unlock()
	}
	return all
}

// judgeArray is I14: each element of an acknowledged array completes, or waits for a person; it has one result, of an
// attempt of its own; and none begins again after a hub has acknowledged that it completed.
func (v *verdict) judgeArray(a *arrayWork, byTask map[string][]ran, lives lifetimes, acked map[string]int64) {
	v.arrayOutcomes[a.seen.Status]++
	if len(a.statuses) != len(a.items) {
		v.blame(&v.elementEnds, "array %s does not end: it is %q (%s), %+v", a.key, a.seen.Status, a.seen.Why,
			a.seen.Counts)
		return
	}
	results := map[int][]done{}
	for _, r := range a.results {
		results[r.Element] = append(results[r.Element], r.Output)
	}
	for n, status := range a.statuses {
		id := array.ElementID(a.id, n)
		attempts := byTask[id]
		v.elements += len(attempts)
		v.judgeBegins(&job{id: id, safety: a.safety}, attempts, lives)
		at, isAcked := acked[id]
		if last := attempts[max(0, len(attempts)-1):]; isAcked && len(last) > 0 && last[0].begin > at {
			v.blame(&v.elementsAgain, "element %s began again %.0f ms after it was acknowledged: %s", id,
				float64(last[0].begin-at)/1e6, told(attempts))
		}
		switch {
		case status == api.ElementCompleted && len(results[n]) == 1:
			v.judgeElementResult(&a.items[n], id, attempts, &results[n][0])
			continue
		case len(results[n]) > 0 || status == api.ElementCompleted || isAcked:
			v.blame(&v.elementResults, "element %s is %s, has %d results, and acknowledged is %t: %s", id, status,
				len(results[n]), isAcked, told(attempts))
		}
		switch {
		case status == api.ElementReview && a.safety == api.AtMostOnce:
		case status == api.ElementDeadLetter && a.items[n].Exit:
		default:
			v.blame(&v.elementEnds, "element %s is %s: %s", id, status, told(attempts))
		}
	}
}

// judgeElementResult holds a result to the attempts of its element.
func (v *verdict) judgeElementResult(todo *work, id string, attempts []ran, result *done) {
	if result.Nonce != todo.Nonce || !slices.ContainsFunc(attempts, func(a ran) bool {
		return a.how == "done" && a.pid == result.PID && a.number == result.Attempt
	}) {
		v.blame(&v.elementResults, "element %s has a result that no attempt had: %+v; %s", id, result, told(attempts))
	}
}

// arraysLine tells of the arrays.
func (v *verdict) arraysLine(n int) string {
	return fmt.Sprintf("arrays %d with %d begins of elements: %v · begun again %d · wrong results %d · wrong ends %d", n,
		v.elements, v.arrayOutcomes, v.elementsAgain, v.elementResults, v.elementEnds)
}

// startArray submits an array, and waits until an element of it has begun.
func (g *stage) startArray(t *testing.T, a *arrayWork) line {
	t.Helper()
	g.arrays = append(g.arrays, a)
	g.submitArray(g.ctx, a, clusterAll, 0)
	l, found := g.await(20*time.Second, func(l line) bool {
		owner, _, ok := array.ElementOf(l.Task)
		return l.Kind == lineBegin && ok && owner == a.id
	})
	require.True(t, found, "an element begins")
	return l
}

func (g *stage) arrayVerdict(t *testing.T, limit time.Duration, retry bool) *verdict {
	t.Helper()
	g.settleArrays(g.ctx, g.arrays, limit, retry)
	return g.verdict(t, 0)
}

// arrayThroughRestart kills the control plane in the middle of an array of four bundles, which agents report without
// their last elements.
func arrayThroughRestart(t *testing.T, g *stage) []string {
	a := newArray("restart", api.Idempotent, 16, 750)
	for n := 3; n < len(a.items); n += 4 {
		a.items[n].MS = 4000
	}
	g.startArray(t, a)
	require.Eventually(t, func() bool { return len(g.acknowledged()) > 0 }, 20*time.Second, 10*time.Millisecond,
		"elements are acknowledged")
	// Nothing is on its way to an agent once the last elements have begun. With a planted bug they may not.
	for n := 3; n < len(a.items); n += 4 {
		g.await(5*time.Second, func(l line) bool { return l.Kind == lineBegin && l.Task == array.ElementID(a.id, n) })
	}
	g.planes[0].current().kill()
	g.planes[0].up()
	g.awaitReady(t, 0)
	return g.arrayVerdict(t, 45*time.Second, true).problems
}

// arrayLosesAgent kills the agent of elements that must not begin twice.
func arrayLosesAgent(t *testing.T, g *stage) []string {
	first := g.startArray(t, newArray("once", api.AtMostOnce, 8, 1200))
	g.agentNamed(first.Agent).current().kill()
	v := g.arrayVerdict(t, 30*time.Second, false)
	if g.arrays[0].seen.Counts.Review == 0 {
		v.problems = append(v.problems, "no element waits for a person")
	}
	return v.problems
}

// poisonInArray has one of many elements end its agents, which are started again.
func poisonInArray(t *testing.T, g *stage) []string {
	a := newArray("poison", api.Idempotent, *flagPoison, 3)
	poison := len(a.items) * 3 / 4
	a.items[poison].Exit = true
	var lost atomic.Int32
	var restarting sync.WaitGroup
	over := make(chan struct{})
	for _, m := range g.agents {
		restarting.Go(func() {
			for {
				select {
				case <-m.current().gone:
					lost.Add(1)
					m.up(t)
				case <-over:
					return
				}
			}
		})
	}
	g.startArray(t, a)
	v := g.arrayVerdict(t, 45*time.Second, false)
	close(over)
	restarting.Wait()
	if lost.Load() > poisonLosses {
		v.problems = append(v.problems, fmt.Sprintf("%d agents were lost", lost.Load()))
	}
	if a.seen.Counts.DeadLetter != 1 {
		v.problems = append(v.problems, fmt.Sprintf("%d elements are dead letters", a.seen.Counts.DeadLetter))
	}
	t.Logf("%d elements, %d agents lost, %d dead letters", len(a.items), lost.Load(), a.seen.Counts.DeadLetter)
	return v.problems
}

// TestOraclesSeeWhatArraysMustNotDo gives the oracle of arrays stories with one fault each.
func TestOraclesSeeWhatArraysMustNotDo(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	for name, c := range map[string]struct {
		safety api.RetrySafety
		change func(a *arrayWork, lines *[]line, acked map[string]int64)
		blamed func(*verdict) int // nil: nothing may be blamed
	}{
		"a clean array": {api.Idempotent, nil, nil},
		"never ended": {api.Idempotent, func(a *arrayWork, _ *[]line, _ map[string]int64) { a.statuses = nil },
			func(v *verdict) int { return v.elementEnds }},
		"an element is lost": {api.Idempotent, func(a *arrayWork, _ *[]line, acked map[string]int64) {
			a.statuses[1], a.results = api.ElementRunning, a.results[:1]
			delete(acked, "a~.1")
		}, func(v *verdict) int { return v.elementEnds }},
		"a neighbour is blamed": {api.Idempotent, func(a *arrayWork, _ *[]line, acked map[string]int64) {
			a.statuses[1], a.results = api.ElementDeadLetter, a.results[:1]
			delete(acked, "a~.1")
		}, func(v *verdict) int { return v.elementEnds }},
		"the poison is blamed": {api.Idempotent, func(a *arrayWork, _ *[]line, acked map[string]int64) {
			a.statuses[1], a.results, a.items[1].Exit = api.ElementDeadLetter, a.results[:1], true
			delete(acked, "a~.1")
		}, nil},
		"acknowledged and gone": {api.AtMostOnce, func(a *arrayWork, _ *[]line, _ map[string]int64) {
			a.statuses[1], a.results = api.ElementReview, a.results[:1]
		}, func(v *verdict) int { return v.elementResults }},
		"completed without a result": {api.Idempotent, func(a *arrayWork, _ *[]line, _ map[string]int64) {
			a.results = a.results[:1]
		}, func(v *verdict) int { return v.elementResults }},
		"two results": {api.Idempotent, func(a *arrayWork, _ *[]line, _ map[string]int64) {
			a.results = append(a.results, a.results[0])
		}, func(v *verdict) int { return v.elementResults }},
		"a result of nobody": {api.Idempotent, func(a *arrayWork, _ *[]line, _ map[string]int64) {
			a.results[0].Output.PID = 9
		}, func(v *verdict) int { return v.elementResults }},
		"another's result": {api.Idempotent, func(a *arrayWork, _ *[]line, _ map[string]int64) {
			a.results[0].Output.Nonce = "n-1"
		}, func(v *verdict) int { return v.elementResults }},
		"begun again": {api.Idempotent, func(_ *arrayWork, lines *[]line, _ map[string]int64) {
			*lines = append(*lines, line{Kind: lineBegin, Task: "a~.0", Attempt: 2, PID: 1, NS: 99 * ms})
		}, func(v *verdict) int { return v.elementsAgain }},
		"at most once, twice": {api.AtMostOnce, func(_ *arrayWork, lines *[]line, _ map[string]int64) {
			*lines = append(*lines, line{Kind: lineBegin, Task: "a~.0", Attempt: 2, PID: 1, NS: 2 * ms})
		}, func(v *verdict) int { return v.doubleBegins }},
		"fenced, two at once": {api.Fenced, func(_ *arrayWork, lines *[]line, _ map[string]int64) {
			*lines = append(*lines, line{Kind: lineBegin, Task: "a~.0", Attempt: 2, PID: 2, NS: 2 * ms})
		}, func(v *verdict) int { return v.overlaps }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArray("n", c.safety, 2, 1)
			a.id, a.seen.Status = "a", api.ArrayCompleted
			var lines []line
			acked := map[string]int64{}
			for n := range a.items {
				id := array.ElementID("a", n)
				lines = append(lines, line{Kind: lineBegin, Task: id, Attempt: 1, PID: 1, NS: int64(n*10+1) * ms},
					line{Kind: lineEnd, Task: id, Attempt: 1, PID: 1, NS: int64(n*10+5) * ms, Note: "done"})
				acked[id] = 50 * ms
				a.statuses = append(a.statuses, api.ElementCompleted)
				a.results = append(a.results, apiResult{n, done{PID: 1, Attempt: 1, Nonce: a.items[n].Nonce}})
			}
			if c.change != nil {
				c.change(a, &lines, acked)
			}
			v := judge(evidence{arrays: []*arrayWork{a}, lines: lines, acked: acked})
			if c.blamed == nil {
				require.Empty(t, v.problems)
				return
			}
			require.Positive(t, c.blamed(v), "%v", v.problems)
		})
	}
}
