package spawner_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// stand is a spawner whose agents are shell scripts.
type stand struct {
	*spawner.Process
	options spawner.ProcessOptions
}

func newStand(t *testing.T, script string) *stand {
	t.Helper()
	s := &stand{options: spawner.ProcessOptions{Dir: t.TempDir(), Options: spawner.Options{
		Name: "here", HubURLs: []string{"http://hub:8080"}, StopGrace: 300 * time.Millisecond,
		Command: func(cluster.SpawnSpec) []string { return []string{"/bin/sh", "-c", script} },
	}}}
	s.restart(t)
	t.Cleanup(func() {
		for _, id := range s.list(t) {
			_ = s.Terminate(context.Background(), id, false)
		}
		s.Close()
	})
	return s
}

// restart puts a new spawner in the place of the old one, as after its process has died.
func (s *stand) restart(t *testing.T) {
	t.Helper()
	if s.Process != nil {
		s.Close()
	}
	require.Eventually(t, func() (ready bool) { // a child of another test has the lock until it has begun its program
		var err error
		s.Process, err = spawner.NewProcess(s.options)
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
}

func (s *stand) spawn(t *testing.T, id string) cluster.Spawned {
	t.Helper()
	spawned, err := s.Spawn(t.Context(), cluster.SpawnSpec{ID: id, Cluster: "c", Capabilities: []string{"gpu", "arm"},
		Resources: api.Resources{CPU: "1500m", Memory: "1Gi"}, Environment: map[string]string{"COLOUR": "blue"}})
	require.NoError(t, err)
	return spawned
}

func (s *stand) list(t *testing.T) []string {
	t.Helper()
	list, err := s.List(context.Background())
	require.NoError(t, err)
	ids := []string{}
	for _, spawned := range list {
		ids = append(ids, spawned.ID)
	}
	return ids
}

func pid(t *testing.T, spawned cluster.Spawned) int {
	t.Helper()
	n, err := strconv.Atoi(spawned.Handle)
	require.NoError(t, err)
	return n
}

func lives(pid int) bool { return syscall.Kill(pid, 0) == nil }

func (s *stand) log(t *testing.T, id string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.options.Dir, "logs", id+".log"))
	require.NoError(t, err)
	return string(text)
}

const patient = "echo up; while :; do sleep 0.05; done"

func TestAnAgentIsStartedAndStopped(t *testing.T) {
	t.Setenv("MAINSTAY_TOKEN_KEY", "a secret that agents must not see")
	s := newStand(t, "env; "+patient)
	spawned := s.spawn(t, "a-1")
	require.Equal(t, api.PlatformProcess, spawned.Platform)
	require.Equal(t, "here", spawned.Spawner)
	require.True(t, lives(pid(t, spawned)))
	require.Equal(t, []string{"a-1"}, s.list(t))
	text := s.log(t, "a-1")
	for _, line := range []string{"MAINSTAY_AGENT_ID=a-1", "MAINSTAY_CLUSTER=c", "MAINSTAY_HUB_URLS=http://hub:8080",
		"MAINSTAY_SLOTS=1",
		"MAINSTAY_CAPABILITIES=gpu,arm", "MAINSTAY_SPAWNER=here", "MAINSTAY_SPAWN_ID=a-1", "COLOUR=blue", "GOMAXPROCS=2", "GOMEMLIMIT=1073741824"} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "secret")

	require.NoError(t, s.Terminate(t.Context(), "a-1", true))
	require.False(t, lives(pid(t, spawned)))
	require.Empty(t, s.list(t))
	require.NoError(t, s.Terminate(t.Context(), "a-1", true), "again: it has ended")
	require.NoError(t, s.Terminate(t.Context(), "nobody", false))
}

func TestAStopIsForcedInTheEnd(t *testing.T) {
	t.Parallel()
	s := newStand(t, "trap '' TERM; "+patient)
	spawned := s.spawn(t, "stubborn")
	begun := time.Now()
	require.NoError(t, s.Terminate(t.Context(), "stubborn", true))
	require.GreaterOrEqual(t, time.Since(begun), s.options.StopGrace, "it had its time")
	require.False(t, lives(pid(t, spawned)))

	spawned = s.spawn(t, "hasty")
	begun = time.Now()
	require.NoError(t, s.Terminate(t.Context(), "hasty", false))
	require.Less(t, time.Since(begun), s.options.StopGrace, "without grace it is killed at once")
	require.False(t, lives(pid(t, spawned)))
}

