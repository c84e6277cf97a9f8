package flow

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// noSuchOverload begins CEL's error for an operator or a function that does not take the values that it gets.
const noSuchOverload = "no such overload"

// typeWords are CEL's types for people.
var typeWords = map[string]string{"int": "a whole number", "uint": "an unsigned number",
	"double": "a number with a fraction", "string": "text", "bool": "true or false", "null_type": "null",
	"list": "a list", "map": "a map", "bytes": "bytes", "timestamp": "a time", "duration": "a duration",
	"dyn":                       "a value",
	"google.protobuf.Timestamp": "a time", "google.protobuf.Duration": "a duration"}

func typeWord(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return cmp.Or(typeWords[name], name)
}

// mismatch says that an operator or a function does not take values of these types.
func mismatch(function string, got []string) string {
	sign, isOperator := operators.FindReverse(function)
	name := cmp.Or(sign, map[string]string{operators.Conditional: "? :", operators.Index: "[ ]",
		"math.@max": "math.greatest", "math.@min": "math.least"}[function], function)
	if function == operators.Conditional {
		got = got[:1] // of which it depends
	}
	hint, words := "", make([]string, len(got))
	for i, kind := range got {
		words[i] = typeWord(kind)
		if other := got[(i+1)%len(got)]; kind == "double" && other == "int" && isOperator && function != operators.Modulo {
			hint = "; write double(…) around the whole number"
		} else if kind == "string" && other != kind && function == operators.Add {
			hint = "; write string(…) around what is no text"
		}
	}
	return fmt.Sprintf("%s does not take (%s)%s", name, strings.Join(words, ", "), hint)
}

var (
	staticMismatch = regexp.MustCompile(`^found no matching overload for '(.+?)' applied to '(.*)'`)
	// aType is a type as CEL writes it: list(int), map(string, list(dyn)).
	aType = regexp.MustCompile(`[\w.]*\w(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?`)
)

// otherMismatches are CEL's other errors about types, and what they say to people.
var otherMismatches = []struct {
	pattern *regexp.Regexp
	text    string // $1 is what is first in parentheses, as words for a type; $2 what is last
}{
	{regexp.MustCompile(`^type conversion error from '(.+)' to '(.+)'`), "$2(…) does not take this $1"},
	{regexp.MustCompile(`^unsupported index type '(.+)' in list`), "[ ] of a list takes a whole number, and gets $1"},
	{regexp.MustCompile(`^got 'types\.(.+)', expected iterable type`),
		"map, filter, all and the like take a list or a map, and get $1"},
	{regexp.MustCompile(`^index out of bounds: (.+)`), "there is no item $1 in the list; the first is 0"},
}

// otherMismatch is one of them for people; "": it is none.
func otherMismatch(text string) string {
	for _, m := range otherMismatches {
		if found := m.pattern.FindStringSubmatch(text); found != nil {
			first, last := typeWord(strings.ToLower(found[1])), found[len(found)-1]
			return strings.NewReplacer("$1", first, "$2", last).Replace(m.text)
		}
	}
	return ""
}

// mismatchOf evaluates an expression once more, to find the call that fails for the types of what it gets: CEL's own
// error names neither.
func mismatchOf(ctx context.Context, source string, facts Facts) string {
	checked, issues := environment.Compile(source)
	if issues.Err() != nil {
		return ""
	}
	tree := checked.NativeRep()
	ready, seen, calls := operands(tree.Expr()), map[int64]string{}, map[int64]ast.CallExpr{}
	argsOf := func(call ast.CallExpr) []ast.Expr {
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind || x.AsCall().FunctionName() == operators.Index {
			return
		}
		calls[x.ID()] = x.AsCall()
		for _, arg := range argsOf(x.AsCall()) {
			first := ready[arg.ID()]
			ready[arg.ID()] = func(v ref.Val) ref.Val {
				if first != nil {
					v = first(v)
				}
				seen[arg.ID()] = v.Type().TypeName()
				return v
			}
			if arg.Kind() == ast.LiteralKind {
				seen[arg.ID()] = arg.AsLiteral().Type().TypeName()
			}
		}
	}))
	program, err := programOf(checked, ready, func(node interpreter.InterpretableV2) interpreter.InterpretableV2 {
		call, isCall := calls[node.ID()]
		if !isCall {
			return node
		}
		return operand{node, func(v ref.Val) ref.Val {
			if err, failed := v.(*types.Err); !failed || !strings.HasPrefix(err.Error(), noSuchOverload) {
				return v
			}
			var got []string
			for _, arg := range argsOf(call) {
				got = append(got, cmp.Or(seen[arg.ID()], "dyn"))
			}
			return types.NewErr("%s (column %d of the expression)", mismatch(call.FunctionName(), got),
				tree.SourceInfo().GetStartLocation(node.ID()).Column()+1)
		}}
	})
	if err != nil {
		return ""
	}
	if _, _, err = program.ContextEval(ctx, map[string]any(facts)); err == nil ||
		strings.HasPrefix(err.Error(), noSuchOverload) {
		return ""
	}
	return err.Error()
}

// programOf makes a program that computes with plain numbers; more changes its nodes further.
func programOf(
	checked *cel.Ast, ready map[int64]func(ref.Val) ref.Val,
	more func(interpreter.InterpretableV2) interpreter.InterpretableV2,
) (cel.Program, error) {
	standard := guard(ready)
	return environment.Program(checked, cel.CostLimit(costLimit), cel.CostTracking(costs{}),
		cel.InterruptCheckFrequency(100),
		cel.CustomDecoratorV2(func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			node, err := standard(node)
			if err != nil || more == nil {
				return node, err
			}
			return more(node), nil
		}))
}
