package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

func TestSpawnersAreListedAsTheyAre(t *testing.T) {
	t.Parallel()
	f := &fakeHub{fakeTemporal: newFake()}
	f.pollers = map[string][]string{"spawners": {"spawner/yard", "spawner/gone", "spawner/dock"}}
	end := api.SpawnEnd{AgentID: "a-1", Cluster: "c", At: time.Unix(1_800_000_000, 0).UTC(), Reason: "it ended"}
	f.spawner = func(queue string) (contract.SpawnerInfo, error) {
		switch queue {
		case "spawner/dock":
			return contract.SpawnerInfo{Name: "dock", Platform: api.PlatformDocker, Agents: 2, MaxAgents: 5, CPUs: 8,
				MemoryBytes: 1 << 30, Ended: []api.SpawnEnd{end}}, nil
		case "spawner/yard":
			return contract.SpawnerInfo{Name: "yard", Platform: api.PlatformDocker, Problem: "the engine is away"}, nil
		}
		return contract.SpawnerInfo{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	}
	body := answer[struct{ Spawners []api.Spawner }](t, do(serveWith(t, f), http.MethodGet, "/api/v1/agents/spawners",
		""), http.StatusOK)
	seen := func(name string) api.SpawnerSeen {
		return api.SpawnerSeen{Name: name, LastSeen: time.Unix(1_800_000_000, 0).UTC()}
	}
	require.Equal(t, []api.Spawner{
		{SpawnerSeen: seen("dock"), Platform: api.PlatformDocker, Health: api.SpawnerHealthy, Agents: 2, MaxAgents: 5,
			CPUs: 8, MemoryBytes: 1 << 30, Ended: []api.SpawnEnd{end}},
		{SpawnerSeen: seen("gone"), Health: api.SpawnerUnknown, Problem: "it does not answer; it may have ended",
			Ended: []api.SpawnEnd{}},
		{SpawnerSeen: seen("yard"), Platform: api.PlatformDocker, Health: api.SpawnerUnhealthy,
			Problem: "the engine is away", Ended: []api.SpawnEnd{}},
	}, body.Spawners)
	require.Equal(t, 3, f.removed, "nothing of the questions stays in Temporal")
}
