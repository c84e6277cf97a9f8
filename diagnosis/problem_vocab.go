package diagnosis

import (
	"time"
)

// Severity says how urgent a problem is.
type Severity string

// The severities, most urgent first.
const (
	SeverityCritical Severity = "critical" // work is not done, or soon will not be
	SeverityWarning  Severity = "warning"  // somebody should look, or decide
	SeverityNotice   Severity = "notice"   // a person brought it about, or it ends by itself
)

// Kind names what kind of problem it is.
type Kind string

// The kinds of problems.
const (
	KindUnanswered    Kind = "unanswered" // no worker answers for the cluster
	KindAgents        Kind = "agents"     // agents are lost or suspect, or too few
	KindSharedID      Kind = "shared_id"  // processes take an agent id from each other
	KindFlapping      Kind = "flapping"   // an agent is lost and comes back again and again
	KindNoLeader      Kind = "no_leader"
	KindNoOwner       Kind = "no_owner" // shards that no agent serves
	KindBrake         Kind = "brake"
	KindPaused        Kind = "paused"
	KindCordoned      Kind = "cordoned" // agents are drained or in maintenance
	KindNotServed     Kind = "not_served"
	KindOldWork       Kind = "old_work"
	KindUnhandled     Kind = "unhandled" // tasks that no agent handles
	KindDeadLetter    Kind = "dead_letter"
	KindReview        Kind = "review"
	KindRun           Kind = "run"        // runs of jobs that a person must help on
	KindArray         Kind = "array"      // arrays with elements that wait for a person
	KindJob           Kind = "job"        // services and system jobs that lack healthy instances
	KindDeployment    Kind = "deployment" // of a version of a job: it has failed, or waits for a person
	KindSchedule      Kind = "schedule"   // schedules of jobs that cannot be written
	KindFailover      Kind = "failover"
	KindHealth        Kind = "health"         // agents are unhealthy
	KindHealing       Kind = "healing"        // healing may not act on unhealthy agents, or does not run
	KindHealingPaused Kind = "healing_paused" // a person paused it
	KindScaling       Kind = "scaling"        // agents cannot be started or stopped as they should
)

// Problem is something that a person should know of: what, where, since when, why, and what to do.
type Problem struct {
	Severity Severity   `json:"severity" enum:"critical,warning,notice"`
	Kind     Kind       `json:"kind" enum:"unanswered,agents,shared_id,flapping,no_leader,no_owner,brake,paused,cordoned,not_served,old_work,unhandled,dead_letter,review,run,array,job,deployment,schedule,failover,health,healing,healing_paused,scaling"`
	Cluster  string     `json:"cluster,omitempty"`
	Lane     string     `json:"lane,omitempty"`
	TaskType string     `json:"task_type,omitempty" doc:"Of the tasks that it is about, if they are of one type."`
	Agents   []string   `json:"agents,omitempty" doc:"Some of the agents that it is about."`
	Jobs     []string   `json:"jobs,omitempty" doc:"Some of the jobs that it is about."`
	Failover string     `json:"failover,omitempty"`
	Count    int64      `json:"count,omitempty" doc:"How many agents, shards, tasks, runs or jobs it is about."`
	Since    *time.Time `json:"since,omitempty"`
	What     string     `json:"what"`
	Why      string     `json:"why,omitempty"`
	Do       string     `json:"do,omitempty" doc:"What can be done about it. Absent: it ends by itself."`
}
