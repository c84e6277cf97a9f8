package api

import (
	"encoding/json"
	"time"
)

// Job is a job as clients see it.
type Job struct {
	JobState
	Type       JobType        `json:"type" enum:"batch,service,system,sysbatch"`
	Cluster    string         `json:"cluster"`
	Tenant     string         `json:"tenant,omitempty"`
	Definition *JobDefinition `json:"definition" doc:"The one in force, or that of the version that was asked for."`
	NextTimes  []time.Time    `json:"next_times,omitempty" doc:"When its schedules start runs next."`
	RevertsTo  int            `json:"reverts_to,omitempty" doc:"Of GET /jobs/{name}: the version that a revert without a version puts in force. Left out: one must be named."`
}

// JobEntry is a job in a list: the facts that Temporal has without asking the job itself.
type JobEntry struct {
	Name        string   `json:"name"`
	Type        JobType  `json:"type" enum:"batch,service,system,sysbatch"`
	Cluster     string   `json:"cluster"`
	Tenant      string   `json:"tenant,omitempty"`
	Version     int      `json:"version"`
	Steps       int      `json:"steps"`
	Schedules   int      `json:"schedules,omitempty"`
	Unscheduled string   `json:"unscheduled,omitempty" doc:"Why its schedules cannot be written."`
	Events      []string `json:"events,omitempty" doc:"The types of the events that start its runs."`
	Paused      bool     `json:"paused,omitempty"`
	Stopped     bool     `json:"stopped,omitempty"`
	Count       int      `json:"count,omitempty" doc:"Of a service: how many instances there are to be."`
	// Deployment is where the deployment of the version in force stands.
	Deployment DeploymentStatus `json:"deployment,omitempty" doc:"Of a job with update: where the deployment of its version stands."`
	Service    string           `json:"service,omitempty" doc:"What its instances are found by: GET /services/{name}."`
	CreatedAt  *time.Time       `json:"created_at,omitempty"`
	Trouble    *JobTrouble      `json:"trouble,omitempty" doc:"Only with troubled=true: what is wrong with its instances."`
}

// JobPlan says what a definition would change.
type JobPlan struct {
	Job      string     `json:"job"`
	Version  int        `json:"version" doc:"The version in force. 0: there is no such job."`
	Changed  bool       `json:"changed" doc:"Applying it would make a new version."`
	Changes  []string   `json:"changes" doc:"The fields that differ from the version in force, as paths: + is new, - is removed, ~ is changed."`
	Levels   [][]string `json:"levels" doc:"The steps in their order; those of one level may run side by side."`
	Warnings []string   `json:"warnings" doc:"What a person may want to know, such as steps without a safety."`
}

// JobInstance is an instance of a job as clients see it.
type JobInstance struct {
	Instance
	Status   StepStatus     `json:"status" enum:"queued,running,retry_wait,blocked,completed,failed"`
	Agent    string         `json:"agent,omitempty" doc:"Who runs it, or ran it last."`
	Address  string         `json:"address,omitempty" doc:"Where that agent can be reached."`
	Attempts int            `json:"attempts,omitempty" doc:"How often its task has begun."`
	Health   InstanceHealth `json:"health,omitempty" enum:"starting,passing,failing" doc:"Of one that runs."`

	RecoveryStatus         string       `json:"recovery_status,omitempty" enum:"ok,restarting,rescheduling,waiting_for_agent,blocked,review,exhausted" doc:"With recovery: how it stands. blocked: no agent takes the instance; why says the reason, next_at when it is offered again."`
	RecoveryRequiresReview bool         `json:"recovery_requires_review,omitempty" doc:"It goes on only as a person decides."`
	PolicyState            *PolicyState `json:"policy_state,omitempty" doc:"With recovery: what that has done, and what follows."`
}

// JobInstances are the instances of a job.
type JobInstances struct {
	Wanted     int           `json:"wanted" doc:"How many there are to be; of a job on each agent, how many there are."`
	Deployment *Deployment   `json:"deployment,omitempty" doc:"Of a job with update: that of the version in force."`
	Why        string        `json:"why,omitempty" doc:"Why no instance is started now, though some may be wanted."`
	Instances  []JobInstance `json:"instances"`
}

// ScaleJobRequest says how many instances a service has.
type ScaleJobRequest struct {
	Count int `json:"count" minimum:"0" maximum:"1000"`
}

// DispatchRequest starts a run of a job.
type DispatchRequest struct {
	Inputs         json.RawMessage `json:"inputs,omitempty" doc:"What the run is given; the job's inputs say what is wanted."`
	IdempotencyKey string          `json:"idempotency_key,omitempty" maxLength:"256" doc:"One key starts one run of a job, however often it is sent, also after the run has ended. With other inputs it is refused with 409 idempotency_conflict."`
	StartAt        time.Time       `json:"start_at,omitzero" doc:"When the run begins, at most a year ahead. In the past or left out: at once."`
}

// RevertRequest puts an earlier version of a job's definition in force again, as a new version.
type RevertRequest struct {
	Version int `json:"version,omitempty" minimum:"1" doc:"Left out: the last one before the present definition that differs from it, and with update was healthy."`
}
