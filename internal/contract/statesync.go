package contract

import (
	"strings"

	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/sdk/api"
)

// StateSyncWorkflow makes the states of a cluster's members the same. SyncInput → api.SyncReport.
const StateSyncWorkflow = "StateSync"

var (
	// SyncQuery answers while a state sync runs and after.
	SyncQuery = Query[api.SyncReport]{"report"}
	// StatesSignal sends a cluster the states of one hub's agents.
	StatesSignal = Signal[StatesChanged]{"states"}
)

// Activities about the agents' states. The first runs on the worker's queue, the others on a hub's own.
var (
	// SyncMembersActivity lists the members, with their hubs, of the cluster of this name.
	SyncMembersActivity = Activity[string, SyncMembersResult]{"SyncMembers"}
	// ReadStatesActivity reads what a hub's agents of a cluster have.
	ReadStatesActivity = Activity[ReadStatesInput, ReadStatesResult]{"ReadStates"}
	// CompareStatesActivity compares them with what they should have.
	CompareStatesActivity = Activity[CompareStatesInput, CompareStatesResult]{"CompareStates"}
	// ReadEntriesActivity reads entries from one agent.
	ReadEntriesActivity = Activity[ReadEntriesInput, ReadEntriesResult]{"ReadEntries"}
	// ApplyStateActivity hands entries to agents.
	ApplyStateActivity = Activity[ApplyStateInput, ApplyStateResult]{"ApplyState"}
)

// SyncWorkflowID is the id of a cluster's state sync; there is one at a time.
func SyncWorkflowID(cluster string) string { return "sync/" + cluster }

// SyncOfWorkflowID is the inverse of SyncWorkflowID.
func SyncOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "sync/") }

// SyncInput starts a StateSync workflow.
type SyncInput struct {
	Cluster string `json:"cluster"`
	Reason  string `json:"reason,omitempty"`
}

// StatesChanged is the argument of StatesSignal.
type StatesChanged struct {
	Hub string `json:"hub"`
	// Digests are the different ones, sorted; empty: no agent of the hub keeps state.
	Digests []string `json:"digests,omitempty"`
}

// SyncMembersResult lists a cluster's members.
type SyncMembersResult struct {
	Mode    api.ReplicationMode `json:"mode"`
	Leader  string              `json:"leader,omitempty"`
	Members []SyncMember        `json:"members"`
}

// SyncMember is one of them.
type SyncMember struct {
	AgentID string   `json:"agent_id"`
	Role    api.Role `json:"role"`
	Hub     string   `json:"hub,omitempty"` // empty: it is not connected
}

// ReadStatesInput says whose states.
type ReadStatesInput struct {
	Cluster string `json:"cluster"`
	// Manifests asks the agents for what they have; else the answer is what their heartbeats reported.
	Manifests bool `json:"manifests,omitempty"`
	// First is the agent whose copy is preferred among equal ones: the leader.
	First string `json:"first,omitempty"`
}

// AgentState is what a hub knows of one agent's state.
type AgentState struct {
	AgentID string            `json:"agent_id"`
	State   *api.StateSummary `json:"state,omitempty"` // nil: it keeps none
	// Silent says that it did not answer in time.
	Silent bool `json:"silent,omitempty"`
}

// ReadStatesResult has the hub's agents of the cluster, sorted, and what they have together.
type ReadStatesResult struct {
	Agents []AgentState         `json:"agents,omitempty"`
	Merged []statesync.HeldLine `json:"merged,omitempty"`
}

// CompareStatesInput has the state that all should have.
type CompareStatesInput struct {
	Cluster string          `json:"cluster"`
	Want    []api.StateLine `json:"want,omitempty"`
}

// CompareStatesResult is what the hub's agents lack.
type CompareStatesResult struct {
	// Lagging are the agents that lack something; Behind counts the entries, without task states.
	Lagging []AgentLag `json:"lagging,omitempty"`
	// Missing and Extra are what at least one of them lacks, or has too much.
	Missing []api.StateRef `json:"missing,omitempty"`
	Extra   []api.StateRef `json:"extra,omitempty"`
}

// AgentLag is how far one agent is behind.
type AgentLag struct {
	AgentID string `json:"agent_id"`
	Behind  int    `json:"behind"`
}

// ReadEntriesInput names entries that an agent has.
type ReadEntriesInput struct {
	AgentID string         `json:"agent_id"`
	Refs    []api.StateRef `json:"refs"`
}

// ReadEntriesResult has the requested entries that the agent has.
type ReadEntriesResult struct {
	Entries []api.StateEntry `json:"entries,omitempty"`
	Silent  bool             `json:"silent,omitempty"`
}

// ApplyStateInput is what agents are handed.
type ApplyStateInput struct {
	Cluster string           `json:"cluster"`
	Agents  []string         `json:"agents"`
	Entries []api.StateEntry `json:"entries,omitempty"`
	Forget  []api.StateRef   `json:"forget,omitempty"`
}

// ApplyStateResult says which agents did not take it, with why.
type ApplyStateResult struct {
	Failed []StateRefusal `json:"failed,omitempty"`
}

// StateRefusal is why an agent did not take entries.
type StateRefusal struct {
	AgentID string `json:"agent_id"`
	Why     string `json:"why"`
}

// ReadStatesID is the id of one reading without a workflow. nonce makes it unique.
func ReadStatesID(cluster, nonce string) string { return "read-states/" + cluster + "/" + nonce }
