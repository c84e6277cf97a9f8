package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// JobType says how the work of a job ends.
type JobType string

// The types of jobs. A batch job, the default, has steps; the others have instances.
const (
	JobBatch    JobType = "batch"    // its runs end when their steps have ended
	JobService  JobType = "service"  // a number of instances that run all the time
	JobSystem   JobType = "system"   // one of them on each eligible agent
	JobSysbatch JobType = "sysbatch" // one on each eligible agent, which runs once
)

// JobDefinition is a job as people write it, in YAML or JSON with the same names. Fields marked CEL hold an expression;
// in payloads, labels and messages "${…}" holds one.
type JobDefinition struct {
	Job         string            `json:"job" maxLength:"30" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The job's name."`
	Type        JobType           `json:"type,omitempty" enum:"batch,service,system,sysbatch" doc:"What its work is: steps that end (batch, the default), or instances: so many that run all the time (service), one on each eligible agent all the time (system), one on each that runs once (sysbatch)."`
	Cluster     string            `json:"cluster" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The cluster whose agents do the work."`
	Tenant      string            `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"Whose work it is; tenants share agents fairly."`
	Priority    Priority          `json:"priority,omitempty" doc:"1 (first) to 5 (last), or critical, high, normal, low or background. Default 3, normal."`
	Labels      map[string]string `json:"labels,omitempty" doc:"Up to 16 names and values of every step's task."`
	Safety      RetrySafety       `json:"safety,omitempty" enum:"idempotent,fenced,at_most_once,unmarked" doc:"The safety of steps that name none. Left out, they are unmarked: an attempt that failed is tried again, one that was lost with its agent waits for a person. Of instances: idempotent, if it is left out."`
	Retry       RetryPolicy       `json:"retry,omitzero" doc:"The retry policy of steps that have none."`
	Recovery    *Recovery         `json:"recovery,omitempty" doc:"Instead of retry: what happens after an attempt that brought no result, of steps with neither retry nor recovery. A mode, or a section."`
	StopGrace   *Duration         `json:"stop_grace,omitempty" least:"0s" most:"10m" doc:"The stop_grace of steps that have none."`
	Away        *Duration         `json:"disconnect_grace,omitempty" least:"0s" most:"24h" doc:"The disconnect_grace of steps that have none, but for fenced ones."`
	Inputs      json.RawMessage   `json:"inputs,omitempty" doc:"JSON Schema of what a dispatch gives. Left out: anything."`
	On          []JobTrigger      `json:"on,omitempty" maxItems:"8" doc:"What starts runs by itself."`
	Concurrency *Concurrency      `json:"concurrency,omitempty" doc:"How many runs go at a time. Left out: any number."`
	Deadline    Duration          `json:"deadline,omitempty" least:"1s" most:"8760h" doc:"How long a whole run may take. Default: without end."`
	Budget      *Budget           `json:"budget,omitempty" doc:"What the models that its steps call may take in a run. One that has used it up is paused; each resume gives it as much again."`
	Steps       map[string]*Step  `json:"steps,omitempty" doc:"Of a batch job: the steps by their ids, 1 to 24 characters of a-z, 0-9 and -, beginning with a letter."`
	Instances   *Instances        `json:"instances,omitempty" doc:"Of a service, system or sysbatch job: what it has many of."`
	Requires    *Requires         `json:"requires,omitempty" doc:"What must be there before a run begins, or instances are started."`
	Update      *JobUpdate        `json:"update,omitempty" doc:"Of a service or system job: how a new version takes the place of the one before. Left out: all instances are replaced at a time."`
}

// Requires is what must be there before a run begins, or instances are started.
type Requires struct {
	Services []string `json:"services" maxItems:"8" doc:"Each of these services of the same tenant must have a healthy instance. What runs already goes on when it has none any more."`
}

// Required are the services that must have a healthy instance before instances of the job are started.
func (d *JobDefinition) Required() []string {
	if d == nil || d.Requires == nil {
		return nil
	}
	return d.Requires.Services
}

