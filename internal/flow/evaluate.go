package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// Evaluator evaluates the expressions of plans. It is safe for concurrent use; it keeps what it has compiled.
type Evaluator struct {
	mu       sync.Mutex
	compiled map[string]*expression
}

// keptExpressions bounds what an Evaluator keeps compiled.
const keptExpressions = 4096

func (v *Evaluator) compile(source string) (*expression, error) {
	v.mu.Lock()
	known := v.compiled[source]
	v.mu.Unlock()
	if known != nil {
		return known, nil
	}
	e, err := compile(source) // not under the lock: others need not wait for it
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.compiled == nil || len(v.compiled) >= keptExpressions {
		v.compiled = map[string]*expression{}
	}
	v.compiled[source] = e
	return e, nil
}

// Facts are what expressions see.
type Facts map[string]any

// FactsOf reads JSON: the inputs of a run, its steps by id, and the run itself.
func FactsOf(inputs, steps, run json.RawMessage) (Facts, error) {
	facts := Facts{varItem: nil, varIndex: int64(0), varResult: nil, varResults: []any{}, varFailed: []any{},
		varEvent: nil}
	for name, text := range map[string]json.RawMessage{varInputs: inputs, varSteps: steps, varRun: run} {
		value, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if value == nil {
			value = map[string]any{}
		}
		facts[name] = value
	}
	return facts, nil
}

// EventFacts reads an event: its attributes, and its data as "data".
func EventFacts(event json.RawMessage) (Facts, error) {
	value, err := decode(event)
	if err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	facts, err := FactsOf(nil, nil, nil)
	if err != nil {
		return nil, err
	}
	facts[varEvent] = value
	return facts, nil
}

// Trigger says whether an event starts a run, with which key, and with which inputs.
func (v *Evaluator) Trigger(
	ctx context.Context, t *api.EventTrigger, facts Facts,
) (starts bool, key string, inputs json.RawMessage, err error) {
	if t.Where != "" {
		if starts, err = v.Bool(ctx, t.Where, facts); err != nil || !starts {
			return false, "", nil, errIn("where", err)
		}
	}
	if t.Key != "" {
		if key, err = v.Message(ctx, "${"+t.Key+"}", facts); err != nil || key == "" {
			return false, "", nil, errIn("key", cmp.Or(err, errors.New("gives an empty text")))
		}
	}
	value, err := decode(t.Inputs)
	if err == nil && value != nil {
		if value, err = v.render(ctx, "inputs", value, facts); err == nil {
			inputs, err = json.Marshal(value)
		}
	}
	return true, key, inputs, err
}

