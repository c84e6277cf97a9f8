package fleet

import "time"

// HealingType is what healing can do.
type HealingType string

// The types of healing actions, the most urgent first.
const (
	// a critical or failed agent: its work and roles go to others, and it is taken out of service
	HealFailover HealingType = "failover_agent"
	// an attempt that no agent runs: it is ended, so that the task is delivered again
	HealReassign HealingType = "reassign_task"
	// fewer agents than wanted: more are asked for, and shards and targets spread
	HealRebalance HealingType = "rebalance_cluster"
	// a degraded agent: it finishes its work and is taken out of service
	HealDrain  HealingType = "drain_agent"
	HealReduce HealingType = "reduce_load" // an agent in warning: it is given less to do at a time
	// an agent that healing took out of service and that is healthy again
	HealRestore HealingType = "restore_agent"
	HealReport  HealingType = "report" // something that only a person can mend
)

// priorities order the actions of a cycle; the highest goes first.
var priorities = map[HealingType]int{
	HealFailover:  100,
	HealReassign:  80,
	HealRebalance: 60,
	HealDrain:     50,
	HealReduce:    40,
	HealRestore:   20,
	HealReport:    10,
}

// HealingVerdict is what becomes of something that was found.
type HealingVerdict string

// The verdicts.
const (
	HealAct  HealingVerdict = "act"     // it is done
	HealPlan HealingVerdict = "planned" // a dry run: it would be done
	HealSkip HealingVerdict = "skipped" // it is not done, and why is worth keeping
	HealWait HealingVerdict = "waiting" // it is not done now, as everybody would expect; why says it
)

// HealingStatus is how far an action is.
type HealingStatus string

// The statuses of an action.
const (
	HealingRunning   HealingStatus = "running"
	HealingSucceeded HealingStatus = "succeeded"
	HealingFailed    HealingStatus = "failed"
	HealingPlanned   HealingStatus = "planned"  // a dry run: nothing was done
	HealingSkipped   HealingStatus = "skipped"  // nothing was done, and outcome says why
	HealingReported  HealingStatus = "reported" // it needs a person
)

// HealingDecision is what a cycle makes of one thing that it found.
type HealingDecision struct {
	Type     HealingType `json:"type"`
	Cluster  string      `json:"cluster"`
	TargetID string      `json:"target_id"` // the agent, task, lane or cluster that it is about
	Priority int         `json:"priority"`
	// Reason is what is wrong, and Facts what that is concluded from.
	Reason string       `json:"reason"`
	Facts  HealingFacts `json:"facts,omitzero"`
	// Verdict says whether it is done, and Why why not.
	Verdict HealingVerdict `json:"verdict"`
	Why     string         `json:"why,omitempty"`
}

// HealingFacts are the facts that led to a decision, as far as they matter to it.
type HealingFacts struct {
	Status  AgentStatus `json:"status,omitempty"`
	Level   HealthLevel `json:"health,omitempty"`
	Score   *float64    `json:"health_score,omitempty"`
	Detail  string      `json:"detail,omitempty"` // why the level is what it is
	Since   time.Time   `json:"since,omitzero"`
	Epoch   int64       `json:"epoch,omitempty"` // of the agent's session
	Serving int         `json:"serving"`         // agents of the cluster that are given work
	Healthy int         `json:"healthy"`         // those of them that are healthy
	Wanted  int         `json:"wanted,omitempty"`
	Scaled  bool        `json:"scaled,omitempty"`  // scaling may start agents
	Running int         `json:"running,omitempty"` // tasks that the agent runs
	Times   int         `json:"times_before,omitempty"`
	Orphan  *Orphan     `json:"orphan,omitempty"`
}

// Orphan is an attempt that counts as running and that no agent runs.
type Orphan struct {
	TaskID  string    `json:"task_id"`
	Attempt int       `json:"attempt"`
	RunID   string    `json:"run_id"` // of the task's workflow
	Hub     string    `json:"hub,omitempty"`
	AgentID string    `json:"agent_id,omitempty"` // who had it; empty: as far as is known, nobody
	Since   time.Time `json:"since"`              // of its last sign of life
}

