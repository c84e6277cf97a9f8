package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

const (
	// costLimit bounds the evaluation of one expression, in CEL's units: about a tenth of a second of one core.
	// totalLimit and totalTime bound those of one call of an Evaluator's user together; see WithLimit. Time is for what
	// takes longer than it costs.
	costLimit  = 1_000_000
	totalLimit = 10 * costLimit
	totalTime  = 20 * time.Second
	// maxSource bounds an expression in characters, and maxNesting its nesting: checking types takes more than the
	// square of it.
	maxSource  = 4096
	maxNesting = 32
	// maxValue and maxNodes bound what an expression gives, in bytes of text and in values: a list may hold one text
	// many times.
	maxValue = 4 << 20
	maxNodes = 200_000
	// totalGiven bounds what those of one call give together, in values and bytes of text; see WithLimit.
	totalGiven = 16 << 20
)

// The names that expressions may see.
const (
	varInputs  = "inputs"
	varSteps   = "steps"
	varRun     = "run"
	varItem    = "item"
	varIndex   = "index"
	varResult  = "result"
	varResults = "results"
	varFailed  = "failed"
	varEvent   = "event"
)

// environment is CEL with JSON's types; no clock and no randomness.
var environment = func() *cel.Env {
	env, err := cel.NewEnv(append(functionOptions(),
		cel.Variable(varInputs, cel.DynType), cel.Variable(varSteps, cel.DynType), cel.Variable(varRun, cel.DynType),
		cel.Variable(varItem, cel.DynType), cel.Variable(varIndex, cel.IntType),
		cel.Variable(varResult, cel.DynType), cel.Variable(varResults, cel.ListType(cel.DynType)),
		cel.Variable(varFailed, cel.ListType(cel.DynType)), cel.Variable(varEvent, cel.DynType),
		ext.Math(ext.MathVersion(2)), cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxSource), cel.ParserRecursionLimit(maxNesting))...)
	if err != nil {
		panic(err) //nolint:forbidigo // the options above contradict each other: no test would pass
	}
	return env
}()

// expression is a checked CEL text.
type expression struct {
	program cel.Program
	kind    *types.Type
	// names are the variables it reads; steps the steps, and the fields of theirs that it reads ("": another way).
	names []string
	steps map[string][]string
	// inputs are the fields of the inputs that it reads.
	inputs []string
	// statuses are what it compares the statuses of steps with.
	statuses []comparison
	// parsed says that it reads a field of what a command has written, which is text.
	parsed bool
	// guarded says that it asks whether there is something.
	guarded bool
}

// compile checks a CEL text. Its error is one line.
func compile(source string) (*expression, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("is an empty expression")
	}
	checked, issues := environment.Compile(source)
	if err := issues.Err(); err != nil {
		return nil, mistakeIn(source, issues.Errors()[0])
	}
	root := checked.NativeRep().Expr()
	program, err := programOf(checked, operands(root), nil)
	if err != nil {
		return nil, fmt.Errorf("is not valid CEL: %w", err)
	}
	e := &expression{program: program, kind: checked.OutputType(), steps: map[string][]string{},
		guarded: guards(root)}
	e.references(root)
	return e, nil
}

// references notes what the expression reads.
func (e *expression) references(root ast.Expr) {
	parents := map[int64]ast.Expr{}
	local := map[string]bool{} // the variables of map, filter, all and the like
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.ComprehensionKind:
			c := x.AsComprehension()
			local[c.IterVar()], local[c.IterVar2()], local[c.AccuVar()] = true, true, true
		case ast.SelectKind:
			parents[x.AsSelect().Operand().ID()] = x
			e.parsed = e.parsed || ofOutput(x)
		case ast.CallKind:
			call := x.AsCall()
			if call.FunctionName() == "_[_]" {
				parents[call.Args()[0].ID()] = x
			}
			e.statuses = append(e.statuses, comparisons(call)...)
		case ast.IdentKind:
			if !local[x.AsIdent()] {
				e.reference(x, parents)
			}
		}
	}))
}

