package contract

import (
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// JobWorkflow is a job: its definition with versions, and the runs that its concurrency bounds.
const JobWorkflow = "Job"

// JobWorkflowID is the id of the workflow of a job. name is the full one, with its tenant.
func JobWorkflowID(name string) string { return "job/" + name }

// JobOfWorkflowID is the inverse of JobWorkflowID.
func JobOfWorkflowID(id string) (string, bool) { return strings.CutPrefix(id, "job/") }

// JobInput starts a Job workflow.
type JobInput struct {
	Name string `json:"name"`
	// Carried is what a run of the workflow hands to the next.
	Carried *job.Job `json:"carried,omitempty"`
}

// Messages of the Job workflow.
var (
	JobQuery = Query[job.Job]{"job"}
	// ApplyJobUpdate gives the job a definition. The first starts the workflow.
	ApplyJobUpdate  = Update[ApplyJob, job.Job]{"apply"}
	PauseJobUpdate  = Update[RunRequest, job.Job]{"pause"}
	ResumeJobUpdate = Update[RunRequest, job.Job]{"resume"}
	// DeleteJobUpdate ends the workflow. Runs go on.
	DeleteJobUpdate = Update[RunRequest, job.Job]{"delete"}
	// StopJobUpdate stops the instances of a job, ScaleJobUpdate says how many a service has.
	StopJobUpdate  = Update[RunRequest, job.Job]{"stop"}
	ScaleJobUpdate = Update[ScaleJob, job.Job]{"scale"}
	// PromoteJobUpdate lets all instances follow the canaries of a deployment, FailDeploymentUpdate ends it.
	PromoteJobUpdate     = Update[RunRequest, job.Job]{"promote"}
	FailDeploymentUpdate = Update[RunRequest, job.Job]{"fail-deployment"}
	// InstancesHealthSignal reports to a job the health of its instances, when that changes.
	InstancesHealthSignal = Signal[[]HealthReport]{"instances-health"}
	// InstanceEndedSignal reports to a job the end of an instance's task.
	InstanceEndedSignal = Signal[InstanceEnded]{"instance-ended"}
	// AgentsMovedSignal reports to a job that this cluster's agents have changed; see WatchMembersSignal.
	AgentsMovedSignal = Signal[string]{"agents-moved"}
	// LookAtInstancesActivity reads what a job must know to plan its instances.
	LookAtInstancesActivity = Activity[LookAtInstances, InstancesSeen]{"LookAtInstances"}
	// ChangeInstancesActivity starts and stops instances. Done again, it changes nothing more.
	ChangeInstancesActivity = Activity[ChangeInstances, []string]{"ChangeInstances"}
	// RunBeginsSignal asks a job whether a run may begin: RunAdmittedSignal answers. RunEndedSignal reports its end.
	RunBeginsSignal = Signal[RunBegins]{"run-begins"}
	RunEndedSignal  = Signal[RunEnded]{"run-ended"}
	// EndedRunsActivity returns those of some runs that have ended.
	EndedRunsActivity = Activity[[]string, []string]{"EndedRuns"}
	// ScheduleJobActivity makes the schedules of a job in Temporal as its definition has them.
	ScheduleJobActivity = Activity[ScheduleJob, None]{"ScheduleJob"}
)

// MemoJob is the JobNote of a job.
const MemoJob = "job"

// JobNote is what lists show of a job.
type JobNote struct {
	Type      api.JobType `json:"type"`
	Version   int         `json:"version"`
	Steps     int         `json:"steps"`
	Schedules int         `json:"schedules,omitempty"`
	// Unscheduled is why they cannot be written.
	Unscheduled string   `json:"unscheduled,omitempty"`
	Events      []string `json:"events,omitempty"`
	Paused      bool     `json:"paused,omitempty"`
	Stopped     bool     `json:"stopped,omitempty"`
	// Count is how many instances a service has.
	Count int `json:"count,omitempty"`
	// Deployment is where the deployment of the version in force stands.
	Deployment api.DeploymentStatus `json:"deployment,omitempty"`
	// Service is the name by which its instances are found.
	Service string `json:"service,omitempty"`
}

// ScheduleJob is the input of ScheduleJobActivity.
type ScheduleJob struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Definition is the one in force; nil: the job is deleted.
	Definition *api.JobDefinition `json:"definition,omitempty"`
	Paused     bool               `json:"paused,omitempty"`
	Had        int                `json:"had"` // how many schedules there were
}

// ApplyJob is a checked definition.
type ApplyJob struct {
	Definition api.JobDefinition `json:"definition"`
	// Expected is the version that the caller has seen; 0: any.
	Expected int    `json:"expected,omitempty"`
	By       string `json:"by,omitempty"`
	// Revert: the definition is an earlier version's, and is deployed without canaries.
	Revert bool `json:"revert,omitempty"`
}

// RunBegins is a run of a job with bounded concurrency.
type RunBegins struct {
	Run string `json:"run"`
	// Key is the value of the concurrency's key.
	Key         string          `json:"key,omitempty"`
	Concurrency api.Concurrency `json:"concurrency"`
}

// ScaleJob says how many instances a service has.
type ScaleJob struct {
	RunRequest
	Count int `json:"count"`
}

// InstanceEnded is the end of an instance's task.
type InstanceEnded struct {
	Task   string         `json:"task"`
	Status api.TaskStatus `json:"status"`
	Why    string         `json:"why,omitempty"`
	// GoesOnUntil is when an agent has certainly stopped it; in the past: it has already.
	GoesOnUntil time.Time `json:"goes_on_until,omitzero"`
}

// LookAtInstances asks for the agents that may have an instance of a job.
type LookAtInstances struct {
	Job        string             `json:"job"`
	Definition *api.JobDefinition `json:"definition"`
	// Tasks are the tasks that, as far as the job knows, have not ended.
	Tasks []string `json:"tasks,omitempty"`
}

// InstancesSeen are the agents, and which of the tasks have ended.
type InstancesSeen struct {
	job.Agents
	Ended []string `json:"ended,omitempty"`
	// Missing are the required services without a healthy instance.
	Missing []string `json:"missing,omitempty"`
}

// ChangeInstances says which instances to start and stop. The activity answers the tasks to stop that do not exist.
type ChangeInstances struct {
	Job        string             `json:"job"`
	Definition *api.JobDefinition `json:"definition"`
	// Others are earlier versions that instances are started with.
	Others []api.JobVersion `json:"others,omitempty"`
	job.Change
}

// HealthReport is what a hub says of an instance.
type HealthReport = job.HealthReport

// Admission says that a run may begin, or that it is not started, and why.
type Admission = job.Admission

// RunEnded is the end of a run.
type RunEnded struct {
	Run string `json:"run"`
}
