package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
	"mainstay.dev/sdk/protocol"
)

// arrays is a node with a cluster, and a client of it. It counts how often each element began.
type arrays struct {
	*client.Client
	node    *plane.Node
	cluster string

	mu    sync.Mutex
	begun map[int]int
}

func newArrays(t *testing.T) *arrays {
	t.Helper()
	a := &arrays{node: plane.NewNode(t, plane.NodeOptions{}), begun: map[int]int{}}
	a.cluster = a.node.EnsureCluster(t, api.ClusterConfig{Brake: api.BrakePolicy{Share: 1}})
	var err error
	a.Client, err = client.New(client.Options{URL: a.node.URL})
	require.NoError(t, err)
	return a
}

// agent starts an agent on a network, with one handler of the type work.
func (a *arrays) agent(t *testing.T, n *network, slots int, handler agent.Handler) {
	t.Helper()
	startAgent(t, agent.Options{HubURLs: []string{a.node.URL}, Cluster: a.cluster, ID: plane.UniqueID("a"), Slots: slots,
		StopTimeout: time.Millisecond, DialContext: n.dial},
		map[string]agent.Handler{"work": func(ctx context.Context, task *agent.Task) (any, error) {
			a.mu.Lock()
			a.begun[*task.Element]++
			a.mu.Unlock()
			return handler(ctx, task)
		}})
}

// begins are how often the elements began, by their numbers.
func (a *arrays) begins() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := map[int]int{}
	for n, times := range a.begun {
		begun[n] = times
	}
	return begun
}

// submit submits an array of work.
func (a *arrays) submit(t *testing.T, change func(*api.ArrayRequest)) string {
	t.Helper()
	r := &api.ArrayRequest{TaskSpec: api.TaskSpec{Type: "work", Cluster: a.cluster,
		Retry: api.RetryPolicy{MaxAttempts: 2, InitialInterval: api.Duration(10 * time.Millisecond)}}}
	change(r)
	submitted, err := a.Arrays.Submit(t.Context(), r)
	require.NoError(t, err)
	return submitted.ID
}

// becomes waits until an array has a status.
func (a *arrays) becomes(t *testing.T, id string, status api.ArrayStatus) *api.Array {
	t.Helper()
	var got *api.Array
	require.Eventually(t, func() bool {
		var err error
		got, err = a.Arrays.Get(t.Context(), id, 0)
		return err == nil && got.Status == status
	}, patience, 20*time.Millisecond, "array %s becomes %s", id, status)
	return got
}

// elements are the numbers of the elements with a status.
func (a *arrays) elements(t *testing.T, id string, status api.ElementStatus) (numbers []int) {
	t.Helper()
	for e, err := range a.Arrays.Elements(id, status).All(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, status, e.Status)
		numbers = append(numbers, e.Number)
	}
	return numbers
}

// deliveries are the deliveries of an array: the task ids, and the priority of each.
func deliveries(t *testing.T, id string) (tasks []string, priorities []int32) {
	t.Helper()
	events := plane.Temporal(t).GetWorkflowHistory(t.Context(), contract.ArrayWorkflowID(id), "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		scheduled := e.GetActivityTaskScheduledEventAttributes()
		if scheduled == nil {
			continue
		}
		tasks = append(tasks, taskOf(t, scheduled))
		priorities = append(priorities, scheduled.GetPriority().GetPriorityKey())
	}
	return tasks, priorities
}

func taskOf(t *testing.T, e *historypb.ActivityTaskScheduledEventAttributes) string {
	t.Helper()
	var in contract.RunTaskInput
	require.NoError(t, json.Unmarshal(e.GetInput().GetPayloads()[0].GetData(), &in))
	return in.TaskID
}

