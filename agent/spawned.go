package agent

import (
	"maps"

	"mainstay.dev/mainstay/fleet"
)

// withSpawner adds to an agent's metadata who started it, so that a spawner's agents can be told from others and be
// stopped. What a spawned agent starts itself inherits its environment, but has another id.
func withSpawner(metadata map[string]string, id string, getenv func(string) string) map[string]string {
	if getenv(fleet.EnvSpawnID) != id || getenv(fleet.EnvSpawner) == "" {
		return metadata
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[fleet.MetadataSpawner], metadata[fleet.MetadataSpawnID] = getenv(fleet.EnvSpawner), id
	return metadata
}
