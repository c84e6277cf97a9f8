package httpapi

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// maxMembers bounds the members of an object whose schema does not bound them.
const maxMembers = 10_000

// locatedLevels is how many levels a location names of a value nested too deep: the deeper ones are all alike.
const locatedLevels = 8

// bounds checks JSON text for what costs memory and time: how deep it is nested, how many elements an array has, and
// how many members an object has. It reads the text as it comes and keeps nothing, so it refuses a text before all of
// it is there. Validation checks the values afterwards.
type bounds struct {
	registry huma.Registry
	root     *huma.Schema // nil: anything
	name     string       // of the root, in locations
	outline  api.JSONOutline
	levels   []level
	unknown  []api.ProblemField
	begun    bool // some of the text was read
}

// level is an object or array that is open.
type level struct {
	schema *huma.Schema // nil: anything
	object bool
	count  int
	key    string       // the newest member's
	member *huma.Schema // its schema; nil: anything
}

// Write takes the next piece of the text. Its error is a problem to answer with.
func (b *bounds) Write(piece []byte) (int, error) {
	if err := b.outline.Read(piece, b.mark); err != nil {
		return 0, err
	}
	b.begun = b.begun || len(piece) > 0
	return len(piece), nil
}

func (b *bounds) mark(m api.JSONMark) error {
	switch m.What {
	case '}', ']':
		b.levels = b.levels[:min(len(b.levels), m.Depth)]
		return nil
	case '"':
		if err := b.beginMember(m.Key); err != nil || !m.Twice {
			return err
		}
		return b.refuse(len(b.levels), api.ErrJSONKeyTwice.Error())
	}
	if err := b.beginValue(); err != nil || m.What == 'v' {
		return err
	}
	if m.Depth >= api.MaxJSONDepth {
		return b.refuse(min(len(b.levels), locatedLevels), api.ErrJSONDepth.Error())
	}
	b.levels = append(b.levels, level{schema: b.next(), object: m.What == '{'})
	return nil
}

// next is the schema of the value that begins now; nil: anything.
func (b *bounds) next() *huma.Schema {
	schema := b.root
	if len(b.levels) > 0 {
		in := b.levels[len(b.levels)-1]
		switch {
		case in.object:
			schema = in.member
		case in.schema != nil:
			schema = in.schema.Items
		default:
			schema = nil
		}
	}
	return follow(b.registry, schema)
}

// follow follows references. It returns nil for a schema that takes anything.
func follow(registry huma.Registry, schema *huma.Schema) *huma.Schema {
	for schema != nil && schema.Ref != "" {
		schema = registry.SchemaFromRef(schema.Ref)
	}
	if schema == nil || schema.Type == "" && len(schema.Enum) == 0 {
		return nil
	}
	return schema
}

// beginValue counts an element of an array.
func (b *bounds) beginValue() error {
	if len(b.levels) == 0 || b.levels[len(b.levels)-1].object {
		return nil
	}
	in := &b.levels[len(b.levels)-1]
	in.count++
	if in.schema == nil || in.schema.MaxItems == nil || in.count <= *in.schema.MaxItems {
		return nil
	}
	return b.refuse(len(b.levels)-1, "expected array length <= "+strconv.Itoa(*in.schema.MaxItems))
}

// beginMember counts a member of an object, and notes one that the schema does not know.
func (b *bounds) beginMember(key string) error {
	if len(b.levels) == 0 {
		return nil
	}
	in := &b.levels[len(b.levels)-1]
	in.count++
	in.key, in.member = key, nil
	if in.schema == nil || in.schema.Type != huma.TypeObject {
		return nil
	}
	most := maxMembers
	if in.schema.MaxProperties != nil {
		most = *in.schema.MaxProperties
	}
	if in.count > most {
		return b.refuse(len(b.levels)-1, "expected object with at most "+strconv.Itoa(most)+" properties")
	}
	if known := property(in.schema, key); known != nil {
		in.member = known
		if in.schema.Properties[key] != nil {
			return nil
		}
	}
	switch others := in.schema.AdditionalProperties.(type) {
	case *huma.Schema:
		in.member = cmp.Or(in.member, others)
	case bool:
		if others {
			return nil
		}
		b.unknown = append(b.unknown, api.ProblemField{Location: safeLocation(b.location(len(b.levels))),
			Message: "unexpected property" + meant(key, slices.Collect(maps.Keys(in.schema.Properties)))})
		if len(b.unknown) >= maxFields {
			return newProblem(http.StatusUnprocessableEntity, protocol.CodeInvalidRequest, invalidDetail, b.unknown)
		}
	}
	return nil
}

// meant is what beginMember said of the unknown member at a place; empty: nothing.
func (b *bounds) meant(location string) string {
	for _, field := range b.unknown {
		if field.Location == location {
			return field.Message
		}
	}
	return ""
}

// property is the schema of a member. Other letter case matches too: validation refuses such keys, but encoding/json,
// which reads the text too, accepts them.
func property(schema *huma.Schema, key string) *huma.Schema {
	if known := schema.Properties[key]; known != nil {
		return known
	}
	for name, known := range schema.Properties {
		if strings.EqualFold(name, key) {
			return known
		}
	}
	return nil
}

// location names the place of the first n levels, as body.running[3].
func (b *bounds) location(n int) string {
	var at strings.Builder
	at.WriteString(b.name)
	for _, l := range b.levels[:n] {
		if l.object {
			at.WriteString("." + l.key)
			continue
		}
		at.WriteString("[" + strconv.Itoa(l.count-1) + "]")
	}
	return strings.TrimPrefix(at.String(), ".")
}

// refuse is the problem of the value at the place of the first n levels.
func (b *bounds) refuse(n int, message string) error {
	return newProblem(http.StatusUnprocessableEntity, protocol.CodeInvalidRequest, invalidDetail,
		[]api.ProblemField{{Location: safeLocation(b.location(n)), Message: message}})
}

// humaContext has another name than its method Context, so that it can be embedded.
type humaContext = huma.Context

// boundedBody is a request whose body is held to its bounds as it is read.
type boundedBody struct {
	humaContext
	bounds *bounds
}

// Unwrap gives the adapter the context below.
func (c *boundedBody) Unwrap() huma.Context { return c.humaContext }

// BodyReader implements huma.Context.
func (c *boundedBody) BodyReader() io.Reader {
	body := c.humaContext.BodyReader()
	if body == nil {
		return nil
	}
	return &boundedReader{body: body, context: c}
}

type boundedReader struct {
	body    io.Reader
	context *boundedBody
}

// Read implements io.Reader. It does not read beyond the bound: the connection closes after the answer.
func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if !r.context.bounds.begun && bytes.HasPrefix(p[:n], []byte(textfile.Mark)) {
		copy(p, "   ") // as wide, so that places stay right
	}
	if _, refused := r.context.bounds.Write(p[:n]); refused != nil {
		r.context.SetHeader("Connection", "close")
		return 0, refused
	}
	return n, err
}