// The elements of an array have the payloads that were submitted, and each has one result, on pages and in the stream.
func TestArrayOfItems(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	a.agent(t, newNetwork(), 4, func(_ context.Context, task *agent.Task) (any, error) {
		var n int
		err := task.Decode(&n)
		return n * n, err
	})
	const total = 250
	id := plane.UniqueID("squares")
	request := &api.ArrayRequest{ID: id, TaskSpec: api.TaskSpec{Type: "work", Cluster: a.cluster}}
	for n := range total {
		request.Items = append(request.Items, json.RawMessage(fmt.Sprint(n)))
	}
	submitted, err := a.Arrays.Submit(t.Context(), request)
	require.NoError(t, err)
	require.False(t, submitted.Duplicate)
	done := a.becomes(t, id, api.ArrayCompleted)
	require.Equal(t, api.ElementCounts{Total: total, Completed: total}, done.Counts)
	require.Len(t, a.begins(), total)

	found := map[int]string{}
	path, pages := "/api/v1/agents/arrays/"+id+"/results?page_size=100", 0
	for token := "-"; token != ""; pages++ {
		var page struct {
			Results       []api.ArrayResult
			NextPageToken string `json:"next_page_token"`
		}
		url := a.node.URL + path
		if token != "-" {
			url += "&page_token=" + token
		}
		status, problem := call(t, http.MethodGet, url, nil, &page)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		require.LessOrEqual(t, len(page.Results), 100)
		for _, r := range page.Results {
			require.NotContains(t, found, r.Element, "it has one result")
			found[r.Element] = string(r.Output)
		}
		token = page.NextPageToken
	}
	require.GreaterOrEqual(t, pages, 3)
	for n := range total {
		require.Equal(t, fmt.Sprint(n*n), found[n])
	}
	streamed := 0
	for r, err := range a.Arrays.Results(t.Context(), id) {
		require.NoError(t, err)
		require.Equal(t, found[r.Element], string(r.Output))
		streamed++
	}
	require.Equal(t, total, streamed)

	again, err := a.Arrays.Submit(t.Context(), request)
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.Equal(t, done.Counts, again.Counts)
	request.Items[7] = json.RawMessage("8")
	_, err = a.Arrays.Submit(t.Context(), request)
	require.ErrorContains(t, err, "another body")
	tasks, _ := deliveries(t, id)
	require.Less(t, len(tasks), total/2, "elements came in bundles")
}

// A command finds its element's place, and a key names one array.
func TestArrayOfACount(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	startAgent(t, agent.Options{HubURLs: []string{a.node.URL}, Cluster: a.cluster, ID: plane.UniqueID("a"), Slots: 2},
		map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
	keyed := func(r *api.ArrayRequest) {
		r.Type, r.Count, r.IdempotencyKey = agent.ExecType, 12, "once"
		r.Payload = json.RawMessage(`{"command": ["sh", "-c", "echo place $MAINSTAY_ELEMENT"]}`)
	}
	id := a.submit(t, keyed)
	require.Equal(t, id, a.submit(t, keyed))
	a.becomes(t, id, api.ArrayCompleted)
	var said []string
	for r, err := range a.Arrays.Results(t.Context(), id) {
		require.NoError(t, err)
		var out struct{ Stdout string }
		require.NoError(t, json.Unmarshal(r.Output, &out))
		require.Equal(t, fmt.Sprintf("place %d\n", r.Element), out.Stdout)
		said = append(said, out.Stdout)
	}
	require.Len(t, said, 12)
}

// Elements that fail are dead letters with their reasons, beside others that complete, and run again when they are
// asked to.
func TestFailedElementsRunAgain(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	var repaired atomic.Bool
	a.agent(t, newNetwork(), 4, func(_ context.Context, task *agent.Task) (any, error) {
		if *task.Element%40 == 3 && !repaired.Load() {
			return nil, agent.Typed("disk", errors.New("no space"))
		}
		return *task.Element, nil
	})
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count = 120 })
	blocked := a.becomes(t, id, api.ArrayBlocked)
	require.Equal(t, api.ElementCounts{Total: 120, Completed: 117, DeadLetter: 3}, blocked.Counts)
	require.NotNil(t, blocked.Until, "it is known how long they are kept")
	dead := a.elements(t, id, api.ElementDeadLetter)
	require.Equal(t, []int{3, 43, 83}, dead)
	require.Len(t, a.elements(t, id, api.ElementCompleted), 117)
	why, err := a.Arrays.Elements(id, api.ElementDeadLetter).Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "2 of 2 attempts failed; last: no space", why[0].Why)
	require.Equal(t, "disk", why[0].Type)
	for n, times := range a.begins() {
		require.Equal(t, slices.Contains(dead, n), times == 2, "element %d began %d times", n, times)
	}

	_, err = a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{Elements: []int{4}})
	require.ErrorContains(t, err, "completed")
	repaired.Store(true)
	_, err = a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{Elements: []int{43}, Reason: "a test"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(a.elements(t, id, api.ElementDeadLetter)) == 2 }, patience, 20*time.Millisecond)
	_, err = a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{})
	require.NoError(t, err)
	require.Equal(t, 120, a.becomes(t, id, api.ArrayCompleted).Counts.Completed)
	_, err = a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{})
	require.ErrorContains(t, err, "has ended")
}

