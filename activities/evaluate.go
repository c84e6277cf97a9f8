package activities

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// Evaluator evaluates the expressions of runs.
type Evaluator struct {
	flows  flow.Evaluator
	places Places
	shares *shares
}

// Places says where tasks go, and what arrays have done.
type Places interface {
	// Place says where a task goes. problem says why there is no place for it; an error is one to try again.
	Place(ctx context.Context, id string, spec api.TaskSpec) (place contract.TaskPlace, problem string, err error)
	// Results are what the elements of an array returned that completed. problem says why they cannot be had.
	Results(ctx context.Context, array string) (results map[int]json.RawMessage, problem string, err error)
}

// NewEvaluator evaluates, and asks places for the lanes of tasks.
func NewEvaluator(places Places) *Evaluator {
	return &Evaluator{places: places, shares: newShares(shareRate, shareBurst)}
}

// maxMessage and maxKey bound, in bytes, the question to a person and the value by which a job counts its runs.
const maxMessage, maxKey = 1 << 10, 256

// Evaluate evaluates the expressions of a run: the outputs of steps that have ended, and then the inputs of steps that
// begin, with the lanes of their tasks. The answer has the mistakes in expressions; an error is worth another try.
func (a *Evaluator) Evaluate(ctx context.Context, in contract.EvaluateInput) (contract.Evaluated, error) {
	tenant, _ := api.CutTenant(in.Run)
	turn, err := a.shares.begin(ctx, tenant, in.Bytes())
	if err != nil {
		return contract.Evaluated{}, err
	}
	defer turn.ended()
	ctx = turn
	e := evaluation{Evaluator: a, in: &in, turn: turn, failed: map[string]bool{}}
	for i := range in.Steps {
		e.elements += len(in.Steps[i].Elements)
	}
	if err := e.readFacts(); err != nil {
		return contract.Evaluated{}, err
	}
	var answer contract.Evaluated
	if in.Key != "" {
		key, err := a.flows.Message(ctx, "${"+in.Key+"}", e.facts)
		if err != nil {
			return answer, temporal.NewNonRetryableApplicationError("concurrency.key: "+err.Error(), "Expression", nil)
		}
		if answer.Key = key; len(key) > maxKey || api.JSONSize(key) > 2*maxKey { // its job keeps it for each run
			sum := sha256.Sum256([]byte(key))
			answer.Key = "sha256:" + hex.EncodeToString(sum[:])
		}
	}
	for i := range in.Ended {
		output, err := e.output(ctx, &in.Ended[i])
		if err != nil {
			return contract.Evaluated{}, err
		}
		if i > 0 && answer.Bytes()+output.Bytes() > job.MaxBeginBytes { // the rest ends with the next evaluation
			for _, later := range in.Ended[i:] {
				e.failed[later.Step] = true
			}
			break
		}
		answer.Outputs = append(answer.Outputs, output)
	}
	if len(in.Ended) > 0 { // what begins sees their outputs
		if err := e.readFacts(); err != nil {
			return contract.Evaluated{}, err
		}
	}
	for _, id := range in.Begin {
		step := in.Plan.Step(id)
		if e.failedBefore(step) {
			continue
		}
		begun, err := e.begin(ctx, step)
		if err != nil {
			return contract.Evaluated{}, err
		}
		if bytes := begun.Bytes(); bytes > job.MaxBeginBytes {
			begun = contract.BegunStep{Step: id, Error: fmt.Sprintf("the payloads of its %d tasks have %d bytes in all, "+
				"and at most %d may begin together: pass on where large data is, as a path or a key, instead of the data",
				len(begun.Tasks), bytes, job.MaxBeginBytes)}
		} else if bytes+answer.Bytes() > job.MaxBeginBytes {
			break // the rest begins with the next evaluation
		}
		answer.Begin = append(answer.Begin, begun)
	}
	answer.Defaults, answer.Types = e.defaults, e.types
	return answer, nil
}

// evaluation is one call of Evaluate.
type evaluation struct {
	*Evaluator
	in     *contract.EvaluateInput
	turn   *evaluating
	facts  flow.Facts
	failed map[string]bool // steps whose output could not be evaluated, or not yet
	// elements are those that the run itself carries, including those of the steps that begin.
	elements int

	defaults *api.TaskDefaults // of the cluster, once a task was placed in it
	types    cluster.LaneTypes // of the cluster, likewise
}

