package contract

import (
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

// Messages of the Cluster workflow about how much its agents do.
var (
	// ReduceLoadUpdate answers once the hubs have heard.
	ReduceLoadUpdate  = Update[ReduceLoadRequest, LoadReduced]{"reduce-load"}
	RestoreLoadUpdate = Update[RestoreLoadRequest, LoadReduced]{"restore-load"}
	RebalanceUpdate   = Update[RebalanceRequest, api.Rebalance]{"rebalance"}
	TargetsUpdate     = Update[TargetsRequest, Done]{"targets"}
	// ReduceLoadActivity and RebalanceActivity ask a cluster for the same. A refusal is final, with the type Refused.
	ReduceLoadActivity = Activity[ClusterReduceLoad, LoadReduced]{"ReduceLoad"}
	RebalanceActivity  = Activity[ClusterRebalance, api.Rebalance]{"Rebalance"}
)

// ReduceLoadRequest limits an agent to fewer of its slots. A further request changes the number and begins the time
// anew; a factor is always of all its slots. It is refused for an agent with one slot, and for one that is no member.
type ReduceLoadRequest struct {
	AgentID string `json:"agent_id"`
	// Slots, or Factor of its slots (0 to 1); neither: half. At least one slot is left.
	Slots  int     `json:"slots,omitempty"`
	Factor float64 `json:"factor,omitempty"`
	// For is after how long it gets them back, step by step; 0: cluster.DefaultReduceFor.
	For api.Duration `json:"for,omitempty"`
	// UntilHealthy gives them back earlier, once its health is good again.
	UntilHealthy bool   `json:"until_healthy,omitempty"`
	Reason       string `json:"reason,omitempty"`
	// Healing is healing's decision, if healing asks; the cluster refuses it when its reasons no longer hold.
	Healing *healing.HealingCheck `json:"healing,omitempty"`
}

// Reduce is the request in the words of the domain.
func (r *ReduceLoadRequest) Reduce() cluster.Reduce {
	return cluster.Reduce{Slots: r.Slots, Factor: r.Factor, For: r.For.Std(), UntilHealthy: r.UntilHealthy,
		Reason: r.Reason}
}

// RestoreLoadRequest gives an agent all its slots back at once. Without a reduction it does nothing.
type RestoreLoadRequest struct {
	AgentID string `json:"agent_id"`
}

// LoadReduced answers both.
type LoadReduced struct {
	AgentID        string `json:"agent_id"`
	MaxTasks       int    `json:"max_tasks"`
	EffectiveSlots int    `json:"effective_slots"`
	// Changed is false when the agent had the same number of slots before.
	Changed   bool                   `json:"changed"`
	Reduction *cluster.LoadReduction `json:"reduction,omitempty"`
}

// RebalanceRequest spreads shards and targets evenly over the agents, with as few moves as that needs. Asked again, it
// finds nothing to do.
type RebalanceRequest struct {
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// TargetsRequest adds deployment targets to a cluster and takes others away.
type TargetsRequest struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}