// A paused array lets its bundles finish and begins none; those of later have the priority that a person set.
func TestArrayIsPausedAndReprioritized(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	o := newOrder()
	a.agent(t, newNetwork(), 1, o.handle)
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count, r.MaxParallel = 40, 1 })
	o.await(t, 1)
	page, err := a.Arrays.Elements(id, api.ElementRunning).Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "in delivery 1, with 3 other elements", page[0].Why)
	require.Eventually(t, func() bool {
		running := getTask(t, a.node.URL, page[0].TaskID, "0s")
		return running.Status == api.TaskRunning && running.Attempts[0].AgentID != ""
	}, patience, 20*time.Millisecond, "it is known which agent has it")
	require.Equal(t, api.TaskRunning, getTask(t, a.node.URL, page[0].Delivery, "0s").Status)
	page, err = a.Arrays.Elements(id, api.ElementQueued).Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "4 elements are under way, 0 are ahead of it", page[0].Why)
	require.Equal(t, page[0].Why, getTask(t, a.node.URL, page[0].TaskID, "0s").Why)
	for _, none := range []string{array.ElementID(id, 40), array.BundleID(id, 2)} {
		status, problem := call(t, http.MethodGet, a.node.URL+"/api/v1/agents/tasks/"+none, nil, nil)
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, protocol.CodeUnknownTask, problem.Code)
	}
	_, err = a.Arrays.Pause(t.Context(), id, "new disks")
	require.NoError(t, err)
	_, err = a.Arrays.SetPriority(t.Context(), id, api.TaskPriorityRequest{Priority: api.PriorityCritical})
	require.NoError(t, err)
	close(o.free)
	require.Eventually(t, func() bool {
		got, err := a.Arrays.Get(t.Context(), id, 0)
		return err == nil && got.Counts.Completed > 0 && got.Counts.Queued+got.Counts.Completed == 40
	}, patience, 20*time.Millisecond, "the bundle ends, after 2 s with what is done until then")
	paused := a.becomes(t, id, api.ArrayPaused)
	require.Equal(t, "new disks", paused.Why)
	require.Len(t, o.await(t, 1), paused.Counts.Completed, "nothing new began")
	require.Eventually(t, func() bool {
		listed, err := a.Arrays.List(client.ArrayQuery{Cluster: a.cluster, Status: api.ArrayPaused}).Take(t.Context(), 9)
		return err == nil && len(listed) == 1 && listed[0].ID == id
	}, patience, 50*time.Millisecond)
	_, err = a.Arrays.Resume(t.Context(), id, "")
	require.NoError(t, err)
	require.EqualValues(t, api.PriorityCritical, a.becomes(t, id, api.ArrayCompleted).Priority)
	_, priorities := deliveries(t, id)
	require.NotEqual(t, int32(api.PriorityCritical), priorities[0])
	for _, p := range priorities[1:] {
		require.Equal(t, int32(api.PriorityCritical), p)
	}
}

// A cancelled array stops its bundles at their present element, and what has not begun does not begin.
func TestArrayIsCancelled(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	stopped := make(chan struct{}, 8)
	a.agent(t, newNetwork(), 2, func(ctx context.Context, task *agent.Task) (any, error) {
		if *task.Element%4 == 0 {
			return "quick", nil
		}
		<-ctx.Done()
		stopped <- struct{}{}
		return nil, ctx.Err()
	})
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count, r.MaxParallel = 100, 2 })
	require.Eventually(t, func() bool { return len(a.begins()) == 4 }, patience, 5*time.Millisecond)
	_, err := a.Arrays.Cancel(t.Context(), id, "not needed")
	require.NoError(t, err)
	<-stopped
	<-stopped
	cancelled := a.becomes(t, id, api.ArrayCancelled)
	require.Equal(t, "not needed", cancelled.Why)
	require.Equal(t, 100, cancelled.Counts.Cancelled+cancelled.Counts.Completed)
	require.LessOrEqual(t, cancelled.Counts.Completed, 2)
	require.Len(t, a.begins(), 4)
	_, err = a.Arrays.Cancel(t.Context(), id, "")
	require.ErrorContains(t, err, "has ended")
}

