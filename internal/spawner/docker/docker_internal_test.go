package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// lonely is a spawner whose engine does not answer.
func lonely(t *testing.T) *Docker {
	t.Helper()
	d, err := New(Options{Engine: "unix://" + t.TempDir() + "/none.sock",
		Options: spawner.Options{Name: "d", Image: "agent:1"}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func TestAnEngineThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := lonely(t)
	_, err := d.Spawn(t.Context(), cluster.SpawnSpec{ID: "a-1", Cluster: "c"})
	require.Error(t, err)
	require.NotErrorIs(t, err, spawner.ErrRefused)
	require.Error(t, d.Terminate(t.Context(), "a-1", true), "it may run")
	_, err = d.List(t.Context())
	require.Error(t, err)
	_, err = d.Spawn(t.Context(), cluster.SpawnSpec{ID: "../x", Cluster: "c"})
	require.ErrorIs(t, err, spawner.ErrRefused)
}

func TestHowAContainerEnded(t *testing.T) {
	t.Parallel()
	d := lonely(t)
	for want, state := range map[string]container.State{
		"its container was killed: it used more than its 64 MiB of memory": {OOMKilled: true, ExitCode: 137},
		"its container was ended by SIGKILL":                               {ExitCode: 137},
		"its container was ended by SIGTERM":                               {ExitCode: 143},
		"its container ended with exit code 3":                             {ExitCode: 3},
		"its container ended with exit code 0":                             {OOMKilled: true}, // a command was killed
		"its container could not be started: no such file":                 {Error: "no such file", ExitCode: 127},
	} {
		c := &container.InspectResponse{State: &state, HostConfig: &container.HostConfig{
			Resources: container.Resources{Memory: 64 << 20}}}
		require.Equal(t, want, d.reason(t.Context(), c))
	}
}

func TestLimitsOfAContainer(t *testing.T) {
	t.Parallel()
	d := lonely(t)
	h := d.host(&cluster.SpawnSpec{Resources: api.Resources{CPU: "1500m", Memory: "1Gi", Storage: "1Mi"},
		Docker: api.DockerSpawn{PidsLimit: 7, WritableRoot: true}}, "journald")
	require.Equal(t, []int64{1 << 30, 1 << 30, 100_000, 150_000, 7},
		[]int64{h.Memory, h.MemorySwap, h.CPUPeriod, h.CPUQuota, *h.PidsLimit})
	require.False(t, h.ReadonlyRootfs)
	require.Contains(t, h.Tmpfs["/tmp"], "size=1048576")
	require.Empty(t, h.LogConfig.Config, "journald has no such options")
	h = d.host(&cluster.SpawnSpec{}, "json-file")
	require.Equal(t, []int64{0, 0, 0, 0, defaultPids},
		[]int64{h.Memory, h.MemorySwap, h.CPUPeriod, h.CPUQuota, *h.PidsLimit})
	require.True(t, h.ReadonlyRootfs)
	require.Equal(t, []string{"ALL"}, h.CapDrop)
}

func TestOnlyTheImagesUserCanReadTheToken(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]int{"": 0, "root": 0, "65532": 65532, "1000:100": 1000} {
		id, err := userID(user)
		require.NoError(t, err)
		require.Equal(t, want, id, user)
	}
	_, err := userID("nobody")
	require.ErrorIs(t, err, spawner.ErrRefused)
}
