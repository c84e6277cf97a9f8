package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// StepStatus is where a step of a run stands.
type StepStatus string

// The statuses of a step. The last four are final.
const (
	StepPending   StepStatus = "pending"    // a step that it comes after has not ended
	StepReady     StepStatus = "ready"      // it may begin, and waits for max_parallel, a pause or a time
	StepQueued    StepStatus = "queued"     // its task waits in a lane
	StepRunning   StepStatus = "running"    // an agent has it
	StepRetryWait StepStatus = "retry_wait" // it waits out the backoff before the next attempt
	StepBlocked   StepStatus = "blocked"    // it cannot go on without a person; Why says for what
	StepCompleted StepStatus = "completed"
	StepPartial   StepStatus = "partial" // some elements failed, no more than are tolerated; or its failure counts so
	StepSkipped   StepStatus = "skipped" // its condition was false, a person skipped it, or its failure counts so
	StepFailed    StepStatus = "failed"
)

// Final reports whether the step has ended.
func (s StepStatus) Final() bool { return s.Through() || s == StepFailed }

// Through reports whether steps after it may begin.
func (s StepStatus) Through() bool { return s == StepCompleted || s == StepPartial || s == StepSkipped }

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run. The last four are final.
const (
	RunRunning   RunStatus = "running"
	RunPausing   RunStatus = "pausing" // nothing new begins; what runs is being stopped or finishes
	RunPaused    RunStatus = "paused"
	RunBlocked   RunStatus = "blocked" // nothing goes on until a person decides
	RunCompleted RunStatus = "completed"
	RunPartial   RunStatus = "partial" // completed, but a step is partial
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Final reports whether the run has ended.
func (s RunStatus) Final() bool {
	return s == RunCompleted || s == RunPartial || s == RunFailed || s == RunCancelled
}

// Work is what the ledger knows of one task of a step: the step's own, or that of one element.
type Work struct {
	Status    StepStatus      `json:"status"`
	Why       string          `json:"why,omitempty"`
	TaskID    string          `json:"task_id,omitempty"`
	Attempts  []fleet.Attempt `json:"attempts,omitempty" doc:"The newest 20."`
	StartedAt *time.Time      `json:"started_at,omitempty" doc:"When its task was first put into a lane."`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	NextAt    *time.Time      `json:"next_at,omitempty" doc:"When it goes on: the end of a backoff or of a wait."`
	Result    json.RawMessage `json:"-"` // until the step has ended
	Output    json.RawMessage `json:"output,omitempty" doc:"What the run keeps of its result."`
}

// Entry is what the ledger knows of one step.
type Entry struct {
	Step string `json:"step"`
	Work
	Safety         fleet.RetrySafety `json:"safety,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty" doc:"The same for every attempt of the step in this run; agents get it with the task."`
	DeadlineAt     *time.Time        `json:"deadline_at,omitempty"`
	Elements       []Work            `json:"elements,omitempty" doc:"With for_each."`
	Counts         *Counts           `json:"counts,omitempty" doc:"With for_each."`
}

// Counts are how many elements of a step stand where.
type Counts struct {
	Total   int `json:"total"`
	Done    int `json:"done"`
	Failed  int `json:"failed"`
	Running int `json:"running"` // queued, running or waiting
}

// Decision is what a person decided about a step or a run.
type Decision struct {
	Action string    `json:"action"`
	Step   string    `json:"step,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Ledger is what a run has done and what comes next.
type Ledger struct {
	Job        string          `json:"job"`
	JobVersion int             `json:"job_version,omitempty"`
	Status     RunStatus       `json:"status" enum:"running,pausing,paused,blocked,completed,partial,failed,cancelled"`
	Why        string          `json:"why,omitempty"`
	Inputs     json.RawMessage `json:"inputs,omitempty"`
	Origin     Origin          `json:"origin"`
	Steps      []Entry         `json:"steps" doc:"By level, then by name."`
	Output     json.RawMessage `json:"output,omitempty" doc:"What a terminal sink completed the run with."`
	Paused     *Pause          `json:"paused,omitempty"`
	Cancel     *Decision       `json:"cancel,omitempty" doc:"Who cancelled it, and why."`
	Decisions  []Decision      `json:"decisions,omitempty" doc:"What people decided about the run and its steps: the newest 50."`
	StartedAt  time.Time       `json:"started_at"`
	DeadlineAt *time.Time      `json:"deadline_at,omitempty"`
	EndedAt    *time.Time      `json:"ended_at,omitempty"`
}

// Origin says what started a run.
type Origin struct {
	By       string `json:"by,omitempty" doc:"Who dispatched it, or ran it again."`
	Schedule bool   `json:"schedule,omitempty" doc:"Its job's schedule started it."`
	RetryOf  string `json:"retry_of,omitempty" doc:"The run that it repeats from the steps that had not succeeded."`
}

// Pause says who paused a run, and what becomes of what runs.
type Pause struct {
	Mode PauseMode `json:"mode" enum:"stop,finish" doc:"stop: tasks under way are stopped, keep their checkpoints, and go on after the pause. finish: they finish."`
	Decision
}

// StepAction is what a person decides about a step.
type StepAction string

// What a person can decide about a step. A review of its task is the task's own.
const (
	RetryStep    StepAction = "retry"    // run it again, after it has failed
	SkipStep     StepAction = "skip"     // go on without it
	CompleteStep StepAction = "complete" // it was done by other means: take this output
	FailStep     StepAction = "fail"     // give it up
	ApproveStep  StepAction = "approve"
	RejectStep   StepAction = "reject"
)

// PauseMode says what a pause does to what runs.
type PauseMode string

// The modes of a pause.
const (
	PauseStop   PauseMode = "stop"   // it is stopped, keeps its checkpoint, and goes on after the pause
	PauseFinish PauseMode = "finish" // it finishes
)

// NewLedger is the ledger of a run that begins now. runID names the run.
func NewLedger(p *Plan, runID string, inputs json.RawMessage, origin Origin, now time.Time) *Ledger {
	l := &Ledger{Job: p.Job, JobVersion: p.JobVersion, Status: RunRunning, Inputs: inputs, Origin: origin,
		StartedAt: now, Steps: make([]Entry, len(p.Steps))}
	if p.Deadline > 0 {
		at := now.Add(p.Deadline.Std())
		l.DeadlineAt = &at
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		l.Steps[i] = Entry{Step: s.ID, Work: Work{Status: StepPending}, Safety: s.Safety}
		if s.Task != nil {
			l.Steps[i].TaskID = TaskID(runID, s.ID)
			l.Steps[i].IdempotencyKey = IdempotencyKey(runID, s.ID)
		}
	}
	return l
}

// Entry returns the entry of a step, nil for none.
func (l *Ledger) Entry(step string) *Entry {
	for i := range l.Steps {
		if l.Steps[i].Step == step {
			return &l.Steps[i]
		}
	}
	return nil
}

// Advance moves every step that can move by itself at this moment: pending ones become ready, or fail with what they
// need. It returns the indices of the steps that may begin now, in the order of the plan, no more than there is room
// for. Applied twice it changes nothing more.
func (l *Ledger) Advance(p *Plan) (begin []int) {
	if l.Status.Final() {
		return nil
	}
	failing := l.failing(p)
	for i := range p.Steps {
		e := &l.Steps[i]
		if e.Status != StepPending {
			continue
		}
		switch through, open := l.dependencies(p.Steps[i].After); {
		case through >= p.Steps[i].Join.Need(len(p.Steps[i].After)):
			e.Status = StepReady
		case through+open < p.Steps[i].Join.Need(len(p.Steps[i].After)):
			e.end(StepFailed, "it comes after "+l.failed(p.Steps[i].After)+", which failed")
		}
	}
	room := MaxParallel - l.underWay()
	for i := range l.Steps {
		if e := &l.Steps[i]; e.Status == StepReady && e.NextAt == nil && !failing && l.Paused == nil && room > 0 {
			begin = append(begin, i)
			room--
		}
	}
	return begin
}

// dependencies counts the steps of a list that are through, and those that have not ended.
func (l *Ledger) dependencies(after []string) (through, open int) {
	for _, id := range after {
		switch e := l.Entry(id); {
		case e.Status.Through():
			through++
		case !e.Status.Final():
			open++
		}
	}
	return through, open
}

func (l *Ledger) failed(after []string) string {
	var names []string
	for _, id := range after {
		if l.Entry(id).Status == StepFailed {
			names = append(names, id)
		}
	}
	return strings.Join(names, ", ")
}

// underWay counts the tasks that are in a lane or with an agent.
func (l *Ledger) underWay() int {
	n := 0
	for i := range l.Steps {
		if e := &l.Steps[i]; e.Counts != nil {
			n += e.Counts.Running
		} else if e.Status == StepQueued || e.Status == StepRunning || e.Status == StepRetryWait {
			n++
		}
	}
	return n
}

// failing reports whether the run will fail: a step that it needs has failed.
func (l *Ledger) failing(p *Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s PlannedStep) bool {
		return !s.Optional && l.Entry(s.ID).Status == StepFailed
	})
}

// End says how the run ends now, if it does: when it is cancelled, and when the steps that it needs have ended. Steps
// that still run are then cancelled.
func (l *Ledger) End(p *Plan) (status RunStatus, why string, ended bool) {
	if l.Cancel != nil {
		return RunCancelled, l.Cancel.Reason, l.underWay() == 0
	}
	var failed, partial []string
	for i := range p.Steps {
		s, e := &p.Steps[i], &l.Steps[i]
		switch {
		case s.Optional:
		case e.Status == StepFailed:
			failed = append(failed, s.ID)
		case e.Status == StepPartial:
			partial = append(partial, s.ID)
		case e.Status.Final():
		case l.failing(p) && (e.Status == StepPending || e.Status == StepReady || e.Status == StepBlocked):
			// It will not begin.
		default:
			return "", "", false
		}
	}
	switch {
	case len(failed) > 0:
		first := l.Entry(failed[0])
		return RunFailed, fmt.Sprintf("step %s failed: %s", first.Step, first.Why), true
	case l.Output == nil && l.optionalOpen(p):
		return "", "", false // without complete_run, the run ends when every step has
	case len(partial) > 0:
		return RunPartial, "partial: " + strings.Join(partial, ", "), true
	}
	return RunCompleted, "", true
}

func (l *Ledger) optionalOpen(p *Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s PlannedStep) bool {
		return s.Optional && !l.Entry(s.ID).Status.Final()
	})
}

func (w *Work) end(status StepStatus, why string) { w.Status, w.Why, w.NextAt = status, why, nil }

// Failed ends a step whose work has failed, as its policy says.
func (e *Entry) Failed(policy OnFailure, why string, now time.Time) {
	status := StepFailed
	switch policy {
	case FailPartial:
		status, why = StepPartial, "it failed, which counts as partial: "+why
	case FailSkip:
		status, why = StepSkipped, "it failed, which counts as skipped: "+why
	case FailHold:
		e.Status, e.Why, e.NextAt = StepBlocked, "it failed, and a person decides how to go on: "+why, nil
		return
	}
	e.end(status, why)
	e.EndedAt = &now
}

// Standing is the run's status while it has not ended.
func (l *Ledger) Standing() (RunStatus, string) {
	running := l.underWay()
	switch {
	case l.Paused != nil && running > 0:
		return RunPausing, "paused: what runs is let finish or being stopped"
	case l.Paused != nil:
		return RunPaused, "paused by a person"
	case running > 0:
		return RunRunning, ""
	}
	for i := range l.Steps {
		if e := &l.Steps[i]; e.Status == StepBlocked {
			return RunBlocked, "step " + e.Step + ": " + e.Why
		}
	}
	return RunRunning, ""
}

// CountElements sums the elements of a step up, and decides how it stands.
func (e *Entry) CountElements(tolerate Tolerate) (over bool) {
	c := Counts{Total: len(e.Elements)}
	for i := range e.Elements {
		switch s := e.Elements[i].Status; {
		case s == StepFailed:
			c.Failed++
		case s.Final():
			c.Done++
		case s != StepReady:
			c.Running++
		}
	}
	e.Counts = &c
	return c.Done+c.Failed == c.Total
}