// readFacts makes the view of the run that expressions have.
func (e *evaluation) readFacts() error {
	type stepFacts struct {
		Status api.StepStatus  `json:"status"`
		Output json.RawMessage `json:"output"`
		Error  string          `json:"error"`
		Failed []int           `json:"failed"`
	}
	steps := map[string]stepFacts{}
	for i := range e.in.Steps {
		s := &e.in.Steps[i]
		f := stepFacts{Status: s.Status, Output: s.Output, Failed: job.FailedElements(s)}
		if s.Status == api.StepFailed || s.Status == api.StepPartial {
			f.Error = s.Why
		}
		steps[s.Step] = f
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("encode the steps of a run: %w", err)
	}
	run, err := json.Marshal(map[string]any{"id": e.in.Run, "job": e.in.Plan.Job, "version": e.in.Plan.JobVersion})
	if err != nil {
		return fmt.Errorf("encode a run: %w", err)
	}
	e.facts, err = flow.FactsOf(e.in.Inputs, text, run)
	return err
}

// output evaluates what the run keeps of a step, and lets later steps see it.
func (e *evaluation) output(ctx context.Context, ended *contract.EndedStep) (contract.StepOutput, error) {
	step, entry := e.in.Plan.Step(ended.Step), e.entry(ended.Step)
	failed, problem := job.FailedElements(entry), error(nil)
	if ended.Array != "" && len(step.Output) > 0 {
		var results map[int]json.RawMessage
		var why string
		if err := e.turn.aside(ctx, func() (err error) {
			results, why, err = e.places.Results(ctx, ended.Array)
			return err
		}); err != nil {
			return contract.StepOutput{}, err
		}
		if why != "" {
			problem = errors.New(why)
		}
		ended.Results = []json.RawMessage{}
		for n := range entry.Counts.Total {
			if result, completed := results[n]; completed {
				ended.Results = append(ended.Results, result)
			} else {
				failed = append(failed, n)
			}
		}
	}
	if answer, called, err := e.calls(ctx, step, entry, ended); called || err != nil {
		e.failed[ended.Step] = true // nothing begins after it yet
		return answer, err
	}
	completes, err := readCompletions(step, ended)
	if err == nil && step.Check != nil {
		answer, err := e.check(ctx, step, ended)
		if len(answer.Wrong) > 0 || answer.Check != nil || answer.Error != "" || err != nil {
			e.failed[ended.Step] = true // nothing begins after it yet
			return answer, err
		}
	}
	var output json.RawMessage
	if err = cmp.Or(problem, err); err == nil {
		output, err = e.flows.StepOutput(ctx, step, e.facts, ended.Result, ended.Results, failed)
	}
	if err != nil {
		e.failed[ended.Step] = true
		return contract.StepOutput{Step: ended.Step, Error: err.Error()}, nil //nolint:nilerr // it is the answer
	}
	entry.Output = output
	return contract.StepOutput{Step: ended.Step, Output: output, Completes: completes}, nil
}

// check returns what is wrong with a step's result, or the task that must check it. An empty answer: all is well.
func (e *evaluation) check(
	ctx context.Context, step *job.PlannedStep, ended *contract.EndedStep,
) (contract.StepOutput, error) {
	answer, problem := contract.StepOutput{Step: ended.Step}, ended.NoVerdict
	if ended.Verdict == nil && problem == "" {
		answer.Wrong = e.flows.Check(ctx, step.Check, e.facts, ended.Result)
		if len(answer.Wrong) > 0 || step.Check.Task == nil {
			return answer, nil
		}
		spec, err := e.flows.CheckTask(ctx, step.Check.Task, e.facts, ended.Result)
		if err != nil {
			answer.Error = "check.task: " + err.Error()
			return answer, nil //nolint:nilerr // it is the answer
		}
		id := job.TaskID(e.in.Run, job.CheckKey(step.ID))
		places, why, err := e.place(ctx, unplaced{id, spec})
		if err != nil {
			return answer, err
		}
		if problem = why; why == "" {
			input := places[0].Input(id, *spec)
			answer.Check = &contract.PlacedTask{Spec: input.Spec, Lane: input.Lane}
			return answer, nil
		}
	}
	if problem == "" {
		answer.Wrong, problem = job.ReadVerdict(ended.Verdict)
	}
	if answer.NoVerdict = problem != ""; answer.NoVerdict {
		answer.Wrong = []string{"the task of its check gave no verdict: " + problem}
	}
	return answer, nil
}

