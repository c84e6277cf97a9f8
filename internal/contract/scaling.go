package contract

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/sdk/api"
)

// Workflow types of scaling.
const (
	// ScalingWorkflow carries out one change of the number of a cluster's agents.
	ScalingWorkflow = "Scaling"
	// ScalingSweepWorkflow looks once at all clusters; a Temporal Schedule starts it.
	ScalingSweepWorkflow = "ScalingSweep"
)

// Messages of the Cluster workflow for scaling.
var (
	ScaleUpdate = Update[ScaleRequest, cluster.ScalingDecision]{"scale"}
	// SpawnUpdate starts one agent, TerminateUpdate stops a chosen one that a spawner started.
	SpawnUpdate     = Update[RunRequest, ScalingAsked]{"spawn"}
	TerminateUpdate = Update[TerminateRequest, ScalingAsked]{"terminate"}
	// RetireUpdate is refused while the agent is connected.
	RetireUpdate = Update[RetireRequest, None]{"retire"}
	// PromoteRolloutUpdate lets the other agents follow healthy canaries, RevertRolloutUpdate puts the settings before
	// the newest rollout in force again.
	PromoteRolloutUpdate = Update[RunRequest, None]{"promote-rollout"}
	RevertRolloutUpdate  = Update[RunRequest, None]{"revert-rollout"}
	// ScaledSignal comes from a Scaling workflow.
	ScaledSignal        = Signal[scaling.ScalingResult]{"scaled"}
	SpawnerStartsSignal = Signal[SpawnerStarts]{"spawner-starts"}
)

// Activities of scaling.
var (
	// SweepScalingActivity looks at the clusters that have scaling on, and asks those where something is to be done.
	SweepScalingActivity = Activity[None, SweepResult]{"SweepScaling"}
	// ReadScalingActivity reads the facts about the cluster of this name that change every second.
	ReadScalingActivity = Activity[string, scaling.ScalingFacts]{"ReadScaling"}
	// AwaitJoinedActivity watches started agents until they are online.
	AwaitJoinedActivity = Activity[AwaitJoinedInput, AwaitJoinedResult]{"AwaitJoined"}
	// RetireActivity has a cluster forget an agent that was stopped for good.
	RetireActivity = Activity[ClusterRetire, None]{"Retire"}
	// FindSpawnerActivity runs on a queue of spawners; the one that took it answers. On the queue of a platform, one
	// that can start no agent now answers with an error.
	FindSpawnerActivity = Activity[None, SpawnerInfo]{"FindSpawner"}
	// SpawnAgentActivity and TerminateAgentActivity run on the queue of one spawner.
	SpawnAgentActivity     = Activity[cluster.SpawnSpec, cluster.Spawned]{"SpawnAgent"}
	TerminateAgentActivity = Activity[TerminateInput, None]{"TerminateAgent"}
)

// The schedule of the sweep.
const (
	ScalingScheduleID = "scaling"
	ScalingInterval   = 30 * time.Second
)

// SpawnerQueue is the task queue of one spawner's activities.
func SpawnerQueue(name string) string { return "spawner/" + name }

// SpawnersQueue is the task queue of all spawners of a platform.
func SpawnersQueue(platform api.Platform) string {
	if platform == api.PlatformProcess {
		return "spawner"
	}
	return "spawners/" + string(platform)
}

// PresenceQueue is polled by every spawner, so that they can be listed; no activity is sent there.
const PresenceQueue = "spawners"

// ReadSpawnerID is the id of one question to a spawner. nonce makes it unique.
func ReadSpawnerID(spawner, nonce string) string { return "read-spawner/" + spawner + "/" + nonce }

// SpawnerIdentity is the identity with which a spawner polls its queues.
func SpawnerIdentity(name string) string { return "spawner/" + name }

// SpawnerOfIdentity is the inverse of SpawnerIdentity.
func SpawnerOfIdentity(identity string) (name string, ok bool) {
	return strings.CutPrefix(identity, "spawner/")
}

// ScalingInput starts a Scaling workflow, a child of its Cluster.
type ScalingInput struct {
	Cluster  string                  `json:"cluster"`
	Number   int64                   `json:"number"`
	Decision cluster.ScalingDecision `json:"decision"`
	// Starts are the ids of the agents to start; Stops are the agents to stop.
	Starts []string        `json:"starts,omitempty"`
	Stops  []StopAgent     `json:"stops,omitempty"`
	Spawn  api.SpawnPolicy `json:"spawn"`
}

// StopAgent is an agent to be stopped by the spawner that started it.
type StopAgent struct {
	AgentID string `json:"agent_id"`
	Spawner string `json:"spawner"`
}