func TestTheSameIDIsStartedOnce(t *testing.T) {
	t.Parallel()
	s := newStand(t, patient)
	handles := make([]string, 8)
	var wg sync.WaitGroup
	for i := range handles {
		wg.Go(func() {
			spawned, err := s.Spawn(context.Background(), cluster.SpawnSpec{ID: "one", Cluster: "c"})
			if err == nil {
				handles[i] = spawned.Handle
			}
		})
	}
	wg.Wait()
	for _, handle := range handles {
		require.NotEmpty(t, handle)
		require.Equal(t, handles[0], handle)
	}
	require.Equal(t, "up\n", s.log(t, "one"), "one process has begun")
}

func TestAProcessThatEndsAtOnceIsRefused(t *testing.T) {
	t.Parallel()
	s := newStand(t, "echo unknown flag: --slotz; exit 2")
	for range 2 {
		_, err := s.Spawn(t.Context(), cluster.SpawnSpec{ID: "bad", Cluster: "c"})
		require.ErrorIs(t, err, spawner.ErrRefused)
		require.ErrorContains(t, err, "ended with exit code 2: unknown flag: --slotz")
	}
	require.Equal(t, 1, strings.Count(s.log(t, "bad"), "unknown flag"), "a repeated request starts nothing")
	require.Empty(t, s.list(t))
	s.options.Command = func(cluster.SpawnSpec) []string { return []string{"/no/such/program"} }
	s.restart(t)
	_, err := s.Spawn(t.Context(), cluster.SpawnSpec{ID: "none", Cluster: "c"})
	require.ErrorIs(t, err, spawner.ErrRefused)
	for _, spec := range []cluster.SpawnSpec{{ID: "../x", Cluster: "c"}, {ID: "x"},
		{ID: "x", Cluster: "c", Resources: api.Resources{CPU: "many"}}} {
		_, err := s.Spawn(t.Context(), spec)
		require.ErrorIs(t, err, spawner.ErrRefused)
	}
}

func TestARestartedSpawnerTakesItsAgentsOver(t *testing.T) {
	t.Parallel()
	s := newStand(t, patient)
	first, second, third := s.spawn(t, "a-1"), s.spawn(t, "a-2"), s.spawn(t, "a-3")
	s.restart(t)
	require.Equal(t, []string{"a-1", "a-2", "a-3"}, s.list(t))
	again := s.spawn(t, "a-1")
	require.Equal(t, first.Handle, again.Handle, "it is not started twice")
	require.NoError(t, s.Terminate(t.Context(), "a-2", true))
	require.False(t, processLives(pid(t, second)))

	t.Log("they die while nobody looks")
	s.Close()
	for _, killed := range []cluster.Spawned{first, third} {
		require.NoError(t, syscall.Kill(-pid(t, killed), syscall.SIGKILL)) // the old spawner is their parent
		require.Eventually(t, func() bool { return !processLives(pid(t, killed)) }, 5*time.Second, 10*time.Millisecond)
	}
	s.restart(t)
	require.Empty(t, s.list(t))
}

// processLives does not count a process that has ended and that nobody has waited for.
func processLives(pid int) bool {
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if runtime.GOOS != "linux" {
		return lives(pid)
	}
	return err == nil && len(environment) > 0
}

func TestAProcessWhoseNumberWasNotWrittenIsFound(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not tell a process's environment")
	}
	s := newStand(t, patient)
	id := "a-" + strconv.FormatInt(time.Now().UnixNano(), 36) // other tests have an a-1 with the same command
	spawned := s.spawn(t, id)
	s.Close()
	path := filepath.Join(s.options.Dir, id+".json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	cut := regexp.MustCompile(`"ticks": \d+,`).ReplaceAllString(string(text), "")
	cut = strings.Replace(cut, `"pid": `+spawned.Handle+`,`, "", 1)
	require.NotEqual(t, string(text), cut)
	require.NoError(t, os.WriteFile(path, []byte(cut), 0o600))
	s.restart(t)
	require.Equal(t, spawned.Handle, s.spawn(t, id).Handle)

	t.Log("what was intended and never started is forgotten")
	require.NoError(t, os.WriteFile(filepath.Join(s.options.Dir, "a-2.json"),
		[]byte(`{"spec": {"id": "a-2", "cluster": "c"}, "command": ["/bin/sh"]}`), 0o600))
	s.restart(t)
	require.Equal(t, []string{id}, s.list(t))
}

func TestAFolderHasOneSpawner(t *testing.T) {
	t.Parallel()
	s := newStand(t, patient)
	_, err := spawner.NewProcess(s.options)
	require.ErrorContains(t, err, "another spawner uses")
}

func TestAllAreStopped(t *testing.T) {
	t.Parallel()
	s := newStand(t, patient)
	spawned := []cluster.Spawned{s.spawn(t, "a-1"), s.spawn(t, "a-2")}
	require.NoError(t, spawner.TerminateAll(t.Context(), s, true))
	for _, one := range spawned {
		require.False(t, lives(pid(t, one)))
	}
	require.Empty(t, s.list(t))
}
