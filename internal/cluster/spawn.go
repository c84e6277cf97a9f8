package cluster

import (
	"fmt"
	"hash/fnv"
	"time"

	"mainstay.dev/sdk/api"
)

// SpawnSpec describes an agent to start.
type SpawnSpec struct {
	// ID is the id of the spawn and of its agent. The same id is never started twice.
	ID           string              `json:"id"`
	Cluster      string              `json:"cluster"`
	Slots        int                 `json:"slots,omitempty"` // 0: the spawner's default
	Capabilities []string            `json:"capabilities,omitempty"`
	Resources    api.Resources       `json:"resources,omitzero"`
	Environment  map[string]string   `json:"environment,omitempty"`
	Image        string              `json:"image,omitempty"` // "": the spawner's
	Docker       api.DockerSpawn     `json:"docker,omitzero"`
	Kubernetes   api.KubernetesSpawn `json:"kubernetes,omitzero"`
	EC2          api.EC2Spawn        `json:"ec2,omitzero"`
}

// Spawned is an agent that a spawner started.
type Spawned struct {
	ID       string       `json:"id"`
	Cluster  string       `json:"cluster"`
	Spawner  string       `json:"spawner"`
	Platform api.Platform `json:"platform"`
	// Handle names it on its platform: a process id, a container's id.
	Handle    string    `json:"handle"`
	Host      string    `json:"host,omitempty"`
	StartedAt time.Time `json:"started_at"`
}

// SpawnedBy returns the spawner that started the member's present process; ok is false when none did.
func (m *Member) SpawnedBy() (spawner string, ok bool) {
	spawner = m.Metadata[api.MetadataSpawner]
	return spawner, api.ValidateID("spawner", spawner) == nil && m.Metadata[api.MetadataSpawnID] == m.AgentID
}

// maxSpawnPrefix leaves room for the rest of an agent's id.
const maxSpawnPrefix = api.MaxIDLength - 10

// SpawnID is the id of the nth agent of a scaling action. created distinguishes clusters that had the same name.
func SpawnID(cluster string, created time.Time, action int64, n int) string {
	h := fnv.New64a()
	_, _ = h.Write(fmt.Appendf(nil, "%s/%d/%d/%d", cluster, created.UnixNano(), action, n))
	prefix := cluster[:min(len(cluster), maxSpawnPrefix)]
	return prefix + "-" + fmt.Sprintf("%016x", h.Sum64())[:8]
}
