package flow

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"mainstay.dev/sdk/api"
)

// comparison is a comparison of a step's status with a text.
type comparison struct {
	step  string
	with  api.StepStatus
	equal bool // it asks whether they are the same
}

// comparisons are those that a call makes.
func comparisons(call ast.CallExpr) (list []comparison) {
	name, args := call.FunctionName(), call.Args()
	if name != operators.Equals && name != operators.NotEquals && name != operators.In {
		return nil
	}
	step, others := statusOf(args[0]), args[1:]
	if step == "" && name != operators.In {
		step, others = statusOf(args[1]), args[:1]
	}
	if step != "" && name == operators.In && others[0].Kind() == ast.ListKind {
		others = others[0].AsList().Elements()
	}
	for _, other := range others {
		if other.Kind() != ast.LiteralKind {
			continue
		}
		if text, ok := other.AsLiteral().Value().(string); ok && step != "" {
			list = append(list, comparison{step, api.StepStatus(text), name == operators.Equals})
		}
	}
	return list
}

// statusOf is the step whose status an expression is; "": it is none.
func statusOf(x ast.Expr) string {
	if !reads(x) || key(x) != "status" {
		return ""
	}
	step := owner(x)
	if !reads(step) || owner(step).Kind() != ast.IdentKind || owner(step).AsIdent() != varSteps {
		return ""
	}
	return key(step)
}

// reads reports whether an expression reads a field of something.
func reads(x ast.Expr) bool {
	return x.Kind() == ast.SelectKind || x.Kind() == ast.CallKind && x.AsCall().FunctionName() == operators.Index
}

// owner is what it reads the field of.
func owner(x ast.Expr) ast.Expr {
	if x.Kind() == ast.SelectKind {
		return x.AsSelect().Operand()
	}
	return x.AsCall().Args()[0]
}

// ofOutput reports whether an expression reads a field of result.stdout or result.stderr.
func ofOutput(x ast.Expr) bool {
	from := owner(x)
	return reads(from) && (key(from) == "stdout" || key(from) == "stderr") && owner(from).Kind() == ast.IdentKind &&
		owner(from).AsIdent() == varResult
}

// status refuses comparisons that can never hold: with what no status is, and with one that keeps a step after it from
// beginning.
func (c *checker) status(field, step string, compared comparison) {
	of, s := c.definition.Steps[compared.step], c.definition.Steps[step]
	switch {
	case of == nil: // reported
	case !compared.with.Known():
		c.report(field, `compares the status of %s with %q: a step is completed, partial, skipped or failed`,
			compared.step, compared.with)
	case compared.equal && s != nil && s.Join.All() && slices.Contains(s.After, compared.step) &&
		!compared.with.Through():
		c.report(field, `is never true: a step after %[1]s begins only once that is completed, partial or skipped; to go on `+
			`after its failure, write on_failure: partial in %[1]s, and compare with "partial"`, compared.step)
	}
}