// errIn says in which field an error is; nil for none.
func errIn(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// with is the facts and some more.
func (f Facts) with(more Facts) Facts {
	all := Facts{}
	for _, facts := range []Facts{f, more} {
		for name, value := range facts {
			all[name] = value
		}
	}
	return all
}

// value evaluates one expression.
func (v *Evaluator) value(ctx context.Context, source string, facts Facts) (any, error) {
	e, err := v.compile(source)
	if err != nil {
		return nil, err
	}
	spent := spentBy(ctx)
	if err := spent.take(0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, totalTime-spent.time)
	defer cancel()
	began := time.Now()
	defer func() { spent.time += time.Since(began) }()
	result, details, err := e.program.ContextEval(ctx, map[string]any(facts))
	if cost := details.ActualCost(); cost != nil {
		spent.cost += *cost
	}
	if err != nil && strings.HasPrefix(err.Error(), noSuchKey) {
		if why := e.withoutOutput(facts); why != "" {
			return nil, errors.New(why)
		}
	}
	if err != nil && strings.HasPrefix(err.Error(), noSuchOverload) {
		if why := mismatchOf(ctx, source, facts); why != "" {
			err = errors.New(why)
		}
	}
	if err != nil {
		return nil, explain(err)
	}
	given := converter{ctx: ctx, left: totalGiven - spent.given}
	answer, err := given.native(result)
	spent.given += given.took()
	return answer, err
}

type limitKey struct{}

// spent is what the evaluations with one context have taken.
type spent struct {
	cost  uint64
	time  time.Duration
	given int // bytes, about
}

// spentBy is the usage of the evaluations with the context; nothing where it has no limit.
func spentBy(ctx context.Context) *spent {
	if s, limited := ctx.Value(limitKey{}).(*spent); limited {
		return s
	}
	return &spent{}
}

// take counts work, and refuses more than all may take together.
func (s *spent) take(cost uint64) error {
	if s.cost += cost; s.cost > totalLimit || s.time > totalTime {
		return errors.New("and those before it take more work than expressions may; do it in a task")
	}
	return nil
}

// WithLimit bounds the work of all evaluations with the context together, about a second of one core, and what they
// give: a text may name one large value thousands of times.
func WithLimit(ctx context.Context) context.Context {
	return context.WithValue(ctx, limitKey{}, &spent{})
}

// Spent is the work of the evaluations with a context, in tenths of a millisecond of one core. What took long counts by
// its time, beyond a second.
func Spent(ctx context.Context) int {
	s := spentBy(ctx)
	return int(max(s.cost/(costLimit/1000), uint64(max(0, s.time-time.Second)/(100*time.Microsecond))))
}

// noSuchKey begins CEL's error for what a map lacks.
const noSuchKey = "no such key: "

// explain is CEL's error for people. It is cut: it may repeat what the expression reads, and is kept.
func explain(err error) error {
	text := api.Shorten(err.Error(), maxTold)
	if key, found := strings.CutPrefix(text, noSuchKey); found {
		return fmt.Errorf("there is no %s in what it reads", key)
	}
	if strings.Contains(text, "cost limit") || strings.Contains(text, "interrupted") {
		return errors.New("takes more work than an expression may; do it in a task")
	}
	return errors.New(cmp.Or(otherMismatch(text), text))
}

// Bool evaluates an expression that gives true or false.
func (v *Evaluator) Bool(ctx context.Context, source string, facts Facts) (bool, error) {
	value, err := v.value(ctx, source, facts)
	if err != nil {
		return false, err
	}
	yes, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("gives %s, not true or false", kindOf(value))
	}
	return yes, nil
}

// Time evaluates an expression that gives a time, as a timestamp or as text in RFC 3339.
func (v *Evaluator) Time(ctx context.Context, source string, facts Facts) (time.Time, error) {
	value, err := v.value(ctx, source, facts)
	if err != nil {
		return time.Time{}, err
	}
	text, ok := value.(string)
	if !ok {
		return time.Time{}, fmt.Errorf("gives %s, not a time", kindOf(value))
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, errors.New("gives text that is not a time like 2026-11-22T03:00:00Z")
	}
	at = at.UTC() // JSON cannot hold all offsets that can be parsed, as +24:00
	return at, api.ValidateTime("the time", at)
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "text"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	}
	return "a number"
}

// Elements are the elements for which a step runs.
func (v *Evaluator) Elements(ctx context.Context, each *api.ForEach, facts Facts) ([]any, error) {
	if each.Count > 0 {
		list := make([]any, each.Count)
		for i := range list {
			list[i] = int64(i)
		}
		return list, nil
	}
	value, err := v.value(ctx, each.List, facts)
	if err != nil {
		return nil, err
	}
	list, ok := value.([]any)
	switch {
	case !ok:
		return nil, fmt.Errorf("gives %s, not a list", kindOf(value))
	case len(list) > api.MaxElements:
		return nil, fmt.Errorf("gives %d elements; at most %d are allowed", len(list), api.MaxElements)
	}
	return list, nil
}

// Task fills in a task's expressions. item and index are those of a for_each.
func (v *Evaluator) Task(
	ctx context.Context, template *api.TaskSpec, facts Facts, item any, index int,
) (*api.TaskSpec, error) {
	value, err := taskValue(template)
	if err != nil {
		return nil, err
	}
	rendered, err := v.render(ctx, "task", value, facts.with(Facts{varItem: item, varIndex: int64(index)}))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(rendered)
	if err != nil {
		return nil, err
	}
	spent := spentBy(ctx)
	if spent.given += len(text); spent.given > totalGiven {
		return nil, errors.New("it and those before it have more than a run may begin with; pass on where large data is")
	}
	var task api.TaskSpec
	if err := json.Unmarshal(job.Texts(text, reflect.TypeFor[api.TaskSpec]()), &task); err != nil {
		return nil, err
	}
	task.Payload = job.PayloadTexts(task.Type, task.Payload)
	if err := api.CheckJSONDepth(task.Payload, api.MaxJSONValueDepth); err != nil {
		return nil, fmt.Errorf("task.payload: %w", err)
	}
	return &task, cmp.Or(task.Validate(), payload.Task(&task))
}