// When more elements have failed than are tolerated, the rest is cancelled.
func TestArrayThatToleratesStopsWhenItMust(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	a.agent(t, newNetwork(), 1, func(context.Context, *agent.Task) (any, error) {
		return nil, agent.NonRetryable(errors.New("bad input"))
	})
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count, r.MaxParallel, r.Tolerate = 100, 1, new(2) })
	failed := a.becomes(t, id, api.ArrayFailed)
	require.Equal(t, "more than 2 elements failed", failed.Why)
	require.Equal(t, api.ElementCounts{Total: 100, Failed: 4, Cancelled: 96}, failed.Counts, "a bundle of 4")
}

// An agent that does not know bundles is given the elements one by one.
func TestArrayWithAnAgentThatKnowsNoBundles(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	w := newWireAgent(t, a.node.URL, a.cluster)
	w.register(t)
	id := a.submit(t, func(r *api.ArrayRequest) {
		r.Items = []json.RawMessage{[]byte(`"x"`), []byte(`"y"`), []byte(`"z"`)}
	})
	seen := map[int]string{}
	for range 3 {
		assigned := w.take(t)
		require.Empty(t, assigned.Elements)
		require.Equal(t, array.ElementID(id, *assigned.Element), assigned.TaskID)
		seen[*assigned.Element] = string(assigned.Payload)
		status, text := w.report(t, w.session, assigned.TaskID, assigned.Attempt, assigned.Token)
		require.Equal(t, http.StatusOK, status, text)
	}
	require.Equal(t, map[int]string{0: `"x"`, 1: `"y"`, 2: `"z"`}, seen)
	require.Equal(t, 3, a.becomes(t, id, api.ArrayCompleted).Counts.Completed)
}

// An element that takes its agents with it is alone in the dead letters, after at most five of them.
func TestPoisonElementIsAloneInTheDeadLetters(t *testing.T) {
	t.Parallel()
	const poison, total = 177, 200
	a := newArrays(t)
	var lost atomic.Int32
	var one func()
	one = func() {
		n := newNetwork()
		a.agent(t, n, 4, func(ctx context.Context, task *agent.Task) (any, error) {
			if *task.Element == poison {
				lost.Add(1)
				n.cut() // the agent is gone, and another takes its place
				one()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		})
	}
	one()
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count, r.MaxParallel = total, 4 })
	blocked := a.becomes(t, id, api.ArrayBlocked)
	require.Equal(t, api.ElementCounts{Total: total, Completed: total - 1, DeadLetter: 1}, blocked.Counts)
	require.Equal(t, []int{poison}, a.elements(t, id, api.ElementDeadLetter))
	require.LessOrEqual(t, int(lost.Load()), 5)
	require.Eventually(t, func() bool {
		moved, err := a.Failovers.List(client.FailoverQuery{Cluster: a.cluster,
			Status: api.FailoverSucceeded}).Take(t.Context(), 0)
		return err == nil && len(moved) == int(lost.Load())
	}, patience, 100*time.Millisecond, "the failovers see that the bundles are elsewhere")
}

// Elements that may not begin twice are delivered one by one. One that is lost with its agent waits for a person.
func TestAtMostOnceElementsAreDeliveredOneByOne(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	gone := make(chan struct{})
	var once sync.Once
	n := newNetwork()
	a.agent(t, n, 1, func(ctx context.Context, task *agent.Task) (any, error) {
		if *task.Element == 5 {
			once.Do(func() { n.cut(); close(gone) })
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, nil
	})
	id := a.submit(t, func(r *api.ArrayRequest) {
		r.Count, r.MaxParallel, r.RetrySafety = 12, 1, api.AtMostOnce
	})
	<-gone
	a.agent(t, newNetwork(), 2, func(context.Context, *agent.Task) (any, error) { return nil, nil })
	blocked := a.becomes(t, id, api.ArrayBlocked)
	require.Equal(t, api.ElementCounts{Total: 12, Completed: 11, Review: 1}, blocked.Counts)
	require.Equal(t, []int{5}, a.elements(t, id, api.ElementReview))
	for number, times := range a.begins() {
		require.Equal(t, 1, times, "element %d", number)
	}
	_, err := a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{})
	require.ErrorContains(t, err, "name the elements")
	_, err = a.Arrays.Retry(t.Context(), id, api.RetryArrayRequest{Elements: []int{5}, Reason: "it had not begun"})
	require.NoError(t, err)
	require.Equal(t, 12, a.becomes(t, id, api.ArrayCompleted).Counts.Completed)
	tasks, _ := deliveries(t, id)
	require.False(t, slices.ContainsFunc(tasks, func(task string) bool { return strings.Contains(task, array.Mark+"b") }),
		"%v", tasks)
}

