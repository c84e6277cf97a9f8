package contract

import "mainstay.dev/mainstay/fleet"

// ReadTasksActivity runs on a hub's own queue, as an activity without a workflow: it tells what the hub's agents of a
// cluster run.
var ReadTasksActivity = Activity[ReadTasksInput, ReadTasksResult]{"ReadTasks"}

// ReadTasksInput says which agents.
type ReadTasksInput struct {
	Cluster string `json:"cluster"`
	// AgentID is the one agent to tell of; empty: all of the cluster.
	AgentID string `json:"agent_id,omitempty"`
}

// ReadTasksResult has what the agents run, by agent.
type ReadTasksResult struct {
	Agents map[string][]fleet.HeldTask `json:"agents,omitempty"`
}

// MaxHeldTasks bounds how many of one agent's are told.
const MaxHeldTasks = 100

// ReadTasksID is the id of one reading. nonce makes it unique.
func ReadTasksID(cluster, nonce string) string { return "read-tasks/" + cluster + "/" + nonce }
