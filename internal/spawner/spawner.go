// Package spawner starts and stops agents on a platform, for scaling. A Spawner is an adapter of one platform; Start
// gives it its task queue, so that workflows can reach it wherever it runs.
package spawner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Spawner starts and stops agents on one platform. All its methods may be called side by side, and may be repeated: who
// calls does not always hear the answer.
type Spawner interface {
	Platform() api.Platform
	// Spawn starts an agent. It returns the one that runs when that id was started before. It does not wait until the
	// agent is online. An error that is ErrRefused will not go away by trying again.
	Spawn(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error)
	// Terminate returns when the agent's process has ended. With graceful it is asked first, and forced only after a
	// bound of the spawner's. An id that is not there has ended.
	Terminate(ctx context.Context, id string, graceful bool) error
	// List returns the agents that run, by id. It knows those of earlier processes of the same spawner too.
	List(ctx context.Context) ([]cluster.Spawned, error)
}

// JoinToken makes the token with which one agent registers. It is kept nowhere else than in a file for that agent.
type JoinToken func(spec cluster.SpawnSpec) (string, error)

// Watcher is a Spawner that notices the ends of its agents.
type Watcher interface {
	// Watch calls ended, one call at a time, for each agent that ends and that Terminate was not asked to end. It
	// returns when ctx ends.
	Watch(ctx context.Context, ended func(api.SpawnEnd))
}

// Sizer is a Spawner that knows how large its platform is.
type Sizer interface {
	// Size returns the cores and the bytes of memory of the platform in all.
	Size(ctx context.Context) (cpus int, memory int64, err error)
}

// ErrRefused is an error of Spawn that will not go away by trying again.
var ErrRefused = errors.New("refused")

// Environment of a spawned agent, beside what its cluster's scaling.spawn.environment says. MAINSTAY_SPAWNER and
// MAINSTAY_SPAWN_ID must be in the metadata with which the agent registers (api.MetadataSpawner,
// api.MetadataSpawnID); the agent library does that.
const (
	EnvAgentID      = "MAINSTAY_AGENT_ID"
	EnvCluster      = "MAINSTAY_CLUSTER"
	EnvHubURLs      = "MAINSTAY_HUB_URLS" // separated by commas
	EnvSlots        = "MAINSTAY_SLOTS"
	EnvCapabilities = "MAINSTAY_CAPABILITIES" // separated by commas
	// EnvJoinTokenFile names a file with the token with which this agent, and no other, registers.
	EnvJoinTokenFile = api.EnvJoinTokenFile
	EnvSpawner       = api.EnvSpawner
	EnvSpawnID       = api.EnvSpawnID
)

// Environment is what a spawner adds to its agent's environment. Later entries win.
func (o *Options) Environment(spec *cluster.SpawnSpec) []string {
	var env []string
	// Hints to Go programs; nothing holds a process to them.
	if milli, _ := spec.Resources.MilliCPU(); milli > 0 {
		env = append(env, "GOMAXPROCS="+strconv.FormatInt((milli+999)/1000, 10))
	}
	if bytes, _ := spec.Resources.MemoryBytes(); bytes > 0 {
		env = append(env, "GOMEMLIMIT="+strconv.FormatInt(bytes, 10))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Environment)) {
		env = append(env, name+"="+spec.Environment[name])
	}
	return append(env, EnvAgentID+"="+spec.ID, EnvCluster+"="+spec.Cluster,
		EnvHubURLs+"="+strings.Join(o.HubURLs, ","),
		EnvSlots+"="+strconv.Itoa(cmp.Or(spec.Slots, o.Slots)), EnvCapabilities+"="+strings.Join(spec.Capabilities, ","),
		EnvSpawner+"="+o.Name, EnvSpawnID+"="+spec.ID)
}
