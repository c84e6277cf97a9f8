package api

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

// ProblemKind names what kind of problem it is.
type ProblemKind string

// The kinds of problems.
const (
	ProblemUnanswered    ProblemKind = "unanswered" // no worker answers for the cluster
	ProblemAgents        ProblemKind = "agents"     // agents are lost or suspect, or too few
	ProblemSharedID      ProblemKind = "shared_id"  // processes take an agent id from each other
	ProblemFlapping      ProblemKind = "flapping"   // an agent is lost and comes back again and again
	ProblemNoLeader      ProblemKind = "no_leader"
	ProblemNoOwner       ProblemKind = "no_owner" // shards that no agent serves
	ProblemBrake         ProblemKind = "brake"
	ProblemPaused        ProblemKind = "paused"
	ProblemCordoned      ProblemKind = "cordoned" // agents are drained or in maintenance
	ProblemNotServed     ProblemKind = "not_served"
	ProblemOldWork       ProblemKind = "old_work"
	ProblemUnhandled     ProblemKind = "unhandled" // tasks that no agent handles
	ProblemDeadLetter    ProblemKind = "dead_letter"
	ProblemReview        ProblemKind = "review"
	ProblemRun           ProblemKind = "run"        // runs of jobs that a person must help on
	ProblemArray         ProblemKind = "array"      // arrays with elements that wait for a person
	ProblemJob           ProblemKind = "job"        // services and system jobs that lack healthy instances
	ProblemDeployment    ProblemKind = "deployment" // of a version of a job: it has failed, or waits for a person
	ProblemSchedule      ProblemKind = "schedule"   // schedules of jobs that cannot be written
	ProblemFailover      ProblemKind = "failover"
	ProblemHealth        ProblemKind = "health"         // agents are unhealthy
	ProblemHealing       ProblemKind = "healing"        // healing may not act on unhealthy agents, or does not run
	ProblemHealingPaused ProblemKind = "healing_paused" // a person paused it
	ProblemScaling       ProblemKind = "scaling"        // agents cannot be started or stopped as they should
)

// Problem is something that a person should know of: what, where, since when, why, and what to do.
type Problem struct {
	Severity Severity    `json:"severity" enum:"critical,warning,notice"`
	Kind     ProblemKind `json:"kind" enum:"unanswered,agents,shared_id,flapping,no_leader,no_owner,brake,paused,cordoned,not_served,old_work,unhandled,dead_letter,review,run,array,job,deployment,schedule,failover,health,healing,healing_paused,scaling"`
	Cluster  string      `json:"cluster,omitempty"`
	Lane     string      `json:"lane,omitempty"`
	TaskType string      `json:"task_type,omitempty" doc:"Of the tasks that it is about, if they are of one type."`
	Agents   []string    `json:"agents,omitempty" doc:"Some of the agents that it is about."`
	Jobs     []string    `json:"jobs,omitempty" doc:"Some of the jobs that it is about."`
	Failover string      `json:"failover,omitempty"`
	Count    int64       `json:"count,omitempty" doc:"How many agents, shards, tasks, runs or jobs it is about."`
	Since    *time.Time  `json:"since,omitempty"`
	What     string      `json:"what"`
	Why      string      `json:"why,omitempty"`
	Do       string      `json:"do,omitempty" doc:"What can be done about it. Absent: it ends by itself."`
}
