package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// outputField is the field of a step that is null where the step has brought nothing.
const outputField = "output"

// withoutOutput says that an expression reads the output of a step that has none; "": it does not.
func (e *expression) withoutOutput(facts Facts) string {
	steps, _ := facts[varSteps].(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(e.steps)) {
		step, _ := steps[id].(map[string]any)
		if step == nil || step[outputField] != nil || !slices.Contains(e.steps[id], outputField) {
			continue
		}
		was := "has not ended"
		switch status, _ := step["status"].(string); api.StepStatus(status) {
		case api.StepSkipped:
			was = "was skipped"
		case api.StepFailed, api.StepPartial:
			was = "failed"
		case api.StepCompleted:
			was = "completed"
		}
		return fmt.Sprintf("step %s %s and has no output", id, was)
	}
	return ""
}

// guards reports whether an expression asks whether there is something: with has(), or by comparing with null.
func guards(root ast.Expr) (found bool) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.SelectKind:
			found = found || x.AsSelect().IsTestOnly()
		case ast.CallKind:
			call := x.AsCall()
			isNull := func(arg ast.Expr) bool {
				return arg.Kind() == ast.LiteralKind && arg.AsLiteral() == types.NullValue
			}
			found = found || (call.FunctionName() == operators.Equals || call.FunctionName() == operators.NotEquals) &&
				slices.ContainsFunc(call.Args(), isNull)
		}
	}))
	return found
}

// readsSkipped are warnings of steps that read the output of one that its condition may skip, and do not ask before
// whether it was.
func readsSkipped(p *job.Plan) (warnings []string) {
	for i := range p.Steps {
		s := &p.Steps[i]
		asked := map[string]bool{} // the steps that its own condition asks for
		if e, err := compile(s.If); err == nil {
			for id := range e.steps {
				asked[id] = true
			}
		}
		var reads []string
		for _, source := range sources(s) {
			e, err := compile(source)
			if err != nil || e.guarded {
				continue
			}
			for id, fields := range e.steps {
				other := p.Step(id)
				if other != nil && other.If != "" && other.If != s.If && !asked[id] && !slices.Contains(reads, id) &&
					slices.Contains(fields, outputField) && !slices.Contains(fields, "status") {
					reads = append(reads, id)
				}
			}
		}
		slices.Sort(reads)
		for _, id := range reads {
			warnings = append(warnings, fmt.Sprintf("step %s reads the output of %s, which its if may skip: it has none then; "+
				"ask first, as in if: steps.%s.status == \"completed\", or has(…) ? … : …", s.ID, id, id))
		}
	}
	return warnings
}

// sources are the expressions of a step but its condition.
func sources(s *job.PlannedStep) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Output)) {
		list = append(list, s.Output[name])
	}
	texts := func(_, text string) {
		parts, _ := pieces(text) // the definition was checked
		for _, p := range parts {
			if p.source != "" {
				list = append(list, p.source)
			}
		}
	}
	if s.ForEach != nil && s.ForEach.Count == 0 {
		list = append(list, s.ForEach.List)
	}
	if s.Wait != nil && s.Wait.Until != "" {
		list = append(list, s.Wait.Until)
	}
	if s.Approve != nil {
		texts("", s.Approve.Message)
	}
	tasks := []any{}
	if s.Task != nil {
		value, _ := taskValue(s.Task)
		tasks = append(tasks, value)
	}
	if s.Check != nil {
		for _, rule := range s.Check.Rules {
			list = append(list, rule.That)
		}
		if s.Check.Task != nil {
			value, _ := taskValue(s.Check.Task)
			tasks = append(tasks, value)
		}
	}
	walk("", tasks, texts)
	return slices.DeleteFunc(list, func(source string) bool { return !strings.Contains(source, varSteps) })
}