// What is stuck: reviews, or StuckLane and the lane's name.
const (
	StuckReviews = "reviews"
	StuckLane    = "lane:"
)

// Stuck is something that waits and that nothing moves.
type Stuck struct {
	What   string    `json:"what"` // StuckReviews, or StuckLane and the lane's name
	Count  int64     `json:"count"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason"`
}

// HealingPast is an earlier action or recorded skip.
type HealingPast struct {
	Type     HealingType    `json:"type"`
	TargetID string         `json:"target_id"`
	Verdict  HealingVerdict `json:"verdict"`
	At       time.Time      `json:"at"`
	Running  bool           `json:"running,omitempty"`
}

// HealingCase is one cluster in which something may have to be done: what the decision is made of.
type HealingCase struct {
	Cluster string        `json:"cluster"`
	Policy  HealingPolicy `json:"policy"`
	// Agents are the members of which something is to be thought: unhealthy ones, and those that healing took out of
	// service.
	Agents []HealingAgent `json:"agents,omitempty"`
	// Members that are connected and not kept out by a person, of them Serving online, and Healthy of those.
	Members int `json:"members"`
	Serving int `json:"serving"`
	Healthy int `json:"healthy"`
	// Minimum and Wanted are how many agents it should have. ShortSince is since when it may have had fewer.
	Minimum    int       `json:"minimum,omitempty"`
	Wanted     int       `json:"wanted,omitempty"`
	ShortSince time.Time `json:"short_since,omitzero"`
	Scaled     bool      `json:"scaled,omitempty"` // scaling may start agents
	Braked     bool      `json:"braked,omitempty"`
	// Suspects may be orphans: nobody was asked yet. LastUpset is when attempts may have been left behind.
	LastUpset time.Time     `json:"last_upset,omitzero"`
	Suspects  []Orphan      `json:"suspects,omitempty"`
	Hubs      []string      `json:"hubs,omitempty"` // that have agents of the cluster
	Orphans   []Orphan      `json:"orphans,omitempty"`
	Stuck     []Stuck       `json:"stuck,omitempty"`
	Past      []HealingPast `json:"past,omitempty"`
}

// HealingAgent is a member as healing sees it.
type HealingAgent struct {
	AgentID string       `json:"agent_id"`
	Status  AgentStatus  `json:"status"`
	Since   time.Time    `json:"since"` // of the status
	Epoch   int64        `json:"epoch"`
	Health  MemberHealth `json:"health"`
	Running int          `json:"running,omitempty"`
	Slots   int          `json:"slots,omitempty"`
	Reduced bool         `json:"reduced,omitempty"` // its load is reduced already
	// OutBy says who keeps it out of service: "" nobody, "healing", or "operator".
	OutBy string `json:"out_by,omitempty"`
}

// HealingRecord tells one healing action.
type HealingRecord struct {
	ID       string        `json:"id"`
	Cycle    string        `json:"cycle,omitempty"` // the cycle that decided it
	Cluster  string        `json:"cluster"`
	Type     HealingType   `json:"type"`
	TargetID string        `json:"target_id"`
	Priority int           `json:"priority"`
	Reason   string        `json:"reason"`
	Facts    HealingFacts  `json:"facts,omitzero"`
	Status   HealingStatus `json:"status"`
	// Outcome says in words what came of it, and Ref names the drain or failover that was made.
	Outcome     string     `json:"outcome,omitempty"`
	Ref         string     `json:"ref,omitempty"`
	DecidedAt   time.Time  `json:"decided_at"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	// WorkflowID and RunID are of its workflow in Temporal; who reads the record adds them.
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
}

// HealingCycleRecord tells one healing cycle.
type HealingCycleRecord struct {
	ID     string `json:"id"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Clusters and Agents are how many were looked at; Silent are clusters that did not answer.
	Clusters int      `json:"clusters"`
	Agents   int      `json:"agents"`
	Silent   []string `json:"silent,omitempty"`
	// Decisions are empty when nothing is wrong.
	Decisions   []HealingDecision `json:"decisions,omitempty"`
	StartedAt   time.Time         `json:"started_at"`
	CompletedAt *time.Time        `json:"completed_at,omitempty"`
	// Error says why the cycle could not look.
	Error string `json:"error,omitempty"`
}
