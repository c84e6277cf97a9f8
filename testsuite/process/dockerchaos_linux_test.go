package process

import (
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	moby "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

var (
	containerChaos = flag.Duration("containers.chaos", 0, "how long containers are ended at random; 0: not at all")
	containerSeed  = flag.Uint64("containers.seed", 1, "of what is done to them")
)

const (
	// containerPace is the time between two tasks: somewhat more than the agents can do while faults come.
	containerPace = 250 * time.Millisecond
	// containerFaults is the time between two faults.
	containerFaults = 4 * time.Second
)

// TestContainersUnderChaos ends containers, the spawner and the engine at random while tasks come in. Afterwards there
// are as many containers as are wanted, and each task was done; those that must not run twice began at most once. It takes
// too long to be part of every run.
func TestContainersUnderChaos(t *testing.T) {
	if *containerChaos == 0 {
		t.Skip("it runs only when asked: -args -containers.chaos=10m")
	}
	t.Parallel()
	y := newYard(t, "chaos-docked")
	var mu sync.Mutex
	begun := map[string]int{} // by task
	counter := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		begun[string(id)]++
	}))
	t.Cleanup(counter.Close)
	payload, err := json.Marshal(counter.URL)
	require.NoError(t, err)
	y.startSpawner(t, y.address())
	y.scale(t, 4)
	y.has(t, 4)

	random := rand.New(rand.NewPCG(*containerSeed, 0)) //nolint:gosec // it is to be repeatable
	safeties := []api.RetrySafety{api.Idempotent, api.AtMostOnce}
	var ids []string
	faults, deck := map[string]int{}, []int{}
	pace := time.NewTicker(containerPace)
	defer pace.Stop()
	next, end := time.Now().Add(containerFaults), time.Now().Add(*containerChaos)
	for time.Now().Before(end) {
		task, err := y.api.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "count",
			Cluster: y.name, RetrySafety: safeties[len(ids)%2], Payload: payload}})
		if err == nil { // what was not acknowledged need not be done
			ids = append(ids, task.ID)
		}
		if time.Now().After(next) {
			if len(deck) == 0 {
				deck = random.Perm(8)
			}
			fault := y.harm(t, deck[0], random)
			t.Log(fault)
			faults[fault]++
			deck, next = deck[1:], time.Now().Add(containerFaults)
		}
		<-pace.C
	}
	require.NotEmpty(t, ids)
	calm := time.Now()
	y.scale(t, 3)
	reviews, repeated := 0, 0
	for i, id := range ids {
		task := y.settled(t, id)
		mu.Lock()
		times := begun[id]
		mu.Unlock()
		completed := 0
		for _, attempt := range task.Attempts {
			if attempt.Outcome == api.AttemptCompleted {
				completed++
			}
		}
		switch {
		case safeties[i%2] == api.Idempotent:
			require.Equal(t, api.TaskCompleted, task.Status, "%s: %+v", id, task.Attempts)
			require.LessOrEqual(t, times, len(task.Attempts), "%s ran more often than it was given out", id)
			if times > 1 {
				repeated++
			}
		case task.Status == api.TaskReview:
			reviews++
			require.LessOrEqual(t, times, 1, "%s must not run twice", id)
			require.Zero(t, completed)
			continue
		default:
			require.Equal(t, api.TaskCompleted, task.Status, "%s: %+v", id, task.Attempts)
			require.LessOrEqual(t, times, 1, "%s must not run twice", id)
		}
		require.Positive(t, times, "%s is completed, so it began", id)
		require.Equal(t, 1, completed, "%s: %+v", id, task.Attempts)
	}
	y.has(t, 3)
	t.Logf("seed %d, %s: faults %v; %d tasks, each done once but %d in review; %d of those that may were begun again; "+
		"as wanted %s after the last fault", *containerSeed, containerChaos, faults, len(ids), reviews, repeated,
		time.Since(calm).Round(time.Second/10))
	y.scale(t, 0)
	if *containerChaos > time.Minute {
		y.requireNothing(t)
	}
	require.Eventually(t, func() bool { // those that have ended by themselves stay for a while, with their logs
		states := y.containers(t)
		return len(states) == 0 || len(states) == 1 && states[container.StateExited] > 0
	}, patience, 10*tick)
}

// harm does something bad to the agents, and returns what.
func (y *yard) harm(t *testing.T, which int, random *rand.Rand) string {
	t.Helper()
	list, err := y.ContainerList(t.Context(), moby.ContainerListOptions{})
	require.NoError(t, err)
	switch {
	case which < 4 && len(list.Items) > 0:
		id := list.Items[random.IntN(len(list.Items))].ID
		if which < 2 {
			_, _ = y.ContainerKill(t.Context(), id, moby.ContainerKillOptions{Signal: "KILL"}) // it may have ended
			return "container killed"
		}
		_, _ = y.ContainerRemove(t.Context(), id, moby.ContainerRemoveOptions{Force: true})
		return "container removed by somebody"
	case which == 4:
		y.spawner.signal(t, syscall.SIGKILL)
		y.spawner.exit(t)
		y.startSpawner(t, y.address())
		return "spawner killed"
	case which == 5:
		path, err := exec.LookPath("dockerd")
		require.NoError(t, err)
		y.stop(t)
		y.start(t, path)
		return "engine restarted"
	default:
		y.scale(t, 2+random.IntN(4))
		return "another number wanted"
	}
}

// settled waits until nothing more happens to a task by itself.
func (y *yard) settled(t *testing.T, id string) *api.Task {
	t.Helper()
	for begun := time.Now(); ; <-time.After(10 * tick) {
		task, err := y.api.Tasks.Get(t.Context(), id)
		if err == nil && task.Status.Settled() {
			return task
		}
		require.Less(t, time.Since(begun), 2*patience, "%s does not end: %v, %+v", id, err, task)
	}
}
