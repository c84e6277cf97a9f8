package inbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// binaryPrefix begins the headers with the attributes of an event in binary mode.
const binaryPrefix = "Ce-"

// read reads the events of a request: one in structured or binary mode, or a batch. It refuses bodies that are too
// large or nested too deep before it parses them.
func read(
	ctx context.Context, header http.Header, body []byte,
) (events []api.Envelope, batch bool, err error) {
	mode := cehttp.NewMessage(header, nil).ReadEncoding()
	if isJSON := mode == binding.EncodingStructured || mode == binding.EncodingBatch; isJSON {
		if body, err = textfile.Clean(body); err != nil {
			return nil, false, rest.Invalid("body", err)
		}
		if err := api.CheckJSONDepth(body, api.MaxJSONDepth); err != nil {
			return nil, false, rest.Invalid("body", err)
		}
		if !json.Valid(body) {
			return nil, false, rest.Invalid("body", errors.New("is not JSON, which its Content-Type says it is"))
		}
	}
	if json.Valid(body) {
		if err := keyTwice(body); err != nil {
			return nil, false, err
		}
	}
	parts := []json.RawMessage{body}
	switch mode {
	case binding.EncodingBatch:
		if json.Unmarshal(body, &parts) != nil || len(parts) == 0 || len(parts) > mesh.MaxEvents {
			return nil, true, rest.Invalid("body", fmt.Errorf("must be a list of 1 to %d events", mesh.MaxEvents))
		}
		batch = true
	case binding.EncodingStructured, binding.EncodingBinary:
	default:
		return nil, false, rest.Invalid("header.Content-Type", errors.New("send a CloudEvent 1.0: in structured mode "+
			"as application/cloudevents+json, a batch as application/cloudevents-batch+json, or in binary mode with "+
			"ce- headers"))
	}
	var wrong wrongEvents
	for i, part := range parts {
		e, err := envelope(ctx, header, part, mode)
		if errors.Is(err, api.ErrTooLarge) {
			return nil, batch, httpapi.Problem(protocol.CodePayloadTooLarge, fmt.Sprintf(
				"event %d is larger than 256 KiB; none was taken", i+1))
		}
		wrong.add(i, batch, err)
		events = append(events, e)
	}
	return events, batch, wrong.refusal(batch)
}

// wrongEvents lists the errors in the events of a request.
type wrongEvents []api.ProblemField

func (w *wrongEvents) add(i int, batch bool, err error) {
	if err == nil {
		return
	}
	at := "body"
	if batch {
		at = fmt.Sprintf("body[%d]", i)
	}
	*w = append(*w, api.ProblemField{Location: at, Message: err.Error()})
}

// refusal says that none of the events is taken; nil where nothing is wrong.
func (w wrongEvents) refusal(batch bool) error {
	switch {
	case len(w) == 0:
		return nil
	case !batch:
		return httpapi.InvalidField(w[0].Location, w[0].Message)
	}
	return httpapi.Problem(protocol.CodeInvalidRequest, fmt.Sprintf("none of the batch was taken: %s not valid; "+
		"send the others without them; errors says where", api.Count(len(w), "event")+map[bool]string{
		true: " is", false: " are"}[len(w) == 1]), w...)
}

// decoded is the value of an attribute's header, as the HTTP binding of CloudEvents encodes it: without quotes, and
// then decoded as in URLs.
func decoded(values []string) ([]string, error) {
	if len(values) != 1 {
		return nil, errors.New("is there more than once")
	}
	text, err := unquoted(values[0])
	if err != nil {
		return nil, err
	}
	if text, err = url.PathUnescape(text); err != nil {
		return nil, errors.New("is not percent-encoded as CloudEvents asks for: write % as %25")
	}
	if textfile.Check(text) != nil {
		return nil, errors.New("is not UTF-8")
	}
	return []string{text}, nil
}

// unquoted is the content of a quoted string of HTTP; any other text stays as it is.
func unquoted(text string) (string, error) {
	rest, quoted := strings.CutPrefix(text, `"`)
	if !quoted {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"' && i == len(rest)-1:
			return b.String(), nil
		case c == '"':
			return "", errors.New("goes on after its closing quote")
		case c == '\\' && i+1 < len(rest):
			i++
		}
		b.WriteByte(rest[i])
	}
	return "", errors.New("has no closing quote")
}

