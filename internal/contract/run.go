package contract

import (
	"encoding/json"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// RunWorkflow carries out one run of a job: it delivers its steps.
const RunWorkflow = "Run"

// RunInput starts a Run workflow. The run's id is its workflow's, without the prefix.
type RunInput struct {
	Plan   job.Plan        `json:"plan"`
	Inputs json.RawMessage `json:"inputs,omitempty"`
	Origin api.RunOrigin   `json:"origin"`
	// StartAt is when the run begins; zero: at once.
	StartAt time.Time `json:"start_at,omitzero"`
	// Done is the ledger of a run that this one repeats: it takes over the steps that are through.
	Done *job.Ledger `json:"done,omitempty"`
	// Carried is what a run of the workflow hands to the next.
	Carried *RunCarried `json:"carried,omitempty"`
}

// StartOfRun makes the start of a run; weight is its tenant's in the cluster, 0 if it has none.
func StartOfRun(id string, in *RunInput, weight float64) TaskStart {
	p := &in.Plan
	_, name := api.CutTenant(p.Job)
	attributes := []temporal.SearchAttributeUpdate{AttrCluster.ValueSet(p.Cluster), AttrJob.ValueSet(name)}
	if p.Tenant != "" {
		attributes = append(attributes, AttrTenant.ValueSet(p.Tenant))
	}
	terms := LabelList(p.Labels)
	for i := range p.Steps {
		for _, lane := range lanesOfStep(p, &p.Steps[i]) { // PinnedQuery and LaneStepsQuery find them
			terms = append(terms, LaneTerm(lane))
		}
	}
	if len(terms) > 0 {
		attributes = append(attributes, AttrLabels.ValueSet(api.SortedSet(terms)))
	}
	return TaskStart{
		WorkflowID: RunWorkflowID(id), Attributes: temporal.NewSearchAttributes(attributes...),
		Memo: map[string]any{MemoJobVersion: p.JobVersion}, Summary: "run of " + name + " in " + p.Cluster,
		Priority: temporal.Priority{PriorityKey: int(p.Priority), FairnessKey: p.Tenant,
			FairnessWeight: float32(weight)},
	}
}

// lanesOfStep are the lanes of agents and of capabilities in which work of a step waits, unless an expression decides.
func lanesOfStep(p *job.Plan, s *job.PlannedStep) (lanes []string) {
	tasks := []*api.TaskSpec{s.Task}
	if s.Check != nil {
		tasks = append(tasks, s.Check.Task)
	}
	for i := range s.Tools {
		tasks = append(tasks, p.ToolTask(s, s.Tools[i].Name))
	}
	for _, t := range tasks {
		switch {
		case t == nil:
		case api.ValidateID("agent", t.Agent) == nil:
			lanes = append(lanes, task.AgentLane(t.Agent))
		default:
			for _, needs := range task.LaneNeedsOf(t, false) {
				if lane := task.LaneFor(&needs); len(task.CapabilitiesOfLane(lane)) > 0 {
					lanes = append(lanes, lane)
				}
			}
		}
	}
	return lanes
}

// StatusTerm is the term of a visibility query for the runs, or the arrays, with a status; empty for any. Both have the
// same words, and mark their workflows alike.
func StatusTerm[S api.RunStatus | api.ArrayStatus](status S) string {
	open, marked := ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), AttrStatus.GetName()
	switch api.RunStatus(status) {
	case "":
		return ""
	case api.RunRunning:
		return open + " AND " + marked + " IS NULL"
	case api.RunCompleted:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED) + " AND " + marked + " IS NULL"
	case api.RunPartial:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED) + " AND " + Equals(marked, string(status))
	case api.RunFailed:
		return "(" + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_FAILED) + " OR " +
			ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT) + ")"
	case api.RunCancelled:
		return statusTerm(api.TaskCancelled)
	case api.RunBlocked:
		return open + " AND " + marked + " IN (" + Quoted(string(status)) + ", " + Quoted(string(RunWaiting)) + ")"
	}
	return open + " AND " + Equals(marked, string(status))
}

// RunWaiting is the mark of a blocked run that needs no person: it waits for its time, or for another run of its job.
const RunWaiting api.RunStatus = "waiting"

