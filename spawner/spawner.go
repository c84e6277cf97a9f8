// Package spawner starts and stops agents on a platform, for scaling. A Spawner is an adapter of one platform; Start
// gives it its task queue, so that workflows can reach it wherever it runs.
package spawner

import (
	"context"
	"errors"

	"mainstay.dev/mainstay/fleet"
)

// Spawner starts and stops agents on one platform. All its methods may be called side by side, and may be repeated: who
// calls does not always hear the answer.
type Spawner interface {
	Platform() fleet.Platform
	// Spawn starts an agent. It returns the one that runs when that id was started before. It does not wait until the
	// agent is online. An error that is ErrRefused will not go away by trying again.
	Spawn(ctx context.Context, spec fleet.SpawnSpec) (fleet.Spawned, error)
	// Terminate returns when the agent's process has ended. With graceful it is asked first, and forced only after a
	// bound of the spawner's. An id that is not there has ended.
	Terminate(ctx context.Context, id string, graceful bool) error
	// List returns the agents that run, by id. It knows those of earlier processes of the same spawner too.
	List(ctx context.Context) ([]fleet.Spawned, error)
}

// ErrRefused is an error of Spawn that will not go away by trying again.
var ErrRefused = errors.New("refused")

// Environment of a spawned agent, beside what its cluster's scaling.spawn.environment says. MAINSTAY_SPAWNER and
// MAINSTAY_SPAWN_ID must be in the metadata with which the agent registers (fleet.MetadataSpawner,
// fleet.MetadataSpawnID); the agent library does that.
const (
	EnvAgentID      = "MAINSTAY_AGENT_ID"
	EnvCluster      = "MAINSTAY_CLUSTER"
	EnvHubURLs      = "MAINSTAY_HUB_URLS" // separated by commas
	EnvSlots        = "MAINSTAY_SLOTS"
	EnvCapabilities = "MAINSTAY_CAPABILITIES" // separated by commas
	EnvSpawner      = fleet.EnvSpawner
	EnvSpawnID      = fleet.EnvSpawnID
)