// Temporal ends a workflow whose one answer has more than 4 MiB: an array begins its bundles in several.
func TestArrayBeginsMoreThanTemporalTakesAtOnce(t *testing.T) {
	t.Parallel()
	a := newArrays(t)
	a.agent(t, newNetwork(), 16, func(_ context.Context, task *agent.Task) (any, error) { return len(task.Payload), nil })
	id := a.submit(t, func(r *api.ArrayRequest) {
		r.Count, r.Payload = 64, json.RawMessage(`"`+strings.Repeat("x", 200<<10)+`"`)
	})
	require.Equal(t, 64, a.becomes(t, id, api.ArrayCompleted).Counts.Completed)
}

// Temporal keeps up to 100 events, of 2 MiB in all, for a workflow that is at work; with more it has the workflow begin
// the answer anew, and nothing is lost.
func TestArrayTakesABurstOfResults(t *testing.T) {
	t.Parallel()
	const total = 150
	a := newArrays(t)
	var begun sync.WaitGroup
	begun.Add(total)
	a.agent(t, newNetwork(), total, func(context.Context, *agent.Task) (any, error) {
		begun.Done()
		begun.Wait() // all end at a time
		return strings.Repeat("x", 32<<10), nil
	})
	id := a.submit(t, func(r *api.ArrayRequest) {
		r.Count, r.MaxParallel, r.RetrySafety = total, total, api.AtMostOnce
	})
	require.Equal(t, total, a.becomes(t, id, api.ArrayCompleted).Counts.Completed)
	require.Len(t, a.begins(), total)
}

// Temporal terminates a workflow with 50 MiB of history: not an array whose bundles all bring 1 MiB at once.
func TestAnArrayOfLargeResults(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	a := newArrays(t)
	w := newWireAgent(t, a.node.URL, a.cluster)
	w.slots = 100
	w.register(t)
	id := a.submit(t, func(r *api.ArrayRequest) { r.Count, r.MaxParallel = 400, array.MaxParallel })
	var given []protocol.Assignment
	var running []protocol.RunningAttempt
	for len(given) < w.slots { // the first bundles have four elements each
		status, polled, text := w.poll(t, running...)
		require.Equal(t, http.StatusOK, status, text)
		for _, one := range polled.Assignments {
			given = append(given, one)
			running = append(running, protocol.RunningAttempt{TaskID: one.TaskID, Attempt: one.Attempt, Token: one.Token})
		}
	}
	var ending sync.WaitGroup
	for _, one := range given {
		ending.Go(func() {
			r := protocol.Result{Token: one.Token, Attempt: one.Attempt, Outcome: api.AttemptCompleted, StartedAt: time.Now(),
				EndedAt: time.Now()}
			for _, e := range one.Elements {
				r.Elements = append(r.Elements, api.ElementResult{Number: e.Number, Outcome: api.AttemptCompleted,
					Output: json.RawMessage(`"` + strings.Repeat("x", 256<<10-100) + `"`)})
			}
			status, text := w.end(t, w.session, one.TaskID, r)
			assert.Contains(t, []int{http.StatusOK, http.StatusConflict}, status, text)
		})
	}
	ending.Wait()
	// On a busy machine the agent, which does not poll meanwhile, may be lost; another one then does the rest.
	w.hangUp()
	a.agent(t, newNetwork(), 10, func(context.Context, *agent.Task) (any, error) { return nil, nil })
	got := a.becomes(t, id, api.ArrayFailed)
	require.Equal(t, 400, got.Counts.Failed+got.Counts.Completed)
	require.Greater(t, got.Counts.Failed, 200)
	for e, err := range a.Arrays.Elements(id, api.ElementFailed).All(t.Context()) {
		require.NoError(t, err)
		require.Contains(t, e.Why, "lower max_parallel")
	}
}