// JobTrigger starts runs by itself. Exactly one of its fields is given.
type JobTrigger struct {
	Schedule *ScheduleTrigger `json:"schedule,omitempty" doc:"Starts a run at times."`
	Event    *EventTrigger    `json:"event,omitempty" doc:"Starts a run for each event from outside that it matches."`
}

// ScheduleTrigger starts a run at times.
type ScheduleTrigger struct {
	Cron     string          `json:"cron,omitempty" doc:"Five fields, as in crontab; or give interval."`
	TimeZone string          `json:"time_zone,omitempty" doc:"An IANA name, for cron. Default UTC."`
	Interval Duration        `json:"interval,omitempty" least:"1s" most:"8784h" doc:"Counted from 1970-01-01 UTC. Below 1m, and without concurrency, none is started while the last one goes."`
	Inputs   json.RawMessage `json:"inputs,omitempty" doc:"The inputs of its runs."`
}

// EventTrigger starts a run for each event from outside that it matches.
type EventTrigger struct {
	Type   string          `json:"type" maxLength:"255" doc:"The event's type."`
	Source string          `json:"source,omitempty" maxLength:"2048" doc:"The event's source. Left out: any."`
	Where  string          `json:"where,omitempty" doc:"CEL over event: only events for which it is true."`
	Key    string          `json:"key,omitempty" doc:"CEL over event: all events with the same value start one run. Left out: each event starts one."`
	Inputs json.RawMessage `json:"inputs,omitempty" doc:"The inputs of the run. \"${event.data.x}\" holds CEL over event."`
}

// Schedules are the triggers that start runs at times.
func (d *JobDefinition) Schedules() (schedules []*ScheduleTrigger) {
	for i := range d.On {
		if d.On[i].Schedule != nil {
			schedules = append(schedules, d.On[i].Schedule)
		}
	}
	return schedules
}