// render fills in the expressions of a JSON value. A text that is one expression keeps the type of its value.
func (v *Evaluator) render(ctx context.Context, field string, value any, facts Facts) (any, error) {
	switch value := value.(type) {
	case string:
		return v.renderText(ctx, field, value, facts)
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			rendered, err := v.render(ctx, fmt.Sprintf("%s[%d]", field, i), item, facts)
			if err != nil {
				return nil, err
			}
			list[i] = rendered
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, item := range value {
			rendered, err := v.render(ctx, field+"."+name, item, facts)
			if err != nil {
				return nil, err
			}
			object[name] = rendered
		}
		return object, nil
	}
	return value, nil
}

func (v *Evaluator) renderText(ctx context.Context, field, text string, facts Facts) (any, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	parts, err := pieces(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", field, err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.source == "" {
			b.WriteString(p.text)
			continue
		}
		value, err := v.value(ctx, p.source, facts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		if len(parts) == 1 {
			return value, nil
		}
		text, err := job.Text(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Message fills in the expressions of a text.
func (v *Evaluator) Message(ctx context.Context, text string, facts Facts) (string, error) {
	value, err := v.renderText(ctx, "message", text, facts)
	if err != nil {
		return "", err
	}
	return job.Text(value)
}

// Check lists what is wrong with a step's result; nothing: all is well.
func (v *Evaluator) Check(ctx context.Context, c *api.StepCheck, facts Facts, result json.RawMessage) (wrong []string) {
	wrong = schemaErrors(validate(ctx, c.Schema, result))
	value, err := decode(result)
	if err != nil {
		return append(wrong, "it is not JSON")
	}
	for _, rule := range c.Rules {
		switch holds, err := v.Bool(ctx, rule.That, facts.with(Facts{varResult: value})); {
		case err != nil:
			wrong = append(wrong, rule.Else+" ("+err.Error()+")")
		case !holds:
			wrong = append(wrong, rule.Else)
		}
	}
	return wrong
}

// CheckTask fills in the expressions of the task that checks a step's result.
func (v *Evaluator) CheckTask(
	ctx context.Context, template *api.TaskSpec, facts Facts, result json.RawMessage,
) (*api.TaskSpec, error) {
	value, err := decode(result)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	return v.Task(ctx, template, facts.with(Facts{varResult: value}), nil, 0)
}

// StepOutput is what a run keeps of a step that has ended: the named expressions over its result, or the result itself
// if it is small. With for_each, results are those of the elements that completed, failed the indices of the others.
func (v *Evaluator) StepOutput(
	ctx context.Context, step *job.PlannedStep, facts Facts, result json.RawMessage, results []json.RawMessage,
	failed []int,
) (json.RawMessage, error) {
	if len(step.Output) == 0 {
		return job.WholeOutput(result), nil
	}
	value, err := decode(result)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	all := facts.with(Facts{varResult: value, varResults: []any{}, varFailed: []any{}})
	if results != nil {
		list := make([]any, len(results))
		for i := range results {
			if list[i], err = decode(results[i]); err != nil {
				return nil, fmt.Errorf("read result %d: %w", i, err)
			}
		}
		indices := make([]any, len(failed))
		for i, n := range failed {
			indices[i] = int64(n)
		}
		all[varResults], all[varFailed] = list, indices
	}
	kept := map[string]any{}
	for name, source := range step.Output {
		if kept[name], err = v.value(ctx, source, all); err != nil {
			return nil, fmt.Errorf("output.%s: %w", name, err)
		}
	}
	text, err := json.Marshal(kept)
	if err == nil && len(text) > job.MaxOutputBytes {
		err = fmt.Errorf("output has %d bytes; at most %d KiB are kept", len(text), job.MaxOutputBytes>>10)
	}
	return text, err
}
