package api

import (
	"time"
)

// ScalingOutcome is the state of an action as a whole.
type ScalingOutcome string

// The statuses of a scaling action.
const (
	ScalingRunning   ScalingOutcome = "running"
	ScalingSucceeded ScalingOutcome = "succeeded"
	ScalingPartial   ScalingOutcome = "partial" // with some of the agents
	ScalingFailed    ScalingOutcome = "failed"
)

// ScaledStatus is the state of an action for one agent.
type ScaledStatus string

// The statuses of one agent in a scaling action.
const (
	ScaledWaiting  ScaledStatus = "waiting"
	ScaledStarted  ScaledStatus = "started" // its process runs; it is not online yet
	ScaledOnline   ScaledStatus = "online"
	ScaledDraining ScaledStatus = "draining"
	ScaledDrained  ScaledStatus = "drained" // it has no work; its process is being stopped
	ScaledStopped  ScaledStatus = "stopped"
	ScaledFailed   ScaledStatus = "failed"
)

// ScalingRecord is the record of one scaling action.
type ScalingRecord struct {
	ID      string         `json:"id"`
	Cluster string         `json:"cluster"`
	Change  ScaleChange    `json:"change" enum:"none,up,down"`
	Rule    ScalingRule    `json:"rule" enum:"minimum,desired,maximum,queue,cpu,idle,retire,restart,reassign,by_hand,rollout"`
	Reason  string         `json:"reason"`
	Status  ScalingOutcome `json:"status" enum:"running,succeeded,partial,failed"`
	Error   string         `json:"error,omitempty"`
	// From and To are the numbers of agents before, and after if all goes well.
	From        int           `json:"from"`
	To          int           `json:"to"`
	Spawner     string        `json:"spawner,omitempty"` // the spawner that starts the agents
	Platform    Platform      `json:"platform,omitempty"`
	Agents      []ScaledAgent `json:"agents"`
	Drain       string        `json:"drain_id,omitempty"` // drain of the agents that stop
	StartedAt   time.Time     `json:"started_at"`
	CompletedAt *time.Time    `json:"completed_at,omitempty"`
}

// ScaledAgent is the part of a scaling action for one agent.
type ScaledAgent struct {
	AgentID     string       `json:"agent_id"`
	Spawner     string       `json:"spawner,omitempty"`
	Handle      string       `json:"handle,omitempty"` // on the spawner's platform, such as its process id
	Host        string       `json:"host,omitempty"`
	Status      ScaledStatus `json:"status" enum:"waiting,started,online,draining,drained,stopped,failed"`
	Error       string       `json:"error,omitempty"`
	StartedAt   *time.Time   `json:"started_at,omitempty"`
	CompletedAt *time.Time   `json:"completed_at,omitempty"` // when it came online, was stopped, or was given up
}

// ScalingRule is the reason for a change of the number of agents.
type ScalingRule string

// The rules.
const (
	RuleMinimum ScalingRule = "minimum" // fewer agents than min_agents
	RuleDesired ScalingRule = "desired" // fewer or more than are wanted
	RuleMaximum ScalingRule = "maximum" // more than max_agents
	RuleQueue   ScalingRule = "queue"   // too many tasks wait
	RuleCPU     ScalingRule = "cpu"     // all agents are busy, and their machines too
	RuleIdle    ScalingRule = "idle"    // agents have no work
	RuleRetire  ScalingRule = "retire"  // agents are lost, or their stop was not finished
	// agents stay unhealthy: they are started anew, or stopped without another in their place
	RuleRestart  ScalingRule = "restart"
	RuleReassign ScalingRule = "reassign"
	RuleByHand   ScalingRule = "by_hand" // a person asked for one more, or for the end of a chosen one
	RuleRollout  ScalingRule = "rollout" // started with settings that have changed since
)

// Retires reports whether the rule is about agents that do not serve any more.
func (r ScalingRule) Retires() bool { return r == RuleRetire || r == RuleRestart || r == RuleReassign }

// ScalingBlocked is a change that is impossible now: why, since when, and when the next try is.
type ScalingBlocked struct {
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Failures int       `json:"failures"`
	NextAt   time.Time `json:"next_at"`
}

// ScaleChange is the direction of a change.
type ScaleChange string

// The directions.
const (
	ScaleNone ScaleChange = "none"
	ScaleUp   ScaleChange = "up"
	ScaleDown ScaleChange = "down"
)
