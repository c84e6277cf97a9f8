package flow

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// CEL's own extensions for texts and lists make values of any size in one step (replace, join, lists.range): no cost
// limit stops that before memory is gone. These do the same within bounds, and count what they read and make.

const (
	// maxText bounds a text that a function makes, in bytes, and maxList the elements of a list.
	maxText = 256 << 10
	maxList = 10_000
	// charge is how many bytes of text cost one of CEL's units.
	charge = 10
)

var (
	errLongText = fmt.Errorf("makes a text of more than %d KiB", maxText>>10)
	errLongList = fmt.Errorf("makes a list of more than %d elements", maxList)
)

// function is one that expressions call on a text, or (range) by itself.
type function struct {
	name   string
	member bool
	args   []*cel.Type
	result *cel.Type
	call   func(args []ref.Val) (any, error)
}

func functions() []function {
	text, whole := cel.StringType, cel.IntType
	texts, numbers := cel.ListType(text), cel.ListType(whole)
	simple := func(name string, do func(string) string) function {
		return function{name, true, []*cel.Type{text}, text, func(args []ref.Val) (any, error) {
			return do(textOf(args[0])), nil
		}}
	}
	return []function{
		simple("trim", strings.TrimSpace), simple("lowerAscii", lowerASCII), simple("upperAscii", upperASCII),
		{"split", true, []*cel.Type{text, text}, texts, func(args []ref.Val) (any, error) {
			parts := strings.SplitN(textOf(args[0]), textOf(args[1]), maxList+1)
			return parts, bounded(len(parts), maxList, errLongList)
		}},
		{"replace", true, []*cel.Type{text, text, text}, text, func(args []ref.Val) (any, error) {
			in, old, with := textOf(args[0]), textOf(args[1]), textOf(args[2])
			if err := bounded(len(in)+strings.Count(in, old)*(len(with)-len(old)), maxText, errLongText); err != nil {
				return nil, err
			}
			return strings.ReplaceAll(in, old, with), nil
		}},
		{"join", true, []*cel.Type{texts, text}, text, join},
		{"indexOf", true, []*cel.Type{text, text}, whole, func(args []ref.Val) (any, error) {
			before, _, found := strings.Cut(textOf(args[0]), textOf(args[1]))
			if !found {
				return -1, nil
			}
			return len([]rune(before)), nil
		}},
		{"substring", true, []*cel.Type{text, whole, whole}, text, func(args []ref.Val) (any, error) {
			runes, from, to := []rune(textOf(args[0])), args[1].Value().(int64), args[2].Value().(int64)
			if from < 0 || to < from || to > int64(len(runes)) {
				return nil, fmt.Errorf("substring(%d, %d) of a text of %d characters", from, to, len(runes))
			}
			return string(runes[from:to]), nil
		}},
		{"lists.range", false, []*cel.Type{whole}, numbers, func(args []ref.Val) (any, error) {
			n := args[0].Value().(int64)
			if n < 0 || n > maxList {
				return nil, errLongList
			}
			list := make([]int64, n)
			for i := range list {
				list[i] = int64(i)
			}
			return list, nil
		}},
	}
}

func bounded(n, most int, err error) error {
	if n > most {
		return err
	}
	return nil
}

func join(args []ref.Val) (any, error) {
	list, between := args[0].(traits.Lister), textOf(args[1])
	var b strings.Builder
	for it := list.Iterator(); it.HasNext() == types.True; {
		part, isText := it.Next().Value().(string)
		if !isText {
			return nil, errors.New("join wants a list of texts")
		}
		if b.Len() > 0 {
			b.WriteString(between)
		}
		if b.WriteString(part); b.Len() > maxText {
			return nil, errLongText
		}
	}
	return b.String(), nil
}

func textOf(v ref.Val) string {
	text, _ := v.Value().(string)
	return text
}

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func upperASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			r += 'A' - 'a'
		}
		return r
	}, s)
}

// functionOptions declare the functions.
func functionOptions() []cel.EnvOption {
	list := functions()
	options := make([]cel.EnvOption, len(list))
	for i, f := range list {
		binding := cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			value, err := f.call(args)
			if err != nil {
				return types.WrapErr(err)
			}
			return types.DefaultTypeAdapter.NativeToValue(value)
		})
		overload := cel.Overload
		if f.member {
			overload = cel.MemberOverload
		}
		options[i] = cel.Function(f.name, overload("mainstay_"+f.name, f.args, f.result, binding))
	}
	return options
}

// zoneCost is what finding a time zone by its name costs: it is read each time.
const zoneCost = 1000

// costs are what calls of the functions cost, beside the one unit of each call. Functions are known by their names and
// by what they are given: where types are not known before, as of inputs, CEL knows no overload, and its own costs
// would be 1.
type costs struct{}

// CallCost counts the texts and lists that a call has read and made.
func (costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	of, cost := textSize, uint64(1)
	switch {
	case function == operators.Add && isList(args[0]): // both are shared: that costs nothing, but who reads them
		cost += min(size(args[0]), size(args[1])) // does not know
		return &cost
	case function == operators.Add && textSize(result) > maxText/charge: // it is made, and none is made of it
		cost = costLimit + 1
		return &cost
	case function == operators.Equals, function == operators.NotEquals, function == operators.In:
		cost += uint64(compared(function, args[0], args[1]))
		return &cost
	case function == overloads.Matches:
		_, parts, _ := compilePattern(textOf(args[1]))
		cost += uint64(parts) * 2
		if !types.IsError(result) { // else nothing was matched
			cost += uint64(parts) * size(args[0]) / 5
		}
		return &cost
	case function == overloads.Contains: // CEL knows the texts
		return nil
	case strings.HasPrefix(function, "get") && len(args) > 1:
		cost += zoneCost
	case strings.HasPrefix(function, "math.@"), strings.HasPrefix(overload, "mainstay_"): // they read lists too
		of = size
	}
	cost += of(result)
	for _, arg := range args {
		cost += of(arg)
	}
	return &cost
}

func isList(v ref.Val) bool {
	_, is := v.(traits.Lister)
	return is
}

// textSize is what reading a text costs; 0 for other values.
func textSize(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) / charge
	case types.Bytes:
		return uint64(len(v)) / charge
	}
	return 0
}

// size is what reading a text, or what is in a list or a map, costs.
func size(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String, types.Bytes:
		return textSize(v)
	case traits.Sizer:
		n, _ := v.Size().Value().(int64)
		return uint64(max(0, n))
	}
	return 0
}
