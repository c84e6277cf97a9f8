package contract

import (
	"strings"

	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

// DrainInput starts a Drain workflow.
type DrainInput struct {
	ID      string   `json:"id"`
	Cluster string   `json:"cluster"`
	Agents  []string `json:"agents"`
	Reason  string   `json:"reason,omitempty"`
	// Timeout is how long each agent may finish its work.
	Timeout     api.Duration `json:"timeout"`
	MaxParallel int          `json:"max_parallel"`
	// Healing is what healing decided, if it is healing that drains; the cluster refuses what does not hold any more.
	Healing *healing.HealingCheck `json:"healing,omitempty"`
	// DryRun only reports what would happen.
	DryRun bool `json:"dry_run,omitempty"`
	// IncludeSystem also takes off instances of jobs that have one on each agent.
	IncludeSystem bool `json:"include_system,omitempty"`
}

// DrainQuery answers while a drain runs and after; the workflow also returns the record. A drain is cancelled by
// cancelling its workflow.
var DrainQuery = Query[api.DrainRecord]{"record"}

// Messages that keep work from an agent, or let it have work again.
var (
	CordonUpdate   = Update[CordonRequest, Cordoned]{"cordon"}
	UncordonUpdate = Update[UncordonRequest, Cordoned]{"uncordon"}
	// CordonActivity and UncordonActivity ask a cluster for it. A refusal is final, with the type Refused.
	CordonActivity   = Activity[ClusterCordon, Cordoned]{"Cordon"}
	UncordonActivity = Activity[ClusterUncordon, Cordoned]{"Uncordon"}
	// FindMemberActivity looks where an agent is connected.
	FindMemberActivity = Activity[FindMemberInput, Cordoned]{"FindMember"}
	// StopWorkActivity runs on a hub's own queue: the agent is given nothing new, and what it has is listed.
	StopWorkActivity = Activity[StopWorkInput, StopWorkResult]{"StopWork"}
	// AwaitIdleActivity runs on a hub's own queue until an agent has nothing in flight. The details of NoSession are
	// what it had last, as []cluster.HeldAttempt.
	AwaitIdleActivity = Activity[AwaitIdleInput, None]{"AwaitIdle"}
)

// DrainID names a drain in the REST API: "<cluster>:<name>".
func DrainID(cluster, name string) string { return cluster + ":" + name }

// DrainWorkflowID is the id of a drain's workflow; ok is false if id is not a drain's.
func DrainWorkflowID(id string) (workflowID string, ok bool) {
	cluster, name, found := strings.Cut(id, ":")
	if !found || api.ValidateID("cluster", cluster) != nil || api.ValidateID("name", name) != nil {
		return "", false
	}
	return "drain/" + cluster + "/" + name, true
}

// DrainOfWorkflowID is the inverse of DrainWorkflowID.
func DrainOfWorkflowID(workflowID string) (id string, ok bool) {
	rest, found := strings.CutPrefix(workflowID, "drain/")
	cluster, name, both := strings.Cut(rest, "/")
	id = DrainID(cluster, name)
	back, valid := DrainWorkflowID(id)
	return id, found && both && valid && back == workflowID
}

// CordonRequest is the argument of CordonUpdate: keep an agent from being given work.
type CordonRequest struct {
	AgentID string          `json:"agent_id"`
	Status  api.AgentStatus `json:"status"` // draining or maintenance
	Reason  string          `json:"reason,omitempty"`
	Drain   string          `json:"drain,omitempty"`
	// Healing is what healing decided, if it is healing that asks; the cluster refuses what does not hold any more.
	Healing *healing.HealingCheck `json:"healing,omitempty"`
}

// UncordonRequest is the argument of UncordonUpdate: let an agent be given work again.
type UncordonRequest struct {
	AgentID string `json:"agent_id"`
	Drain   string `json:"drain,omitempty"`
	// Healing is as in CordonRequest.
	Healing *healing.HealingCheck `json:"healing,omitempty"`
}

// Cordoned answers both, and FindMemberActivity: where the agent is connected now, and the version of the directive
// that says so to the hubs.
type Cordoned struct {
	Hub      string `json:"hub,omitempty"` // empty: it is not connected
	Instance string `json:"instance_id,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"`
	Version  int64  `json:"version"`
}

// FindMemberInput is the input of FindMemberActivity, which answers Cordoned.
type FindMemberInput struct {
	Cluster string `json:"cluster"`
	AgentID string `json:"agent_id"`
}

// StopWorkInput is the input of StopWorkActivity.
type StopWorkInput struct {
	AgentID  string `json:"agent_id"`
	Instance string `json:"instance_id"`
	Epoch    int64  `json:"epoch"`
	// Version is the directive's that cordons the agent: until the hub has it, the hub keeps new work away by itself.
	Version int64 `json:"version"`
	// DryRun only lists the work.
	DryRun bool `json:"dry_run,omitempty"`
	// IncludeSystem is as in DrainInput.
	IncludeSystem bool `json:"include_system,omitempty"`
}

// StopWorkResult lists what the agent had when new work stopped, at most api.MaxDrainWork of it.
type StopWorkResult struct {
	Work []api.DrainWork `json:"work,omitempty"`
}

// AwaitIdleInput is the input of AwaitIdleActivity.
type AwaitIdleInput struct {
	AgentID  string `json:"agent_id"`
	Instance string `json:"instance_id"`
	Epoch    int64  `json:"epoch"`
	// IncludeSystem is as in DrainInput.
	IncludeSystem bool `json:"include_system,omitempty"`
}

// NoSession is the application error type of a hub's activities about an agent that has no session there.
const NoSession = "NoSession"

// NotStopped is the application error type of an evacuation whose agent goes on with its work.
const NotStopped = "NotStopped"
