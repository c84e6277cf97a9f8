package contract

import (
	"mainstay.dev/mainstay/fleet"
)

// ReadHealthActivity runs on a hub's own queue, as an activity without a workflow: it rates the hub's agents of a cluster.
// ReadHealthInput → ReadHealthResult.
const ReadHealthActivity = "ReadHealth"

// ReadHealthInput says which agents.
type ReadHealthInput struct {
	Cluster string `json:"cluster"`
	// AgentID is the one agent to rate; empty: all of the cluster.
	AgentID string `json:"agent_id,omitempty"`
}

// ReadHealthResult has the agents that the hub knows, by id.
type ReadHealthResult struct {
	Agents map[string]fleet.Health `json:"agents,omitempty"`
}

// ReadHealthID is the id of one reading. nonce makes it unique.
func ReadHealthID(cluster, nonce string) string { return "read-health/" + cluster + "/" + nonce }
