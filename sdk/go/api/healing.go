package api

import (
	"time"
)

// HealingState is whether the healing cycle runs by itself.
type HealingState string

// The states of the healing cycle.
const (
	HealingActive  HealingState = "active"
	HealingPaused  HealingState = "paused"  // a person paused it; by request it still runs
	HealingMissing HealingState = "missing" // its schedule does not exist; a worker's start makes it
)

// HealingStatus is how healing stands.
type HealingStatus struct {
	State HealingState `json:"state" enum:"active,paused,missing"`
	Note  string       `json:"note,omitempty" doc:"What was said when it was paused or resumed."`
	// CycleInterval and what follows are of its schedule in Temporal.
	CycleInterval Duration   `json:"cycle_interval,omitempty"`
	NextCycleAt   *time.Time `json:"next_cycle_at,omitempty"`
	Cycles        int64      `json:"cycles" doc:"How many the schedule has started."`
	// LastCycle is the newest that the schedule started and that has ended.
	LastCycle *HealingCycleRecord `json:"last_cycle,omitempty"`
	Running   []HealingRecord     `json:"running" doc:"The actions under way, at most 50."`
	Clusters  []HealingCluster    `json:"clusters"`
}

// HealingCluster is what healing may do in a cluster.
type HealingCluster struct {
	Cluster       string      `json:"cluster"`
	Mode          HealingMode `json:"mode" enum:"on,dry_run,off"`
	CycleInterval Duration    `json:"cycle_interval"`
}

// HealingTrigger asks for a cycle now.
type HealingTrigger struct {
	Cluster string `json:"cluster,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The one to look at. Left out: all."`
	DryRun  bool   `json:"dry_run,omitempty" doc:"Only tell what would be done."`
	Reason  string `json:"reason,omitempty" maxLength:"512"`
}
