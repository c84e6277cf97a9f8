package contract

import (
	"fmt"
	"strconv"
	"time"

	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// HubInput starts a Hub workflow.
type HubInput struct {
	Hub string `json:"hub"`
}

// Messages of the Hub workflow.
var (
	// HubStartedSignal says that a new process plays the hub: the lease is held anew.
	HubStartedSignal = Signal[HubStarted]{"started"}
	// HoldLeaseActivity runs on a hub's own queue for as long as the hub lives; its heartbeat is the hub's lease.
	HoldLeaseActivity = Activity[HoldLeaseInput, None]{"HoldLease"}
	// AnnounceHubLostActivity signals to every cluster that a hub is lost.
	AnnounceHubLostActivity = Activity[HubLost, None]{"AnnounceHubLost"}
)

// HubStarted names the process.
type HubStarted struct {
	Instance string `json:"instance_id"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
}

// HoldLeaseInput is the input of HoldLeaseActivity.
type HoldLeaseInput struct {
	Hub string `json:"hub"`
	// Lost: the clusters know that the hub is lost, and have given up its agents.
	Lost bool `json:"lost,omitempty"`
}

// ReadLogActivity runs on a hub's own queue, as an activity without a workflow: it reads lines of the log of an attempt
// that one of the hub's agents runs.
var ReadLogActivity = Activity[ReadLogInput, ReadLogResult]{"ReadLog"}

// ReadLogInput says which lines.
type ReadLogInput struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
	// After is the number of the last line that the reader has.
	After int64 `json:"after"`
	// Wait is how long to wait for a line.
	Wait api.Duration `json:"wait,omitempty"`
}

// ReadLogResult has the lines that there are.
type ReadLogResult struct {
	AgentID string        `json:"agent_id,omitempty"`
	Lines   []api.LogLine `json:"lines,omitempty"`
	// Gone says that no agent of the hub has the attempt any more.
	Gone bool `json:"gone,omitempty"`
	// Silent says that the agent did not answer: it may not know how to.
	Silent bool `json:"silent,omitempty"`
}

// ReadLogID is the id of one reading. nonce makes it unique.
func ReadLogID(task, nonce string) string { return "read-log/" + task + "/" + nonce }

// ReadTasksActivity runs on a hub's own queue, as an activity without a workflow: it lists the tasks that the hub's
// agents of a cluster run.
var ReadTasksActivity = Activity[ReadTasksInput, ReadTasksResult]{"ReadTasks"}

// ReadTasksInput says which agents.
type ReadTasksInput struct {
	Cluster string `json:"cluster"`
	// AgentID is the one agent to ask about; empty: all of the cluster.
	AgentID string `json:"agent_id,omitempty"`
}

// ReadTasksResult has what the agents run, by agent.
type ReadTasksResult struct {
	Agents map[string][]api.HeldTask `json:"agents,omitempty"`
}

// ReadInstancesActivity runs on a hub's own queue, as an activity without a workflow: it lists the instances of jobs
// that the hub's agents run.
var ReadInstancesActivity = Activity[ReadInstancesInput, ReadInstancesResult]{"ReadInstances"}

// ReadInstancesInput says which instances.
type ReadInstancesInput struct {
	Job string `json:"job,omitempty"` // the job's full name; empty: those of all jobs
	// After is the id of the task after which to go on; empty: from the first.
	After string `json:"after,omitempty"`
}

// ReadInstancesResult has the instances.
type ReadInstancesResult struct {
	Instances []FoundInstance `json:"instances,omitempty"`
	// More: there are more than fit into one answer, after the last.
	More bool `json:"more,omitempty"`
}

// FoundInstance is an instance that an agent runs.
type FoundInstance struct {
	api.InstanceOf
	TaskID  string             `json:"task_id"`
	Attempt int                `json:"attempt"`
	Agent   string             `json:"agent"`
	Cluster string             `json:"cluster"`
	Zone    string             `json:"zone,omitempty"`
	Host    string             `json:"host,omitempty"` // where the agent can be reached
	Checked api.InstanceHealth `json:"checked"`
	Since   time.Time          `json:"since"`
}

// ReadInstancesID is the id of one reading. nonce makes it unique.
func ReadInstancesID(cluster, nonce string) string { return "read-instances/" + cluster + "/" + nonce }

// MaxHeldTasks bounds how many of one agent's tasks are listed.
const MaxHeldTasks = 100

// ReadTasksID is the id of one reading. nonce makes it unique.
func ReadTasksID(cluster, nonce string) string { return "read-tasks/" + cluster + "/" + nonce }

// healthPlugin is how an agent's health appears in its entry of the live worker registry, which has no field for it.
const healthPlugin = "mainstay-health"

// HealthPlugin puts an agent's health into its entry of the live registry.
func HealthPlugin(level api.HealthLevel, score float64) *workerpb.PluginInfo {
	if level == "" {
		level, score = api.HealthHealthy, 1 // it was not rated yet
	}
	return &workerpb.PluginInfo{Name: healthPlugin, Version: fmt.Sprintf("%s %.3f", level, score)}
}

// ShareOf is a used part in per cent as an agent's entry has it; negative: unknown.
func ShareOf(percent *float64) float32 {
	if percent == nil {
		return -1
	}
	return float32(*percent / 100)
}

// PercentOf reads what ShareOf wrote, with one decimal.
func PercentOf(share float32) *float64 {
	if share < 0 {
		return nil
	}
	return new(float64(int(share*1000+.5)) / 10)
}

// statusPlugin is how a live status appears there; an agent that is online has none.
const statusPlugin = "mainstay-status"

// StatusPlugin puts a live status, and since when it is so, into an agent's entry of the live registry.
func StatusPlugin(status api.AgentStatus, since time.Time) *workerpb.PluginInfo {
	return &workerpb.PluginInfo{Name: statusPlugin, Version: fmt.Sprintf("%s %d", status, since.UnixMilli())}
}

// StatusOf reads what StatusPlugin wrote; ok is false where there is none.
func StatusOf(h *workerpb.WorkerHeartbeat) (status api.AgentStatus, since time.Time, ok bool) {
	for _, p := range h.GetPlugins() {
		var ms int64
		if p.GetName() != statusPlugin {
			continue
		}
		if n, err := fmt.Sscanf(p.GetVersion(), "%s %d", &status, &ms); err == nil && n == 2 {
			return status, time.UnixMilli(ms).UTC(), true
		}
	}
	return "", time.Time{}, false
}

// rivalPlugin marks the entry of a process that has no session, since another one with its agent id has it.
const rivalPlugin = "mainstay-rival"

// RivalPlugin marks an entry of the live registry as that of a rival, and says where the process can be reached.
func RivalPlugin(address string) *workerpb.PluginInfo {
	return &workerpb.PluginInfo{Name: rivalPlugin, Version: address}
}

// RivalOf reads the entry of a rival; ok is false for others.
func RivalOf(h *workerpb.WorkerHeartbeat) (r cluster.Rival, ok bool) {
	for _, p := range h.GetPlugins() {
		if p.GetName() == rivalPlugin {
			_, agent, _ := AgentOfIdentity(h.GetWorkerIdentity())
			pid, _ := strconv.Atoi(h.GetHostInfo().GetProcessId()) // the hub wrote it
			return cluster.Rival{AgentID: agent, Host: h.GetHostInfo().GetHostName(), PID: pid, Address: p.GetVersion(),
				Since: h.GetStartTime().AsTime()}, true
		}
	}
	return r, false
}

// HealthOf reads what HealthPlugin wrote; ok is false where there is none.
func HealthOf(h *workerpb.WorkerHeartbeat) (level api.HealthLevel, score float64, ok bool) {
	for _, p := range h.GetPlugins() {
		if p.GetName() != healthPlugin {
			continue
		}
		if n, err := fmt.Sscanf(p.GetVersion(), "%s %f", &level, &score); err == nil && n == 2 {
			return level, score, true
		}
	}
	return "", 0, false
}

// ReadHealthActivity runs on a hub's own queue, as an activity without a workflow: it rates the hub's agents of a
// cluster.
var ReadHealthActivity = Activity[ReadHealthInput, ReadHealthResult]{"ReadHealth"}

// ReadHealthInput says which agents.
type ReadHealthInput struct {
	Cluster string `json:"cluster"`
	// AgentID is the one agent to rate; empty: all of the cluster.
	AgentID string `json:"agent_id,omitempty"`
}

// ReadHealthResult has the agents that the hub knows, by id.
type ReadHealthResult struct {
	Agents map[string]cluster.Health `json:"agents,omitempty"`
}

// ReadHealthID is the id of one reading. nonce makes it unique.
func ReadHealthID(cluster, nonce string) string { return "read-health/" + cluster + "/" + nonce }
