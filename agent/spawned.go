package agent

import (
	"maps"

	"mainstay.dev/mainstay/fleet"
)

// withSpawner adds the spawner's name and spawn id to an agent's metadata, by which spawned agents are recognised.
// Processes that a spawned agent starts inherit its environment, but have other ids.
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