func (e *expression) reference(x ast.Expr, parents map[int64]ast.Expr) {
	name := x.AsIdent()
	if !slices.Contains(e.names, name) {
		e.names = append(e.names, name)
	}
	first, second := key(parents[x.ID()]), ""
	if parent := parents[x.ID()]; parent != nil {
		second = key(parents[parent.ID()])
	}
	switch {
	case name == varSteps && first != "":
		e.steps[first] = append(e.steps[first], second)
	case name == varInputs && first != "":
		e.inputs = append(e.inputs, first)
	}
}

// key is the constant that a selection or an index reads, if it is one.
func key(x ast.Expr) string {
	if x == nil {
		return ""
	}
	if x.Kind() == ast.SelectKind {
		return x.AsSelect().FieldName()
	}
	if index := x.AsCall().Args()[1]; index.Kind() == ast.LiteralKind {
		if text, ok := index.AsLiteral().Value().(string); ok {
			return text
		}
	}
	return ""
}

// piece is a part of a text: literal text, or an expression.
type piece struct {
	text   string
	source string // of an expression
}

var errUnclosed = errors.New(`has a "${" without its "}"; write "$${" for the characters themselves`)

// pieces cuts a text at its expressions.
func pieces(text string) (list []piece, err error) {
	literal := strings.Builder{}
	for text != "" {
		i := strings.Index(text, "${")
		if i < 0 {
			break
		}
		if i > 0 && text[i-1] == '$' { // "$${": the characters themselves
			literal.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		literal.WriteString(text[:i])
		end := closing(text[i+2:])
		if end < 0 {
			return nil, errUnclosed
		}
		if literal.Len() > 0 {
			list = append(list, piece{text: literal.String()})
			literal.Reset()
		}
		list = append(list, piece{source: text[i+2 : i+2+end]})
		text = text[i+2+end+1:]
	}
	if literal.WriteString(text); literal.Len() > 0 {
		list = append(list, piece{text: literal.String()})
	}
	return list, nil
}

// closing is where the brace that ends an expression stands; braces in strings and of maps do not count.
func closing(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// walk calls do for every text of a JSON value that holds an expression.
func walk(field string, value any, do func(field, text string)) {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "${") {
			do(field, v)
		}
	case []any:
		for i, item := range v {
			walk(fmt.Sprintf("%s[%d]", field, i), item, do)
		}
	case map[string]any:
		for name, item := range v {
			walk(field+"."+name, item, do)
		}
	}
}

// decode reads JSON as CEL sees it: whole numbers are integers, others keep their text.
func decode(data []byte) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return numbers(value), err
}

func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		return numberOf(v)
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	}
	return value
}

// converter counts what it has converted.
type converter struct {
	ctx          context.Context //nolint:containedctx // of the one evaluation that it serves
	nodes, bytes int
	left         int // of the memory that the values may take, in bytes
}

func (c *converter) took() int { return nodeBytes*c.nodes + c.bytes }

// nodeBytes is about what a value takes beside its text.
const nodeBytes = 64

// native is a CEL value as JSON has it.
func (c *converter) native(value ref.Val) (any, error) {
	switch c.nodes++; {
	case c.nodes > maxNodes || c.bytes > maxValue:
		return nil, errors.New("gives more than a task may hold; do it in a task")
	case c.took() > c.left:
		return nil, errors.New("and those before it give more than a run may begin with; pass on where large data is")
	case c.nodes%1000 == 0 && c.ctx.Err() != nil:
		return nil, c.ctx.Err()
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		c.bytes += len(v)
		return v.Value(), nil
	case types.Bytes:
		c.bytes += len(v)
		return v.Value(), nil
	case number:
		c.bytes += len(v.text)
		return v, nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, errors.New("gives a number that is infinite or none, which JSON cannot hold")
		}
		return v.Value(), nil
	case types.Bool, types.Int, types.Uint:
		return v.Value(), nil
	case types.Timestamp, types.Duration:
		return v.ConvertToType(types.StringType).Value(), nil
	case traits.Mapper:
		object := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			name := it.Next()
			text, ok := name.Value().(string)
			if !ok {
				return nil, errors.New("gives a map whose keys are not text")
			}
			var err error
			c.bytes += len(text)
			if object[text], err = c.native(v.Get(name)); err != nil {
				return nil, err
			}
		}
		return object, nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := c.native(it.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	return nil, fmt.Errorf("gives a %s, which JSON cannot hold", value.Type().TypeName())
}