// ScalingQuery answers while an action runs and after; the workflow also returns the record.
var ScalingQuery = Query[api.ScalingRecord]{"record"}

// ScalingWorkflowID is the id of the workflow of an action.
func ScalingWorkflowID(cluster string, number int64) string {
	return "scaling/" + cluster + "/" + strconv.FormatInt(number, 10)
}

// ScalingOfWorkflowID is the inverse of ScalingWorkflowID.
func ScalingOfWorkflowID(id string) (cluster string, number int64, ok bool) {
	rest, ok := strings.CutPrefix(id, "scaling/")
	cluster, text, both := strings.Cut(rest, "/")
	number, err := strconv.ParseInt(text, 10, 64)
	return cluster, number, ok && both && err == nil && number > 0 && api.ValidateID("cluster", cluster) == nil
}

// ScalingID names an action in the REST API: "<cluster>:<number>".
func ScalingID(cluster string, number int64) string {
	return cluster + ":" + strconv.FormatInt(number, 10)
}

// ParseScalingID is the inverse of ScalingID.
func ParseScalingID(id string) (cluster string, number int64, ok bool) {
	cluster, text, both := strings.Cut(id, ":")
	number, err := strconv.ParseInt(text, 10, 64)
	return cluster, number, both && err == nil && number > 0 && api.ValidateID("cluster", cluster) == nil
}

// ScaleRequest asks a cluster to decide about the number of its agents.
type ScaleRequest struct {
	// Facts are facts that the cluster does not have; nil: it reads them itself if it needs them.
	Facts *scaling.ScalingFacts `json:"facts,omitempty"`
	// To is how many agents a person wants; nil: as before.
	To *int `json:"to,omitempty"`
}

// TerminateRequest asks to stop an agent.
type TerminateRequest struct {
	RunRequest
	AgentID string `json:"agent_id"`
}

// ScalingAsked is the action that a person asked for, and its agent.
type ScalingAsked struct {
	Number  int64  `json:"number"`
	AgentID string `json:"agent_id"`
}

// RetireRequest names an agent that was stopped for good.
type RetireRequest struct {
	AgentID string `json:"agent_id"`
}

// SpawnerStarts says that a spawner has come up: agents that could not be started are tried at once.
type SpawnerStarts struct {
	Spawner string `json:"spawner"`
}

// SpawnerInfo is a spawner as it describes itself.
type SpawnerInfo struct {
	Name     string       `json:"name"`
	Platform api.Platform `json:"platform"`
	// Problem is why its platform does not answer; empty: it does.
	Problem string `json:"problem,omitempty"`
	// Agents is how many run; MaxAgents bounds them, 0: nothing does.
	Agents    int `json:"agents"`
	MaxAgents int `json:"max_agents,omitempty"`
	// CPUs and MemoryBytes are what its platform has in all; 0: not known.
	CPUs        int   `json:"cpus,omitempty"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// Ended are the newest ends of agents that nobody asked to end, newest first.
	Ended []api.SpawnEnd `json:"ended,omitempty"`
}

// Refuses is why it can start no agent now; empty: it can.
func (i *SpawnerInfo) Refuses() string {
	if i.Problem == "" && i.MaxAgents > 0 && i.Agents >= i.MaxAgents {
		return fmt.Sprintf("spawner %s runs the %d agents that its max_agents allows", i.Name, i.MaxAgents)
	}
	return i.Problem
}

// TerminateInput is the input of TerminateAgentActivity.
type TerminateInput struct {
	ID string `json:"id"`
	// Cluster is the agent's. If the spawner started the agent of this id for another cluster, that agent runs on.
	Cluster string `json:"cluster,omitempty"`
	// Graceful lets the agent finish, within the spawner's bound.
	Graceful bool `json:"graceful,omitempty"`
}

// AwaitJoinedInput is the input of AwaitJoinedActivity.
type AwaitJoinedInput struct {
	Cluster string       `json:"cluster"`
	Agents  []string     `json:"agents"`
	Timeout api.Duration `json:"timeout"`
}

// AwaitJoinedResult lists the agents that are online, and when each was seen.
type AwaitJoinedResult struct {
	Joined map[string]time.Time `json:"joined,omitempty"`
}

// SweepResult is the result of one look at all clusters.
type SweepResult struct {
	// Clusters is how many have scaling on.
	Clusters int `json:"clusters"`
	// Acted are the decisions that were carried out, by cluster.
	Acted map[string]cluster.ScalingDecision `json:"acted,omitempty"`
	// Failed are the clusters that could not be looked at, and why.
	Failed map[string]string `json:"failed,omitempty"`
}

// SpawnRefused is the application error type of a spawn that must not be tried again as it is.
const SpawnRefused = "SpawnRefused"