// Events are the types of the events that start runs, sorted.
func (d *JobDefinition) Events() (types []string) {
	for i := range d.On {
		if t := d.On[i].Event; t != nil {
			types = append(types, t.Type)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Concurrency bounds the runs of a job that go at a time.
type Concurrency struct {
	Key     string `json:"key,omitempty" doc:"CEL over inputs: runs with the same value count together. Left out: all runs of the job."`
	MaxRuns int    `json:"max_runs,omitempty" minimum:"1" maximum:"100" doc:"How many go at a time. Default 1."`
	Then    Then   `json:"then,omitempty" enum:"queue,skip,cancel_other" doc:"What becomes of one more: it waits (queue, the default), is not started (skip), or the oldest is cancelled for it (cancel_other)."`
}

// Budget bounds what models take.
type Budget struct {
	Tokens int     `json:"tokens,omitempty" minimum:"1" doc:"How many tokens, in and out together."`
	USD    float64 `json:"usd,omitempty" minimum:"0.000001" doc:"How many US dollars, by the prices that agents know."`
}

// MicroUSD is its money in millionths of a dollar.
func (b *Budget) MicroUSD() int { return int(math.Round(b.USD * 1e6)) }

// String is the budget in words.
func (b *Budget) String() string {
	var parts []string
	if b.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", b.Tokens))
	}
	if b.USD > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", b.USD))
	}
	return strings.Join(parts, " and ")
}

// Then says what becomes of a run beyond the limit.
type Then string

// What happens to a run beyond the limit.
const (
	ThenQueue       Then = "queue"
	ThenSkip        Then = "skip"
	ThenCancelOther Then = "cancel_other"
)

// Step is one piece of work of a run. Exactly one of Task, Approve and Wait says which.
type Step struct {
	Task    *TaskSpec    `json:"task,omitempty" doc:"A task for an agent, as POST /tasks takes it. What the step says itself is left out: cluster, tenant, retry, recovery, retry_safety, timeout, stop_grace, disconnect_grace, beacon_timeout, place, start_at."`
	Tools   []StepTool   `json:"tools,omitempty" maxItems:"64" doc:"Of a task of type model: the tools that the model may call. It is asked again with what they said, until it answers without a call."`
	Turns   int          `json:"max_turns,omitempty" minimum:"1" maximum:"50" doc:"With tools: how often the model may be asked. The step fails if it calls tools in the last of its turns. Default 8."`
	Approve *StepApprove `json:"approve,omitempty" doc:"Waits until a person approves."`
	Wait    *StepWait    `json:"wait,omitempty" doc:"Waits for a time."`

	After    []string  `json:"after,omitempty" maxItems:"200" doc:"The steps that must be through before it begins: completed, partial, or skipped."`
	If       string    `json:"if,omitempty" doc:"CEL. The step is skipped where it is false."`
	Join     StepJoin  `json:"join,omitzero" doc:"How many of after must be through: all (the default), any, or a number. With any or a number the step declares output."`
	ForEach  *ForEach  `json:"for_each,omitempty" doc:"Runs the task once for each element: CEL that gives a list, or {count: N}. More than 100 become an array: up to 100000, with payloads of 1 MiB in all. The expressions of the task see item and index."`
	Parallel int       `json:"max_parallel,omitempty" minimum:"1" maximum:"100" doc:"How many elements run at a time. Default 50."`
	Tolerate Tolerance `json:"tolerate,omitzero" doc:"How many elements may fail (5, or 1%) so that the step is partial instead of failed. Default none."`
	Optional bool      `json:"optional,omitempty" doc:"The run does not wait for it, and does not fail with it."`

	Safety       RetrySafety       `json:"safety,omitempty" enum:"idempotent,fenced,at_most_once,unmarked" doc:"When its task may run again after its agent was lost. Default: the job's."`
	Retry        *RetryPolicy      `json:"retry,omitempty" doc:"Bounds and spaces its attempts. Default: the job's."`
	Recovery     *Recovery         `json:"recovery,omitempty" doc:"Instead of retry: what happens after an attempt that brought no result. A mode, or a section. Default: the job's, unless the step has retry."`
	Timeout      Duration          `json:"timeout,omitempty" least:"1s" most:"720h" doc:"How long one attempt may run. Default 24h."`
	StopGrace    *Duration         `json:"stop_grace,omitempty" least:"0s" most:"10m" doc:"How long its work has to end once it was cancelled or is out of time: a command gets SIGTERM, and SIGKILL then. Default: the job's, else the cluster's, else 30s for a command and 5s for other work."`
	Away         *Duration         `json:"disconnect_grace,omitempty" least:"0s" most:"24h" doc:"How long its agent may be out of touch before its attempt counts as lost: one that comes back meanwhile goes on with it. Default: the job's, else the cluster's, else 30s of at_most_once and unmarked steps and 0s of idempotent ones. Fenced ones have none."`
	Deadline     Duration          `json:"deadline,omitempty" least:"1s" most:"8760h" doc:"How long all its attempts may take together."`
	Place        *Demand           `json:"place,omitempty" doc:"Resources, devices, volumes and ports that its task needs of its agent."`
	Beacon       *StepBeacon       `json:"beacon,omitempty" doc:"Ends an attempt that gives no sign of life. A command of type exec, without for_each, has 45s unless it is given; it gives signs as long as it lives."`
	Output       map[string]string `json:"output,omitempty" doc:"CEL over result (results and failed with for_each): what the run keeps of it, by name. Left out: the result, if it has at most 16 KiB; with for_each nothing."`
	ResultLimit  ByteSize          `json:"result_limit,omitempty" doc:"The largest result, up to 1MiB. Default 64KiB."`
	OnFailure    OnFailure         `json:"on_failure,omitempty" enum:"fail,partial,skip,hold" doc:"What its failure means: the run fails (fail, the default), the step counts as partial, or as skipped, or a person decides (hold)."`
	Check        *StepCheck        `json:"check,omitempty" doc:"What its result must be like. One that is not is corrected: the task runs again, and learns what was wrong."`
	TerminalSink bool              `json:"terminal_sink,omitempty" doc:"Its result may complete the whole run, with {\"complete_run\": …}."`
}

// StepTool is a tool that the model of a step may call.
type StepTool struct {
	Server      string          `json:"server" maxLength:"59" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The server that has it, as agents name it."`
	Name        string          `json:"name" maxLength:"64" pattern:"^[a-zA-Z0-9_-]+$" doc:"The tool, as the server names it."`
	Description string          `json:"description,omitempty" maxLength:"1000" doc:"What it does, for the model."`
	Arguments   json.RawMessage `json:"arguments,omitempty" doc:"JSON Schema of its arguments, for the model. A call that does not fit is not made. Left out: any object."`
	Safety      RetrySafety     `json:"safety,omitempty" enum:"idempotent,fenced,at_most_once,unmarked" doc:"When a call may be made again after its agent was lost. Default at_most_once."`
}

// StepCheck says what the result of a step must be like.
type StepCheck struct {
	Schema    json.RawMessage `json:"schema,omitempty" doc:"JSON Schema of the result."`
	Rules     []CheckRule     `json:"rules,omitempty" maxItems:"32" doc:"What else must hold."`
	Task      *TaskSpec       `json:"task,omitempty" doc:"Asks an agent, once schema and rules hold: its result is {valid, errors}. Its expressions see result, and it has its own retry."`
	Correct   Corrections     `json:"correct,omitzero"`
	Exhausted CheckExhausted  `json:"exhausted,omitempty" enum:"review,fail" doc:"When the corrections are used up: a person decides (review, the default), or the step fails."`
}

// CheckRule is what must hold of a result.
type CheckRule struct {
	That string `json:"that" doc:"CEL over result, inputs and steps that gives true or false."`
	Else string `json:"else" maxLength:"1000" doc:"What is wrong where it is false, for the one who corrects it."`
}

// Corrections bounds the corrections.
type Corrections struct {
	Attempts int `json:"attempts,omitempty" minimum:"0" maximum:"10" doc:"How many corrections follow the first result. Default 0: none."`
}

// CheckExhausted says what follows when the corrections are used up.
type CheckExhausted string

// What follows when the corrections are used up.
const (
	CheckExhaustedReview CheckExhausted = "review"
	CheckExhaustedFail   CheckExhausted = "fail"
)

// StepApprove waits for a person.
type StepApprove struct {
	Message string `json:"message" maxLength:"1000" doc:"What the person is asked."`
}

// StepWait waits for a time. Exactly one of its fields is given.
type StepWait struct {
	For   Duration `json:"for,omitempty" least:"1s" most:"8760h" doc:"How long."`
	Until string   `json:"until,omitempty" doc:"CEL that gives a time as text (RFC 3339) or a timestamp."`
}

// StepBeacon ends attempts without signs of life.
type StepBeacon struct {
	Timeout Duration `json:"timeout,omitempty" least:"1s" most:"24h" doc:"Silence after which the attempt counts as failed. Default 45s."`
}

// OnFailure says what the failure of a step means.
type OnFailure string

// What the failure of a step means.
const (
	FailRun     OnFailure = "fail"
	FailPartial OnFailure = "partial"
	FailSkip    OnFailure = "skip"
	FailHold    OnFailure = "hold"
)

// StepJoin says how many dependencies must be through; zero means all.
type StepJoin struct {
	Any bool
	N   int
}

// All reports whether every dependency must be through.
func (j StepJoin) All() bool { return j == StepJoin{} }

// Need is how many of n dependencies must be through.
func (j StepJoin) Need(n int) int {
	switch {
	case j.Any:
		return min(1, n)
	case j.N > 0:
		return min(j.N, n)
	}
	return n
}

var errJoin = errors.New("must be all, any, or how many of after must be through")

// UnmarshalJSON reads all, any or a number.
func (j *StepJoin) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "null", `"all"`:
		*j = StepJoin{}
		return nil
	case `"any"`:
		*j = StepJoin{Any: true}
		return nil
	}
	n, err := strconv.Atoi(string(data))
	if err != nil || n < 1 {
		return errJoin
	}
	*j = StepJoin{N: n}
	return nil
}

