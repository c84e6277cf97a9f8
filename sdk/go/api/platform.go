package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Platform is where a spawner runs agents.
type Platform string

// The platforms.
const (
	PlatformProcess    Platform = "process" // processes of the spawner's own machine
	PlatformDocker     Platform = "docker"
	PlatformKubernetes Platform = "kubernetes"
	PlatformCoolify    Platform = "coolify"
	PlatformEC2        Platform = "ec2"
)

// PullPolicy is when an engine fetches an image.
type PullPolicy string

// The pull policies.
const (
	PullMissing PullPolicy = "missing" // where the engine does not have it
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// DockerSpawn has the settings of agents' containers that only the platform docker has.
type DockerSpawn struct {
	Pull         PullPolicy `json:"pull,omitempty" enum:"missing,always,never" doc:"When the engine fetches the image. Default missing: where it does not have it."`
	PidsLimit    int        `json:"pids_limit,omitempty" minimum:"1" maximum:"100000" doc:"Processes and threads of one agent, at most. 0: 1000."`
	WritableRoot bool       `json:"writable_root,omitempty" doc:"Let agents write to the image's files. Default false: only /tmp can be written."`
}

// KubernetesSpawn has the settings of agents' pods that only the platform kubernetes has.
type KubernetesSpawn struct {
	Pull          PullPolicy `json:"pull,omitempty" enum:"missing,always,never" doc:"When a node fetches the image. Default: as Kubernetes has it, always for the tag latest, else missing."`
	WritableRoot  bool       `json:"writable_root,omitempty" doc:"Let agents write to the image's files. Default false: only /tmp can be written."`
	PriorityClass string     `json:"priority_class,omitempty" maxLength:"253" doc:"The priority class of the pods. Default: that of the spawner's template, or of the namespace."`
}

// EC2Spawn has the settings of agents' instances that only the platform ec2 has.
type EC2Spawn struct {
	InstanceType string `json:"instance_type,omitempty" maxLength:"63" doc:"Such as c7g.large. Default: that of the spawner, or of its launch template."`
	Spot         bool   `json:"spot,omitempty" doc:"Spot instances: AWS may take them back, and their agents are drained before. Default false."`
}

// Resources are the resources of one agent. Empty means the platform's default.
type Resources struct {
	CPU     string `json:"cpu,omitempty"`     // cores, as "2", "0.5" or "500m"
	Memory  string `json:"memory,omitempty"`  // bytes, as "512Mi" or "4Gi"
	Storage string `json:"storage,omitempty"` // bytes, as "10Gi"
}

// Validate checks the amounts. Its errors are FieldErrors.
func (r Resources) Validate() error { return r.validate("") }

func (r Resources) validate(at string) error {
	if _, err := r.MilliCPU(); err != nil {
		return &FieldError{at + "resources.cpu", err}
	}
	if _, err := r.MemoryBytes(); err != nil {
		return &FieldError{at + "resources.memory", err}
	}
	if _, err := r.StorageBytes(); err != nil {
		return &FieldError{at + "resources.storage", err}
	}
	return nil
}

// MilliCPU is CPU in thousandths of a core; 0 when it is empty.
func (r Resources) MilliCPU() (int64, error) {
	if r.CPU == "" {
		return 0, nil
	}
	text, factor := r.CPU, 1000.0
	if rest, milli := strings.CutSuffix(text, "m"); milli {
		text, factor = rest, 1
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value*factor >= 1 && value*factor <= 1e6) {
		return 0, fmt.Errorf(`must be a number of cores, like "2", "0.5" or "500m"`)
	}
	return int64(math.Round(value * factor)), nil
}

// MemoryBytes is Memory; 0 when it is empty.
func (r Resources) MemoryBytes() (int64, error) { return ParseBytes(r.Memory) }

// StorageBytes is Storage; 0 when it is empty.
func (r Resources) StorageBytes() (int64, error) { return ParseBytes(r.Storage) }

var byteUnits = []struct {
	suffix string
	factor float64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T",
	1e12}, {"", 1}}

// ParseBytes reads an amount of memory or storage, such as 512Mi or 2G, in bytes. Empty is 0.
func ParseBytes(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	for _, unit := range byteUnits {
		number, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err == nil && value*unit.factor >= 1 && value*unit.factor <= 1<<50 {
			return int64(value * unit.factor), nil
		}
		break
	}
	return 0, fmt.Errorf(`must be an amount of bytes, like "512Mi" or "4Gi"`)
}

// SpawnEnd is the end of a spawned agent that nobody asked to end.
type SpawnEnd struct {
	AgentID string    `json:"agent_id"`
	Cluster string    `json:"cluster"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"` // how it ended, in words: exit code, signal, memory
	// Gone: nothing that it started runs any more, so its end is a proof of death. Host and PID are its process's, if
	// it is one of a machine.
	Gone bool   `json:"gone,omitempty"`
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Notice: it has not ended yet, and its platform ends it at At.
	Notice bool `json:"-"`
}

// Metadata keys with the spawner and the spawn id of an agent.
const (
	MetadataSpawner = "mainstay.spawner"
	MetadataSpawnID = "mainstay.spawn_id"
)

// Environment variables with the spawner and the spawn id. The agent library copies them into the metadata of the agent
// with that id.
const (
	EnvSpawner = "MAINSTAY_SPAWNER"
	EnvSpawnID = "MAINSTAY_SPAWN_ID"
)

// EnvJoinTokenFile is the environment variable with the file of an agent's join token.
const EnvJoinTokenFile = "MAINSTAY_JOIN_TOKEN_FILE"
