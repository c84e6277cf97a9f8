package httpapi

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/textfile"
)

// MaxBytes names the extension of a schema that bounds the text of an array's element, in bytes.
const MaxBytes = "x-mainstay-max-bytes"

// maxMembers bounds the members of an object whose schema does not bound them.
const maxMembers = 10_000

// locatedLevels is how many levels a location names of what is nested too deep: those below it are all alike.
const locatedLevels = 8

// bounds holds JSON text to what costs memory and time: whether it is an array or an object, how deep it is nested, how
// many elements an array has and how large they are, and how many members an object has. It reads the text as it comes
// and keeps nothing of it, so too much is refused before it is there. Whether the values are right, validation says
// afterwards.
type bounds struct {
	registry huma.Registry
	root     *huma.Schema // nil: anything
	name     string       // of the root, in locations
	outline  fleet.JSONOutline
	levels   []level
	unknown  []protocol.ProblemField
	begun    bool    // the outermost object or array has begun
	ended    bool    // the outermost value has, or is text, a number or a word
	end      int     // the offset behind the outermost object or array; 0: it has not ended
	read     int     // bytes before this piece
	element  element // the newest that has a bound
}

// element is one of an array, whose text is bounded.
type element struct {
	most  int // bytes; 0: it has ended
	end   int // the offset behind the last byte that it may have
	depth int // how many levels are around it
}

// level is an object or array that is open.
type level struct {
	schema *huma.Schema // nil: anything
	object bool
	count  int
	key    string       // the newest member's
	member *huma.Schema // its schema; nil: anything
}

// trailing is the error for what follows the outermost value, with the offset of its first byte.
type trailing int

func (trailing) Error() string { return "there is more than one JSON value" }

// Write takes the next piece of the text. Its error is a problem to answer with, or trailing.
func (b *bounds) Write(piece []byte) (int, error) {
	if err := b.outline.Read(piece, b.mark); err != nil {
		return 0, err
	}
	if b.end > 0 {
		after := piece[max(0, b.end-b.read):]
		if left := bytes.TrimLeft(after, " \t\r\n"); len(left) > 0 {
			return 0, trailing(b.read + len(piece) - len(left))
		}
	}
	b.read += len(piece)
	return len(piece), b.measure(b.read)
}

// measure refuses an element that is open after so many bytes of the text and larger than it may be. Where text and
// numbers end there is no mark, so what is between them and the next counts if a piece ends there.
func (b *bounds) measure(bytes int) error {
	if b.element.most == 0 || bytes <= b.element.end {
		return nil
	}
	return b.refuse(b.element.depth, "expected at most "+strconv.Itoa(b.element.most)+" bytes")
}

func (b *bounds) mark(m fleet.JSONMark) error {
	ends := m.What == '}' || m.What == ']'
	if m.Depth == 0 {
		if b.ended {
			return trailing(m.Offset)
		}
		b.ended = ends || m.What == 'v'
		if ends {
			b.end = m.Offset + 1
		}
	}
	if m.Depth > b.element.depth || m.Depth == b.element.depth && ends {
		if err := b.measure(m.Offset + 1); err != nil {
			return err
		}
	}
	switch m.What {
	case '}', ']':
		b.levels = b.levels[:min(len(b.levels), m.Depth)]
		if m.Depth <= b.element.depth {
			b.element = element{}
		}
		return nil
	case '"':
		if err := b.beginMember(m.Key); err != nil || !m.Twice {
			return err
		}
		return b.refuse(len(b.levels), fleet.ErrJSONKeyTwice.Error())
	}
	if err := b.beginValue(m); err != nil || m.What == 'v' {
		return err
	}
	if m.Depth >= fleet.MaxJSONDepth {
		return b.refuse(min(len(b.levels), locatedLevels), fleet.ErrJSONDepth.Error())
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

// referred follows references.
func referred(registry huma.Registry, schema *huma.Schema) *huma.Schema {
	for schema != nil && schema.Ref != "" {
		schema = registry.SchemaFromRef(schema.Ref)
	}
	return schema
}

// follow follows references. It returns nil for a schema that takes anything.
func follow(registry huma.Registry, schema *huma.Schema) *huma.Schema {
	schema = referred(registry, schema)
	if schema == nil || schema.Type == "" && len(schema.Enum) == 0 {
		return nil
	}
	return schema
}

// beginValue refuses an object in place of an array and the other way around, as the text itself, and counts an element
// of an array.
func (b *bounds) beginValue(m fleet.JSONMark) error {
	if !b.begun && m.What != 'v' {
		b.begun = true
		switch root := follow(b.registry, b.root); {
		case root == nil:
		case m.What == '{' && root.Type == huma.TypeArray:
			return b.refuse(0, validation.MsgExpectedArray)
		case m.What == '[' && root.Type == huma.TypeObject:
			return b.refuse(0, validation.MsgExpectedObject)
		}
	}
	if len(b.levels) == 0 || b.levels[len(b.levels)-1].object {
		return nil
	}
	in := &b.levels[len(b.levels)-1]
	in.count++
	if most := b.bytesOf(in.schema); most > 0 {
		b.element = element{most: most, end: m.Offset + most, depth: m.Depth}
	}
	if in.schema == nil || in.schema.MaxItems == nil || in.count <= *in.schema.MaxItems {
		return nil
	}
	return b.refuse(len(b.levels)-1, "expected array length <= "+strconv.Itoa(*in.schema.MaxItems))
}

// bytesOf is how many bytes an element of an array may have; 0: any number.
func (b *bounds) bytesOf(array *huma.Schema) int {
	if array == nil || array.Items == nil {
		return 0
	}
	most, _ := referred(b.registry, array.Items).Extensions[MaxBytes].(int)
	return most
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
		b.unknown = append(b.unknown, protocol.ProblemField{Location: safeLocation(b.location(len(b.levels))),
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

// property is the schema of a member. Letters of another case count too: validation refuses them, and encoding/json,
// which reads the text all the same, does not tell them apart.
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

// refuse names what is wrong with the value at the place of the first n levels.
func (b *bounds) refuse(n int, message string) error {
	return newProblem(http.StatusUnprocessableEntity, protocol.CodeInvalidRequest, invalidDetail,
		[]protocol.ProblemField{{Location: safeLocation(b.location(n)), Message: message}})
}

// humaContext has another name than its method Context, so that it can be embedded.
type humaContext = huma.Context

// boundedBody is a request whose body is held to its bounds as it is read.
type boundedBody struct {
	humaContext
	bounds *bounds
}

// Unwrap tells the adapter what is below.
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

// Read implements io.Reader. What follows too much is not read any more: the connection closes after the answer. The
// first byte that follows the outermost value is passed on, so that whoever reads the text says where it is.
func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if r.context.bounds.read == 0 && bytes.HasPrefix(p[:n], []byte(textfile.Mark)) {
		copy(p, "   ") // as wide, so that places stay right
	}
	_, refused := r.context.bounds.Write(p[:n])
	if refused == nil {
		return n, err
	}
	r.context.SetHeader("Connection", "close")
	if at, ok := errors.AsType[trailing](refused); ok {
		return int(at) - r.context.bounds.read + 1, io.EOF
	}
	return 0, refused
}