// UndecidedRuns is the visibility query for the runs that wait for a person, in one cluster or, if it is empty, in all.
func UndecidedRuns(cluster string) string { return undecided(RunWorkflow, cluster) }

// UndecidedArrays is the query for the arrays that wait for a person.
func UndecidedArrays(cluster string) string { return undecided(ArrayWorkflow, cluster) }

func undecided(workflow, cluster string) string {
	query := Equals("WorkflowType", workflow) + " AND " + openWithMark(string(api.RunBlocked))
	if cluster != "" {
		query += " AND " + Equals(AttrCluster.GetName(), cluster)
	}
	return query
}

// MemoJobVersion is the version of its job that a run carries out.
const MemoJobVersion = "job_version"

// RunCarried is a Run workflow's state over continue-as-new.
type RunCarried struct {
	Ledger job.Ledger `json:"ledger"`
	// Tasks are the ones that have not ended, by their keys.
	Tasks map[string]TaskInput `json:"tasks,omitempty"`
	// Ended are steps that have ended, and whose output is not known.
	Ended []string `json:"ended,omitempty"`
	// Results are the results of tasks, by their keys, until the output of their step is known.
	Results map[string]json.RawMessage `json:"results,omitempty"`
	// Talks are the conversations of models with tools, by their steps.
	Talks map[string]mesh.Talk `json:"talks,omitempty"`
	// Bytes are what the run's payloads and results took so far.
	Bytes int `json:"bytes"`
	// Waits: it has not begun, and waits for the services that its job requires.
	Waits bool `json:"waits,omitempty"`
}

// Messages of the Run workflow. It takes a task's updates too, with the task's key.
var (
	// LedgerQuery answers what the run has done. A run returns its ledger, or has it as the detail of its failure.
	LedgerQuery     = Query[job.Ledger]{"ledger"}
	StepTaskQuery   = QueryWith[string, TaskState]{"status"}
	PauseRunUpdate  = Update[PauseRunRequest, Done]{"pause-run"}
	ResumeRunUpdate = Update[RunRequest, Done]{"resume-run"}
	CancelRunUpdate = Update[RunRequest, Done]{"cancel-run"}
	StepUpdate      = Update[StepRequest, Done]{"step"}
	// RunAdmittedSignal says to a run of a job with bounded concurrency that it may begin.
	RunAdmittedSignal = Signal[Admission]{"run-admitted"}
	// EvaluateActivity evaluates the expressions of a run. It runs locally, so its input is not recorded. It fails with
	// NotTheirTurn while other expressions of its tenant go first, or these have taken more than their share: then a
	// workflow waits by a timer, since a local activity that waits holds a place of the worker.
	EvaluateActivity = Activity[EvaluateInput, Evaluated]{"Evaluate"}
)

// RunRequest is what a person asks of an open run.
type RunRequest struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// PauseRunRequest pauses a run.
type PauseRunRequest struct {
	RunRequest
	Mode api.PauseMode `json:"mode"`
}

// StepRequest is what a person decides about a step.
type StepRequest struct {
	RunRequest
	Step   string          `json:"step"`
	Action api.StepAction  `json:"action"`
	Output json.RawMessage `json:"output,omitempty"` // with complete
	// Attempt takes, with complete, a result that the step's check did not accept.
	Attempt int `json:"attempt,omitempty"`
}

// EvaluateInput says which expressions of a run to evaluate: first the outputs of steps that have ended, then the
// inputs of steps that begin.
type EvaluateInput struct {
	Run    string          `json:"run"`
	Plan   *job.Plan       `json:"plan"`
	Inputs json.RawMessage `json:"inputs,omitempty"`
	Steps  []api.StepEntry `json:"steps"`
	Ended  []EndedStep     `json:"ended,omitempty"`
	Begin  []string        `json:"begin,omitempty"`
	// Key is the expression of the job's concurrency.
	Key string `json:"key,omitempty"`
}

// Bytes is about how much JSON the expressions read.
func (in *EvaluateInput) Bytes() int {
	bytes := len(in.Inputs)
	for i := range in.Steps {
		bytes += len(in.Steps[i].Output)
	}
	for i := range in.Ended {
		bytes += len(in.Ended[i].Result) + len(in.Ended[i].Verdict)
		for _, result := range in.Ended[i].Results {
			bytes += len(result)
		}
	}
	return bytes
}