// keyTwice refuses JSON that has an object with a repeated key.
func keyTwice(body []byte) error {
	if twice, found := errors.AsType[*api.FieldError](api.CheckJSONKeys(body)); found {
		return httpapi.InvalidField(strings.Replace("body."+twice.Field, ".[", "[", 1), twice.Err.Error())
	}
	return nil
}

// attributesOnly is an event in structured mode with an empty object in place of data that is no text: the library
// would refuse numbers that it cannot hold, and data is kept as it was received.
func attributesOnly(body []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	if data := members["data"]; len(data) > 0 && data[0] != '"' && string(data) != "null" {
		members["data"] = json.RawMessage("{}")
	}
	return json.Marshal(members)
}

// missing lists the required attributes that this event lacks.
func missing(header http.Header, body []byte, mode binding.Encoding) (names []string) {
	var members map[string]json.RawMessage
	if mode != binding.EncodingBinary {
		_ = json.Unmarshal(body, &members) // a body that is no object has no members
	}
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if members[name] == nil && len(header.Values(binaryPrefix+name)) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// envelope reads one event.
func envelope(
	ctx context.Context, header http.Header, body []byte, mode binding.Encoding,
) (e api.Envelope, err error) {
	if len(body) > mesh.MaxEventBytes {
		return e, api.ErrTooLarge
	}
	e = api.Envelope{ContentType: event.ApplicationCloudEventsJSON, Body: body, Attributes: map[string]string{}}
	var read *event.Event
	if mode == binding.EncodingBinary {
		e.ContentType, e.Headers = header.Get(cehttp.ContentType), map[string]string{}
		header = header.Clone()
		for name, values := range header {
			if !strings.HasPrefix(name, binaryPrefix) {
				continue
			}
			e.Headers[name] = values[0]
			if header[name], err = decoded(values); err != nil {
				return e, fmt.Errorf("header %s %w", strings.ToLower(name), err)
			}
		}
		if json.Valid(body) {
			err = api.CheckJSONDepth(body, api.MaxJSONDepth)
		}
		if err == nil {
			message := cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(body)))
			read, err = binding.ToEvent(ctx, message)
		}
	} else if body, err = attributesOnly(body); err == nil {
		read = &event.Event{}
		err = json.Unmarshal(body, read)
	}
	switch missing := missing(header, body, mode); {
	case len(missing) > 0:
		return e, fmt.Errorf("is no CloudEvent 1.0: it lacks %s", strings.Join(missing, ", "))
	case err != nil:
		return e, errors.New("is no valid CloudEvent 1.0: an attribute is not of its form; specversion, id and type are " +
			"text, source is a URI, time is as in RFC 3339, and others are text, whole numbers, true or false")
	case read.SpecVersion() != event.CloudEventsVersionV1:
		return e, errors.New("specversion must be 1.0")
	case read.Validate() != nil:
		return e, errors.New("is no valid CloudEvent 1.0: id, source and type must not be empty, time is as in " +
			"RFC 3339, and names of attributes are lower-case letters and digits")
	}
	for name, value := range map[string]string{"id": read.ID(), "source": read.Source(), "type": read.Type(),
		"subject": read.Subject(), "dataschema": read.DataSchema(), "datacontenttype": read.DataContentType()} {
		if value != "" {
			e.Attributes[name] = value
		}
	}
	if at := read.Time(); !at.IsZero() {
		e.Attributes["time"] = types.FormatTime(at)
	}
	for name, value := range read.Extensions() {
		if e.Attributes[name], err = types.Format(value); err != nil {
			return e, errors.New("has an attribute that is neither text, a number, a time, true nor false")
		}
	}
	mesh.Complete(&e)
	if data := mesh.DataOf(&e); data != nil { // the envelope has it in base64, so its depth was not checked
		err = api.CheckJSONDepth(data, api.MaxJSONValueDepth)
	}
	return e, err
}
