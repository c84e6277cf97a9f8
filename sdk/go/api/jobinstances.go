package api

import (
	"time"
)

// Instances are the work of a service, system or sysbatch job. Each of them is a task.
type Instances struct {
	Count      *int                `json:"count,omitempty" minimum:"0" maximum:"1000" doc:"Of a service: how many there are. Default 1."`
	Task       *TaskSpec           `json:"task" doc:"What each of them is: a task for an agent, as POST /tasks takes it. What place and the job say is left out."`
	Place      *InstancePlace      `json:"place,omitempty" doc:"Which agents may have one. Left out: all that handle the task's type."`
	Health     *ServiceCheck       `json:"health,omitempty" doc:"How its agent finds out whether an instance is well. Left out: it is while it runs."`
	Service    *ServiceOffer       `json:"service,omitempty" doc:"What others find the instances by: GET /services/{name}."`
	Stop       *InstanceStop       `json:"stop,omitempty" doc:"How an instance is stopped."`
	Disconnect *InstanceDisconnect `json:"disconnect,omitempty" doc:"What happens to an instance whose agent is out of touch."`
}

// Total is how many a service is to have.
func (in *Instances) Total() int {
	if in.Count == nil {
		return 1
	}
	return *in.Count
}

// InstanceDisconnect says what happens to an instance whose agent is out of touch.
type InstanceDisconnect struct {
	Grace Duration `json:"grace,omitempty" least:"0s" most:"24h" doc:"How long the agent has to come back. Until then its instances are not replaced, and go on if it comes back. At most 24h. Default 0s: they are replaced as soon as the agent is lost."`
}

// InstanceStop says how an instance is stopped.
type InstanceStop struct {
	Grace Duration `json:"grace,omitempty" least:"1ms" most:"10m" doc:"How long an instance has to end. A command gets SIGTERM, and SIGKILL then. At most 10m. Default 5s."`
}

// InstancePlace says which agents may have an instance.
type InstancePlace struct {
	Capabilities []string `json:"capabilities,omitempty" maxItems:"32" doc:"Agents with all of these."`
	Agent        string   `json:"agent,omitempty" maxLength:"63" doc:"Only this agent."`
	Affinity     string   `json:"affinity,omitempty" maxLength:"63" doc:"Of a service: the agent that is preferred."`
	Zone         string   `json:"zone,omitempty" maxLength:"63" doc:"Of a system or sysbatch job: only agents of this zone."`
	Demand
}

// Instance is one instance of a job, from its start until another takes its place.
type Instance struct {
	Name    string    `json:"name" doc:"Its number, from 0, or the id of its agent."`
	TaskID  string    `json:"task_id"`
	Version int       `json:"version" doc:"The version of the definition that it was started with."`
	Since   time.Time `json:"since" doc:"When it was started."`
	// Started: its task exists, for all that is known.
	Started bool `json:"started,omitempty"`
	// Stopping is why it is being stopped; empty: it is not. Asked: its task was asked to.
	Stopping string     `json:"stopping,omitempty"`
	Asked    bool       `json:"asked,omitempty"`
	Ended    TaskStatus `json:"ended,omitempty" doc:"How its task ended. An instance that is to be there is then started again."`
	Why      string     `json:"why,omitempty"`
	Last     string     `json:"last,omitempty" doc:"How its newest attempt that is over ended."`
	// Ends counts the times in a row that it ended soon; NextAt is when it is started again.
	Ends   int       `json:"ends,omitempty"`
	NextAt time.Time `json:"next_at,omitzero" doc:"When it begins again, or is offered to agents again."`
	// Health is what Hub said of this attempt, since HealthAt; empty: no agent is known to run it.
	Health   InstanceHealth `json:"told,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	Changes  int64          `json:"health_changes,omitempty" doc:"How often its health has changed."`
	Turns    int64          `json:"health_turns,omitempty" doc:"How often its checks began to fail or to pass again; odd while they fail."`
	Hub      string         `json:"hub,omitempty"`
	HealthAt time.Time      `json:"health_at,omitzero"`
	Leaving  bool           `json:"leaving,omitempty" doc:"Its agent is being drained."`
	// Of an instance that a deployment started: whether it has been healthy, and by when it is to be.
	Proven bool      `json:"proven,omitempty"`
	Due    time.Time `json:"due,omitzero"`
	Canary bool      `json:"canary,omitempty" doc:"It was started before its version was promoted."`
}

// Open reports whether its task has not ended.
func (i *Instance) Open() bool { return i.Ended == "" }

// HasInstances reports whether the job's work is instances, not steps.
func (d *JobDefinition) HasInstances() bool { return d != nil && d.Instances != nil }

// OnEachAgent reports whether each eligible agent has an instance of the job.
func (d *JobDefinition) OnEachAgent() bool { return d.Type == JobSystem || d.Type == JobSysbatch }

// KeepsRunning reports whether the job's instances have no end of their own.
func (d *JobDefinition) KeepsRunning() bool { return d.Type == JobService || d.Type == JobSystem }
