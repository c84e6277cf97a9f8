package contract

import (
	"fmt"
	"time"

	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/fleet"
)

// healthPlugin is how an agent's health appears in its entry of the live worker registry, which has no field for it.
const healthPlugin = "mainstay-health"

// HealthPlugin puts an agent's health into its entry of the live registry.
func HealthPlugin(level fleet.HealthLevel, score float64) *workerpb.PluginInfo {
	if level == "" {
		level, score = fleet.HealthHealthy, 1 // it was not rated yet
	}
	return &workerpb.PluginInfo{Name: healthPlugin, Version: fmt.Sprintf("%s %.3f", level, score)}
}

// statusPlugin is how a live status appears there; an agent that is online has none.
const statusPlugin = "mainstay-status"

// StatusPlugin puts a live status, and since when it is so, into an agent's entry of the live registry.
func StatusPlugin(status fleet.AgentStatus, since time.Time) *workerpb.PluginInfo {
	return &workerpb.PluginInfo{Name: statusPlugin, Version: fmt.Sprintf("%s %d", status, since.UnixMilli())}
}

// StatusOf reads what StatusPlugin wrote; ok is false where there is none.
func StatusOf(h *workerpb.WorkerHeartbeat) (status fleet.AgentStatus, since time.Time, ok bool) {
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

// HealthOf reads what HealthPlugin wrote; ok is false where there is none.
func HealthOf(h *workerpb.WorkerHeartbeat) (level fleet.HealthLevel, score float64, ok bool) {
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
	Agents map[string]fleet.Health `json:"agents,omitempty"`
}

// ReadHealthID is the id of one reading. nonce makes it unique.
func ReadHealthID(cluster, nonce string) string { return "read-health/" + cluster + "/" + nonce }