// EndedStep is a step that has ended, with its result; with for_each, the results of its elements, null for failed
// ones.
type EndedStep struct {
	Step    string            `json:"step"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	// Array has the elements, instead of results.
	Array string `json:"array,omitempty"`
	// Verdict is what the task of its check returned; NoVerdict says why it returned nothing.
	Verdict   json.RawMessage `json:"verdict,omitempty"`
	NoVerdict string          `json:"no_verdict,omitempty"`
}

// NotTheirTurn is the application error type of work that waits for other work of its tenant.
const NotTheirTurn = "NotTheirTurn"

// Evaluated is what EvaluateActivity answers.
type Evaluated struct {
	Outputs []StepOutput `json:"outputs,omitempty"`
	Begin   []BegunStep  `json:"begin,omitempty"`
	Key     string       `json:"key,omitempty"`
	// Defaults are the defaults of tasks in the run's cluster. Absent: they are not known, or the cluster has shards.
	Defaults *api.TaskDefaults `json:"defaults,omitempty"`
	// Types are the cluster's lane types, when there are Defaults.
	Types cluster.LaneTypes `json:"types,omitzero"`
}

// Bytes is the size of the outputs and payloads in it.
func (e *Evaluated) Bytes() int {
	bytes := 0
	for i := range e.Outputs {
		bytes += e.Outputs[i].Bytes()
	}
	for i := range e.Begin {
		bytes += e.Begin[i].Bytes()
	}
	return bytes
}

// Bytes is the size of the output and of the payload of its check.
func (o *StepOutput) Bytes() int {
	bytes := len(o.Output) + len(o.Completes)
	if o.Check != nil {
		bytes += len(o.Check.Spec.Payload)
	}
	for i := range o.Calls {
		bytes += len(o.Calls[i].Arguments) + len(o.Calls[i].Spec.Payload)
	}
	return bytes
}

// Bytes is the size of the payloads in it.
func (b *BegunStep) Bytes() int {
	bytes := PayloadBytes(b.Tasks)
	if b.Array != nil {
		bytes += b.Array.Bytes()
	}
	return bytes
}

// PayloadBytes is the size of the tasks' payloads.
func PayloadBytes(tasks []PlacedTask) int {
	bytes := 0
	for i := range tasks {
		bytes += len(tasks[i].Spec.Payload)
	}
	return bytes
}

// StepOutput is what a run keeps of a step's result, or what comes before that.
type StepOutput struct {
	Step   string          `json:"step"`
	Output json.RawMessage `json:"output,omitempty"`
	// Completes is the value with which the step completes the whole run; absent: it does not.
	Completes json.RawMessage `json:"completes,omitempty"`
	Error     string          `json:"error,omitempty"`
	// Wrong lists the objections of the step's check to the result.
	Wrong []string `json:"wrong,omitempty"`
	// NoVerdict: Wrong says why the task of its check gave no verdict.
	NoVerdict bool `json:"no_verdict,omitempty"`
	// Check is the task that says more about the result, before there is an output.
	Check *PlacedTask `json:"check,omitempty"`
	// Calls are the tool calls that its model asks for, before there is an output.
	Calls []StepCall `json:"calls,omitempty"`
}

// StepCall is a call of a tool, with its task.
type StepCall struct {
	api.ToolCall
	PlacedTask
	Refused string `json:"refused,omitempty"` // why it is not made
}

// BegunStep is what a step begins with. A step that comes after one whose output could not be evaluated is left out.
type BegunStep struct {
	Step    string       `json:"step"`
	Skip    bool         `json:"skip,omitempty"` // its condition is false
	Tasks   []PlacedTask `json:"tasks,omitempty"`
	Array   *ArrayInput  `json:"array,omitempty"`   // instead of tasks, where there are many
	Message string       `json:"message,omitempty"` // of approve
	Until   *time.Time   `json:"until,omitempty"`   // of wait
	Error   string       `json:"error,omitempty"`
}

// PlacedTask is a task with its lane.
type PlacedTask struct {
	Spec api.TaskSpec `json:"spec"`
	Lane string       `json:"lane"`
}
