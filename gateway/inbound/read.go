package inbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/mesh"
	"mainstay.dev/mainstay/protocol"
)

// binaryPrefix begins the headers with the attributes of an event in binary mode.
const binaryPrefix = "Ce-"

// read reads the events of a request: one in structured or binary mode, or a batch. What is too large or nested too
// deep is refused before it is parsed.
func read(
	ctx context.Context, header http.Header, body []byte,
) (events []mesh.Envelope, batch bool, err error) {
	mode := cehttp.NewMessage(header, nil).ReadEncoding()
	if isJSON := mode == binding.EncodingStructured || mode == binding.EncodingBatch; isJSON {
		if err := fleet.CheckJSONDepth(body, fleet.MaxJSONDepth); err != nil {
			return nil, false, rest.Invalid("body", err)
		}
		if !json.Valid(body) {
			return nil, false, rest.Invalid("body", errors.New("is not JSON, which its Content-Type says it is"))
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
	for i, part := range parts {
		e, err := envelope(ctx, header, part, mode)
		if err != nil {
			at := "body"
			if batch {
				at = fmt.Sprintf("body[%d]", i)
			}
			if len(part) > mesh.MaxEventBytes {
				return nil, batch, httpapi.Problem(protocol.CodePayloadTooLarge, "an event is larger than 256 KiB")
			}
			return nil, batch, rest.Invalid(at, err)
		}
		events = append(events, e)
	}
	return events, batch, nil
}

// envelope reads one event.
func envelope(
	ctx context.Context, header http.Header, body []byte, mode binding.Encoding,
) (e mesh.Envelope, err error) {
	if len(body) > mesh.MaxEventBytes {
		return e, fleet.ErrTooLarge
	}
	e = mesh.Envelope{ContentType: event.ApplicationCloudEventsJSON, Body: body, Attributes: map[string]string{}}
	var read *event.Event
	if mode == binding.EncodingBinary {
		e.ContentType, e.Headers = header.Get(cehttp.ContentType), map[string]string{}
		for name := range header {
			if strings.HasPrefix(name, binaryPrefix) {
				e.Headers[name] = header.Get(name)
			}
		}
		if json.Valid(body) {
			err = fleet.CheckJSONDepth(body, fleet.MaxJSONDepth)
		}
		if err == nil {
			message := cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(body)))
			read, err = binding.ToEvent(ctx, message)
		}
	} else {
		read = &event.Event{}
		err = json.Unmarshal(body, read)
	}
	switch {
	case err != nil:
		return e, errors.New("is no CloudEvent 1.0: it needs specversion, id, source and type, and attributes of their " +
			"form")
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
	e.Complete()
	if data := e.Data(); data != nil { // in base64 the envelope does not tell
		err = fleet.CheckJSONDepth(data, fleet.MaxJSONValueDepth)
	}
	return e, err
}