// calls are the calls of tools that a step's model asks for in its result, with the tasks of the possible ones.
func (e *evaluation) calls(
	ctx context.Context, step *job.PlannedStep, entry *api.StepEntry, ended *contract.EndedStep,
) (answer contract.StepOutput, called bool, err error) {
	if len(step.Tools) == 0 {
		return answer, false, nil
	}
	answer.Step = step.ID
	calls := flow.Calls(ended.Result)
	if len(calls) == 0 {
		return answer, false, nil
	}
	bytes := 0
	for i := range calls {
		bytes += len(calls[i].Arguments)
	}
	if answer.Error = job.WhyNoCalls(entry, step); answer.Error == "" && bytes > mesh.MaxTalkBytes {
		answer.Error = fmt.Sprintf("its model calls tools with more than %d KiB: have it hand on where large data is",
			mesh.MaxTalkBytes>>10)
	} else if answer.Error == "" && e.elements+len(calls) > job.MaxInlineAll {
		answer.Error = fmt.Sprintf("the run would have more than %d elements and calls of tools", job.MaxInlineAll)
	}
	if answer.Error != "" {
		return answer, true, nil
	}
	e.elements += len(calls)
	var tasks []unplaced
	var of []int // the calls of the tasks
	for i := range calls {
		call := contract.StepCall{ToolCall: calls[i]}
		var spec *api.TaskSpec
		if spec, call.Refused = flow.Call(ctx, e.in.Plan, step, &calls[i]); spec != nil {
			tasks = append(tasks, unplaced{job.TaskID(e.in.Run, job.ElementKey(step.ID, len(entry.Elements)+i)), spec})
			of = append(of, i)
		}
		answer.Calls = append(answer.Calls, call)
	}
	places, problem, err := e.place(ctx, tasks...)
	if err != nil || problem != "" {
		return contract.StepOutput{Step: step.ID, Error: problem}, true, err
	}
	for n := range places {
		input := places[n].Input(tasks[n].id, *tasks[n].spec)
		answer.Calls[of[n]].PlacedTask = contract.PlacedTask{Spec: input.Spec, Lane: input.Lane}
	}
	return answer, true, nil
}

// readCompletions replaces results that complete the step by the value that they give, and returns the value that
// completes the whole run; nil: none.
func readCompletions(step *job.PlannedStep, ended *contract.EndedStep) (completes json.RawMessage, err error) {
	results := []*json.RawMessage{&ended.Result}
	for i := range ended.Results {
		results = append(results, &ended.Results[i])
	}
	for _, result := range results {
		value, output, err := job.Completion(*result)
		if err != nil {
			return nil, err
		}
		if *result = value; output != nil {
			completes = output
		}
	}
	switch {
	case completes != nil && !step.TerminalSink:
		return nil, errors.New(
			"not_a_terminal_sink: only a step with terminal_sink: true may return complete_run")
	case len(completes) > job.MaxRunOutputBytes:
		return nil, fmt.Errorf("complete_run has %d bytes, and at most %d KiB are kept: return where the data is, as a path "+
			"or a key, instead of the data", len(completes), job.MaxRunOutputBytes>>10)
	}
	return completes, nil
}

func (e *evaluation) entry(step string) *api.StepEntry {
	for i := range e.in.Steps {
		if e.in.Steps[i].Step == step {
			return &e.in.Steps[i]
		}
	}
	return &api.StepEntry{}
}

func (e *evaluation) failedBefore(step *job.PlannedStep) bool {
	for _, id := range step.After {
		if e.failed[id] {
			return true
		}
	}
	return false
}

// begin evaluates what a step begins with.
func (e *evaluation) begin(ctx context.Context, step *job.PlannedStep) (contract.BegunStep, error) {
	begun := contract.BegunStep{Step: step.ID}
	if step.If != "" {
		yes, err := e.flows.Bool(ctx, step.If, e.facts)
		if err != nil {
			begun.Error = "if: " + err.Error()
			return begun, nil //nolint:nilerr // it is the answer
		}
		if begun.Skip = !yes; begun.Skip {
			return begun, nil
		}
	}
	var err error
	switch {
	case step.Approve != nil:
		begun.Message, err = e.flows.Message(ctx, step.Approve.Message, e.facts)
		begun.Message = api.Shorten(begun.Message, maxMessage)
	case step.Wait != nil && step.Wait.Until != "":
		var until time.Time
		until, err = e.flows.Time(ctx, step.Wait.Until, e.facts)
		begun.Until = &until
	case step.Task != nil:
		return e.tasks(ctx, step, begun)
	}
	if err != nil {
		begun.Error = err.Error()
	}
	return begun, nil
}

// unplaced is a task that is filled in.
type unplaced struct {
	id   string
	spec *api.TaskSpec
}

