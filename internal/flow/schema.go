package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"mainstay.dev/sdk/api"
)

// noLoader refuses references to other documents.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema cannot refer to another document; write it out")
}

// compileSchema reads a JSON Schema; nil for none. parts is its size.
func compileSchema(schema json.RawMessage) (compiled *jsonschema.Schema, parts int, err error) {
	if len(schema) == 0 || string(schema) == "null" {
		return nil, 0, nil
	}
	value, err := decodeForSchema(schema)
	if err != nil {
		return nil, 0, err
	}
	if parts, err = (&schemaSize{root: value, of: map[string]int{}}).count(value); err != nil {
		return nil, 0, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.AssertFormat()
	matching, left := 0, maxPatterns
	compiler.UseRegexpEngine(func(text string) (jsonschema.Regexp, error) {
		if left <= 0 { // also while a value is checked: a schema may ask that its texts are patterns
			return nil, fmt.Errorf("and those before it have more than %d parts in all", maxPatterns)
		}
		compiled, size, err := compilePattern(text)
		left -= max(size, leastPattern)
		return &pattern{compiled, size, &matching}, err
	})
	if err := compiler.AddResource(schemaName, value); err != nil {
		return nil, 0, err
	}
	compiled, err = compiler.Compile(schemaName)
	return compiled, parts, schemaError(err)
}

const (
	// maxPatterns bounds the parts of a schema's regular expressions together. The library compiles each of them twice.
	maxPatterns = 10 * maxPattern
	// leastPattern is what each counts at least.
	leastPattern = 50
	// maxMatching bounds the work of all of them on one value, or of one in an expression: the parts of each times the
	// characters of each text.
	maxMatching = 20_000_000
	// maxChecked bounds the parts of a schema times the values that it is checked against: each may be an error of some
	// hundred bytes, and 16 more for each level of its place, of which freeLevels cost nothing. Where there are more
	// than manyChecked, one value is checked at a time.
	maxChecked  = 1_000_000
	manyChecked = maxChecked / 10
	freeLevels  = 8
	// checkCost is what one costs, in CEL's units.
	checkCost = 5
)

// many is held while much is checked.
var many sync.Mutex

// pattern is a regular expression of a schema. It matches no text for which the work on one value does not suffice.
type pattern struct {
	*regexp.Regexp
	size  int
	spent *int // by all patterns of the schema
}

func (p *pattern) MatchString(text string) bool {
	*p.spent += p.size * len(text)
	return *p.spent <= maxMatching && p.Regexp.MatchString(text)
}

// validate checks JSON against a schema; no schema allows everything.
func validate(ctx context.Context, schema, text json.RawMessage) error {
	compiled, parts, err := compileSchema(schema)
	if err != nil || compiled == nil {
		return err
	}
	value, err := decodeForSchema(text)
	if err != nil {
		return err
	}
	return validateValue(ctx, compiled, parts, value)
}

// validateValue checks a value against a schema with this number of parts.
func validateValue(ctx context.Context, compiled *jsonschema.Schema, parts int, value any) error {
	values, levels := jsonValues(value)
	checks := parts * values * max(freeLevels, levels) / freeLevels
	if checks > maxChecked {
		return errors.New("there are too many values in it for a schema of this size: check them in a task")
	}
	if err := spentBy(ctx).take(uint64(checks) * checkCost); err != nil {
		return err
	}
	if checks > manyChecked {
		many.Lock()
		defer many.Unlock()
	}
	return compiled.Validate(value)
}

// jsonValues is how many values JSON holds, itself being one, and how many levels.
func jsonValues(value any) (n, levels int) {
	n = 1
	add := func(item any) {
		inside, below := jsonValues(item)
		n, levels = n+inside, max(levels, below)
	}
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			add(item)
		}
	case map[string]any:
		for _, item := range v {
			add(item)
		}
	}
	return n, levels + 1
}

// schemaName is what the schema is called in itself. It is no file's name: errors would have the folder.
const schemaName = "urn:inputs"

// maxSchemaParts bounds a schema whose references are written out: a few of them may stand for any number of parts, and
// each is checked against the inputs.
const maxSchemaParts = 1000

// otherReferences change or extend what a $ref names.
var otherReferences = []string{"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}

// schemaSize counts the parts of a schema.
type schemaSize struct {
	root any
	of   map[string]int // by reference; 0: it is being counted
}

func (s *schemaSize) count(value any) (parts int, err error) {
	var inside []any
	switch v := value.(type) {
	case []any:
		inside = v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text, isText := v[name].(string)
			switch {
			case isText && name == "$ref":
				n, err := s.reference(text)
				if err != nil {
					return 0, err
				}
				parts += n
			case isText && slices.Contains(otherReferences, name):
				return 0, fmt.Errorf("%s is not supported; a $ref like #/$defs/name is", name)
			case isText && name == "$schema" && strings.Contains(text, "draft-04"): // its id changes what a $ref names
				return 0, errors.New("$schema is draft-04, which is not supported; draft-06 and later are")
			}
			inside = append(inside, v[name])
		}
	}
	parts++
	for _, v := range inside {
		n, err := s.count(v)
		if parts += n; err != nil || parts > maxSchemaParts {
			return 0, cmp.Or(err, fmt.Errorf("has more than %d parts with its references written out", maxSchemaParts))
		}
	}
	return parts, nil
}

