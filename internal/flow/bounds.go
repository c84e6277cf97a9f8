package flow

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

const (
	// maxPattern bounds a regular expression, in characters and in the parts of its program: a few characters may stand
	// for millions of parts.
	maxPattern = 1000
	// maxCompared bounds the values that == and in look at: a list may hold one list many times, and that again.
	maxCompared = 200_000
)

// compilePattern compiles a small regular expression. size is the cost of matching one character.
func compilePattern(pattern string) (compiled *regexp.Regexp, size int, err error) {
	if len(pattern) > maxPattern {
		return nil, maxPattern, fmt.Errorf("has a regular expression of more than %d characters", maxPattern)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, maxPattern, fmt.Errorf("has a regular expression that is wrong: %w", err)
	}
	if size = patternSize(tree); size > maxPattern {
		return nil, maxPattern, fmt.Errorf("has a regular expression that counts too far, or names too many classes of "+
			"characters: its program may have %d parts", maxPattern)
	}
	compiled, err = regexp.Compile(pattern)
	return compiled, size, err
}

// patternSize estimates how many parts the program of an expression has. Eight ranges of characters count as one part.
func patternSize(tree *syntax.Regexp) int {
	size := 1 + len(tree.Rune)/16
	if tree.Op == syntax.OpLiteral {
		size = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		size += patternSize(sub)
	}
	if tree.Op == syntax.OpRepeat {
		return (size - 1) * max(1, tree.Min, tree.Max)
	}
	return size
}

// guarded is a call of ==, !=, in or matches, which looks at its arguments before it begins: nothing stops it then.
type guarded struct{ interpreter.InterpretableCall }

// guard replaces the guarded calls of a program, and makes calls compute with plain numbers.
func guard(operands map[int64]func(ref.Val) ref.Val) interpreter.InterpretableDecoratorV2 {
	return func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if call, ok := node.(interpreter.InterpretableCall); ok && len(call.Args()) == 2 {
			switch call.Function() {
			case operators.Equals, operators.NotEquals, operators.In, overloads.Matches:
				node = guarded{call}
			}
		}
		if _, constant := node.(interpreter.InterpretableConst); constant {
			return node, nil
		}
		if ready := operands[node.ID()]; ready != nil {
			node = operand{node, ready}
		}
		return node, nil
	}
}

// Eval implements interpreter.Interpretable.
func (g guarded) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, g.Exec)
}

// Exec implements interpreter.InterpretableV2.
func (g guarded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	left := g.Args()[0].Exec(frame)
	if types.IsUnknownOrError(left) {
		return left
	}
	right := g.Args()[1].Exec(frame)
	if types.IsUnknownOrError(right) {
		return right
	}
	result := g.call(left, right)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, g.ID(), g, left, right, result)
	}
	return result
}

func (g guarded) call(left, right ref.Val) ref.Val {
	if g.Function() == overloads.Matches {
		text, isText := left.(types.String)
		pattern, parts, err := compilePattern(textOf(right))
		if !isText || right.Type() != types.StringType {
			return types.MaybeNoSuchOverloadErr(left)
		} else if err != nil {
			return types.WrapErr(err)
		} else if parts*len(text) > maxMatching {
			return types.NewErr("matches a regular expression of %d parts with a text of %d bytes; do it in a task", parts,
				len(text))
		}
		return types.Bool(pattern.MatchString(string(text)))
	}
	if compared(g.Function(), left, right) > maxCompared {
		return types.NewErr("compares more than %d values; do it in a task", maxCompared)
	}
	switch g.Function() {
	case operators.Equals:
		return types.Bool(equal(left, right))
	case operators.NotEquals:
		return types.Bool(!equal(left, right))
	}
	container, ok := right.(traits.Container)
	if !ok {
		return types.MaybeNoSuchOverloadErr(right)
	}
	return contains(container, left)
}

// compared is how many values a comparison looks at, every 1000 bytes of a text being one more; not much more than
// maxCompared is counted.
func compared(function string, a, b ref.Val) int {
	left := maxCompared + 1
	countValues(a, &left)
	if _, isMap := b.(traits.Mapper); !isMap || function != operators.In { // a key is found at once
		countValues(b, &left)
	}
	return maxCompared + 1 - left
}

func countValues(v ref.Val, left *int) {
	if *left--; *left < 0 {
		return
	}
	switch v := v.(type) {
	case types.String:
		*left -= len(v) / 1000
	case traits.Mapper:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			countValues(v.Get(it.Next()), left)
		}
	case traits.Lister:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			countValues(it.Next(), left)
		}
	}
}