// place says where tasks go. While clusters are asked, other runs of the tenant go first: once for all of the tasks.
func (e *evaluation) place(
	ctx context.Context, tasks ...unplaced,
) (places []contract.TaskPlace, problem string, err error) {
	err = e.turn.aside(ctx, func() error {
		for _, t := range tasks {
			place, why, err := e.places.Place(ctx, t.id, *t.spec)
			if problem = why; err != nil || problem != "" {
				return err
			}
			places = append(places, place)
		}
		return nil
	})
	return places, problem, err
}

// tasks fills in the tasks of a step, one for each element, and finds their lanes.
func (e *evaluation) tasks(
	ctx context.Context, step *job.PlannedStep, begun contract.BegunStep,
) (contract.BegunStep, error) {
	elements := []any{nil}
	if step.ForEach != nil {
		var err error
		if elements, err = e.flows.Elements(ctx, step.ForEach, e.facts); err != nil {
			begun.Error = "for_each: " + err.Error()
			return begun, nil //nolint:nilerr // it is the answer
		}
	}
	if len(elements) > job.MaxInline {
		if err := e.turn.fill(len(elements)); err != nil {
			return begun, err
		}
		return e.array(ctx, step, begun, elements)
	}
	if step.ForEach != nil {
		if e.elements += len(elements); e.elements > job.MaxInlineAll {
			begun.Error = fmt.Sprintf("for_each: the run would have more than %d elements: use few steps of more than %d, "+
				"which are arrays", job.MaxInlineAll, job.MaxInline)
			return begun, nil
		}
	}
	tasks := make([]unplaced, 0, len(elements))
	for i, item := range elements {
		spec, err := e.fill(ctx, step, item, i)
		if err != nil {
			begun.Error = err.Error()
			return begun, nil //nolint:nilerr // it is the answer
		}
		key := step.ID
		if step.ForEach != nil {
			key = job.ElementKey(step.ID, i)
		}
		tasks = append(tasks, unplaced{job.TaskID(e.in.Run, key), spec})
	}
	places, problem, err := e.place(ctx, tasks...)
	if err != nil || problem != "" {
		begun.Error = problem
		return begun, err
	}
	for i := range tasks {
		if !places[i].Sharded {
			e.defaults, e.types = &places[i].Defaults, places[i].Types
		}
		input := places[i].Input(tasks[i].id, *tasks[i].spec)
		begun.Tasks = append(begun.Tasks, contract.PlacedTask{Spec: input.Spec, Lane: input.Lane})
	}
	return begun, nil
}

// fill is the task of a step, or of one of its elements, with the values of its expressions.
func (e *evaluation) fill(ctx context.Context, step *job.PlannedStep, item any, index int) (*api.TaskSpec, error) {
	if !step.Dynamic {
		return step.Task, nil
	}
	return e.flows.Task(ctx, step.Task, e.facts, item, index)
}

var errDiffer = errors.New("with more than 100 elements only the payload may differ from element to element: " +
	"use item and index in nothing else")

// array fills in the array of a step that has many elements.
func (e *evaluation) array(
	ctx context.Context, step *job.PlannedStep, begun contract.BegunStep, elements []any,
) (contract.BegunStep, error) {
	in := &contract.ArrayInput{Step: true}
	in.Parallel = step.Parallel
	if tolerate := step.Tolerate.Of(len(elements)); tolerate > 0 {
		in.Tolerate = &tolerate
	}
	common, err := e.fill(ctx, step, elements[0], 0)
	if err != nil {
		begun.Error = fmt.Sprintf("element 0: %s", err)
		return begun, nil
	}
	if in.Count = len(elements); step.Dynamic {
		in.Count, common.Payload = 0, nil
	}
	id := job.TaskID(e.in.Run, step.ID)
	places, problem, err := e.place(ctx, unplaced{id, common}) // before there is much in memory
	if err != nil || problem != "" {
		begun.Error = problem
		return begun, err
	}
	input := places[0].Input(id, *common)
	if step.Dynamic {
		for i := range elements {
			if ctx.Err() != nil {
				return begun, ctx.Err()
			}
			spec, err := e.fill(ctx, step, elements[i], i)
			if err == nil {
				in.Items = append(in.Items, spec.Payload)
				if spec.Payload = nil; !reflect.DeepEqual(spec, common) {
					err = errDiffer
				}
			}
			if err != nil {
				begun.Error = fmt.Sprintf("element %d: %s", i, err)
				return begun, nil
			}
		}
	}
	in.Spec, in.Lane = input.Spec, input.Lane
	if err := in.Validate(); err != nil {
		begun.Error = err.Error()
		return begun, nil //nolint:nilerr // it is the answer
	}
	begun.Array = in
	return begun, nil
}