// MarshalJSON writes all, any or a number.
func (j StepJoin) MarshalJSON() ([]byte, error) {
	switch {
	case j.Any:
		return []byte(`"any"`), nil
	case j.N > 0:
		return strconv.AppendInt(nil, int64(j.N), 10), nil
	}
	return []byte(`"all"`), nil
}

// ForEach says for which elements a step runs: those of a list, or numbered ones up to a count.
type ForEach struct {
	List  string // CEL
	Count int
}

var errForEach = fmt.Errorf("must be CEL that gives a list, in quotes, like \"['a', 'b']\", or {count: N} with N "+
	"from 1 to %d", MaxElements)

// UnmarshalJSON reads text or {"count": N}.
func (f *ForEach) UnmarshalJSON(data []byte) error {
	*f = ForEach{}
	if json.Unmarshal(data, &f.List) == nil {
		return nil
	}
	var counted struct {
		Count int `json:"count"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&counted) != nil || counted.Count < 1 || counted.Count > MaxElements {
		return errForEach
	}
	f.Count = counted.Count
	return nil
}

// MarshalJSON writes text or {"count": N}.
func (f ForEach) MarshalJSON() ([]byte, error) {
	if f.Count > 0 {
		return fmt.Appendf(nil, `{"count":%d}`, f.Count), nil
	}
	return json.Marshal(f.List)
}

// Tolerance is how many elements may fail: a number, or a share of them.
type Tolerance struct {
	Count   int
	Percent float64
}

// Of is how many of n elements may fail.
func (t Tolerance) Of(n int) int { return max(t.Count, int(t.Percent*float64(n)/100)) }

var errTolerate = errors.New("must be how many elements may fail, like 5, or a share of them, like 1%")

// UnmarshalJSON reads a number or a share such as "1%".
func (t *Tolerance) UnmarshalJSON(data []byte) error {
	*t = Tolerance{}
	var text string
	if json.Unmarshal(data, &text) == nil {
		share, ok := strings.CutSuffix(text, "%")
		percent, err := strconv.ParseFloat(share, 64)
		if !ok || err != nil || !(0 <= percent && percent <= 100) {
			return errTolerate
		}
		t.Percent = percent
		return nil
	}
	count, err := strconv.Atoi(string(data))
	if err != nil || count < 0 {
		return errTolerate
	}
	t.Count = count
	return nil
}

// MarshalJSON writes a number or a share.
func (t Tolerance) MarshalJSON() ([]byte, error) {
	if t.Percent > 0 {
		return json.Marshal(strconv.FormatFloat(t.Percent, 'f', -1, 64) + "%")
	}
	return json.Marshal(t.Count)
}

// ByteSize is a number of bytes, written as a number or as text such as 64KiB.
type ByteSize int

var errSize = errors.New("must be a size above 0, like 64KiB or 1MiB")

// UnmarshalJSON reads a number of bytes or text.
func (s *ByteSize) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	unit := 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = number, bytes
			break
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > 1<<20 {
		return errSize
	}
	*s = ByteSize(n * unit)
	return nil
}

// MarshalJSON writes the largest unit that fits.
func (s ByteSize) MarshalJSON() ([]byte, error) {
	switch {
	case s != 0 && s%(1<<20) == 0:
		return fmt.Appendf(nil, `"%dMiB"`, s>>20), nil
	case s != 0 && s%(1<<10) == 0:
		return fmt.Appendf(nil, `"%dKiB"`, s>>10), nil
	}
	return strconv.AppendInt(nil, int64(s), 10), nil
}