func (s *schemaSize) reference(ref string) (int, error) {
	if n, known := s.of[ref]; known {
		if n == 0 {
			return 0, fmt.Errorf("$ref %s refers to itself", ref)
		}
		return n, nil
	}
	path, local := strings.CutPrefix(ref, "#/")
	local = local && !strings.ContainsAny(path, "~%") // these stand for other characters
	target := s.root
	for _, name := range strings.Split(path, "/") {
		object, _ := target.(map[string]any)
		if target = object[name]; target == nil || !local {
			return 0, fmt.Errorf("$ref %s is not like #/$defs/name, or names nothing", ref)
		}
	}
	s.of[ref] = 0
	n, err := s.count(target)
	s.of[ref] = n
	return n, err
}

func decodeForSchema(data json.RawMessage) (any, error) {
	if len(data) == 0 {
		data = json.RawMessage(`{}`)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return value, plainNumbers("", value)
}

// maxDigits bounds the text of a number.
const maxDigits = 100

// plainNumbers refuses numbers that the library would write out with millions of digits.
func plainNumbers(at string, value any) error {
	switch v := value.(type) {
	case json.Number:
		if _, err := v.Float64(); err != nil || len(v) > maxDigits {
			return errors.New(placed(at, fmt.Sprintf("the number is too large, or has more than %d characters", maxDigits)))
		}
	case []any:
		for i, item := range v {
			if err := plainNumbers(below(at, strconv.Itoa(i)), item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := plainNumbers(below(at, name), v[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// below is the place of a part of a value, and placed what is wrong there.
func below(at, part string) string { return strings.TrimPrefix(at+"."+part, ".") }

func placed(at, what string) string {
	if at == "" {
		return what
	}
	return api.Shorten(at, maxTold) + ": " + what
}

// maxWrong and maxTold bound the report about one value: the mistakes, and the bytes of each.
const (
	maxWrong = 10
	maxTold  = 1000
)

// schemaErrors are all causes of an error, each as schemaError has it.
func schemaErrors(err error) (all []string) {
	var wrong *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong) || len(wrong.Causes) == 0:
		return []string{schemaError(err).Error()}
	}
	for _, cause := range wrong.Causes {
		if all = append(all, schemaErrors(cause)...); len(all) >= maxWrong {
			return all[:maxWrong] // no others are written out: each may repeat much of the schema
		}
	}
	return all
}

// schemaError is the first cause of an error, in one line with the place in the value.
func schemaError(err error) error {
	var wrong *jsonschema.ValidationError
	var inSchema *jsonschema.SchemaValidationError
	if errors.As(err, &inSchema) {
		errors.As(inSchema.Err, &wrong)
	} else {
		errors.As(err, &wrong)
	}
	if wrong == nil {
		return err
	}
	for len(wrong.Causes) > 0 {
		wrong = wrong.Causes[0]
	}
	what := said(wrong.ErrorKind)
	if len(what) > maxTold {
		what = strings.ToValidUTF8(what[:maxTold/2]+"…"+what[len(what)-maxTold/2:], "")
	}
	if k, ok := wrong.ErrorKind.(*kind.Type); ok && slices.Contains(k.Want, "string") && k.Got != "object" &&
		k.Got != "array" {
		what += "; write text in quotes"
	}
	return errors.New(placed(strings.Join(wrong.InstanceLocation, "."), what))
}

// printer writes numbers without a comma after thousands.
var printer = message.NewPrinter(language.MustParse("en-US-u-va-posix"))

// said is what the library says of a mistake, but with all digits of a number that is out of bounds.
func said(mistake jsonschema.ErrorKind) string {
	var got, want *big.Rat
	switch k := mistake.(type) {
	case *kind.Minimum:
		got, want = k.Got, k.Want
	case *kind.Maximum:
		got, want = k.Got, k.Want
	case *kind.ExclusiveMinimum:
		got, want = k.Got, k.Want
	case *kind.ExclusiveMaximum:
		got, want = k.Got, k.Want
	case *kind.MultipleOf:
		got, want = k.Got, k.Want
	default:
		return mistake.LocalizedString(printer)
	}
	return fmt.Sprintf("%s: got %s, want %s", mistake.KeywordPath()[0], digits(got), digits(want))
}

// digits is a number as people write it.
func digits(r *big.Rat) string {
	places, _ := r.FloatPrec()
	if text := r.FloatString(places); len(text) <= maxDigits {
		return text
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
