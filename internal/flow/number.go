package flow

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// number is a JSON number that CEL's integers do not hold: one with a fraction or an exponent, or a larger one. Where
// an expression only passes it on, it keeps its text, digit for digit. Where an expression computes with it, it is a
// double.
type number struct {
	types.Double
	text string
}

// numberOf is a number as expressions see it.
func numberOf(n json.Number) any {
	if whole, err := strconv.ParseInt(n.String(), 10, 64); err == nil && strconv.FormatInt(whole, 10) == n.String() {
		return whole
	}
	double, _ := n.Float64()
	return number{types.Double(double), n.String()}
}

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) { return []byte(n.text), nil }

// Value implements ref.Val.
func (n number) Value() any { return n }

// ConvertToType implements ref.Val.
func (n number) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		return types.String(n.text)
	case types.IntType, types.UintType:
		if n.large() {
			return types.WrapErr(errLargeNumber)
		}
	}
	return n.Double.ConvertToType(t)
}

// large says that a double would be another whole number.
func (n number) large() bool { return !strings.ContainsAny(n.text, ".eE") && n.text != "-0" }

var errLargeNumber = errors.New("computes with a whole number that has more than 64 bits: pass it on as it is, " +
	"or do it in a task")

// plain is what calls are given in place of a number: CEL's functions know its own types.
func plainNumber(v ref.Val) ref.Val {
	n, isNumber := v.(number)
	switch {
	case isNumber && n.large():
		return types.WrapErr(errLargeNumber)
	case isNumber:
		return n.Double
	}
	return v
}

// plainList is a list for calls that compute with what is in it.
func plainList(v ref.Val) ref.Val {
	list, isList := v.(traits.Lister)
	if !isList {
		return plainNumber(v)
	}
	var values []ref.Val
	for it := list.Iterator(); it.HasNext() == types.True; {
		value := plainNumber(it.Next())
		if types.IsError(value) {
			return value
		}
		values = append(values, value)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values)
}

// equal is whether two values are the same: as types.Equal has it, but for numbers.
func equal(a, b ref.Val) bool {
	switch a := a.(type) {
	case traits.Lister:
		b, isList := b.(traits.Lister)
		if !isList || a.Size() != b.Size() {
			return false
		}
		for left, right := a.Iterator(), b.Iterator(); left.HasNext() == types.True; {
			if !equal(left.Next(), right.Next()) {
				return false
			}
		}
		return true
	case traits.Mapper:
		b, isMap := b.(traits.Mapper)
		if !isMap || a.Size() != b.Size() {
			return false
		}
		for it := a.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if value, found := b.Find(key); !found || !equal(a.Get(key), value) {
				return false
			}
		}
		return true
	}
	if x, y := wholeOf(a), wholeOf(b); x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	return types.Equal(double(a), double(b)) == types.True
}

// double is a number as CEL's own type; another value is itself.
func double(v ref.Val) ref.Val {
	if n, isNumber := v.(number); isNumber {
		return n.Double
	}
	return v
}

// wholeOf is the value of an integer; nil: it is none.
func wholeOf(v ref.Val) *big.Int {
	switch v := v.(type) {
	case types.Int:
		return big.NewInt(int64(v))
	case types.Uint:
		return new(big.Int).SetUint64(uint64(v))
	case number:
		if v.large() && len(v.text) <= maxDigits {
			whole, _ := new(big.Int).SetString(v.text, 10)
			return whole
		}
	}
	return nil
}

// contains is whether a list has a value, or a map a key.
func contains(in traits.Container, v ref.Val) ref.Val {
	list, isList := in.(traits.Lister)
	if !isList {
		return in.Contains(double(v))
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		if equal(v, it.Next()) {
			return types.True
		}
	}
	return types.False
}

// passing are the calls that are given numbers as they are: they compare, or convert.
var passing = []string{operators.Conditional, operators.Equals, operators.NotEquals, operators.In,
	overloads.TypeConvertString, overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDyn,
	overloads.TypeConvertType}

// operands are the expressions that calls compute with, and what makes their values ready for that.
func operands(root ast.Expr) map[int64]func(ref.Val) ref.Val {
	found := map[int64]func(ref.Val) ref.Val{}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind || slices.Contains(passing, x.AsCall().FunctionName()) {
			return
		}
		call := x.AsCall()
		args, ready := call.Args(), plainNumber
		switch {
		case call.FunctionName() == operators.Index:
			args = args[1:]
		case call.FunctionName() == overloads.TypeConvertDouble: // who writes it knows what a double holds
			ready = double
		case strings.HasPrefix(call.FunctionName(), "math.@"):
			ready = plainList
		}
		if call.IsMemberFunction() {
			args = append(slices.Clone(args), call.Target())
		}
		for _, arg := range args {
			found[arg.ID()] = ready
		}
	}))
	return found
}

// operand is an expression that a call computes with.
type operand struct {
	interpreter.InterpretableV2
	ready func(ref.Val) ref.Val
}

// Eval implements interpreter.Interpretable.
func (o operand) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, o.Exec)
}

// Exec implements interpreter.InterpretableV2.
func (o operand) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return o.ready(o.InterpretableV2.Exec(frame))
}
