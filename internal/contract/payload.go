package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/klauspost/compress/zstd"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// Payloads converts values to and from what Temporal keeps. Every client of Temporal has it. It writes JSON as the
// SDK's default converter does, except that <, > and & stay one byte long. The default converter makes six of each, so
// that a payload within our limits could pass Temporal's. Each reads what the other wrote, but for what is packed.
var Payloads = converter.NewCompositeDataConverter(
	converter.NewNilPayloadConverter(),
	converter.NewByteSlicePayloadConverter(),
	converter.NewProtoJSONPayloadConverter(),
	converter.NewProtoPayloadConverter(),
	packedJSON{},
	plainJSON{converter.NewJSONPayloadConverter()},
)

// Failures converts errors, with Payloads for their details. Every client of Temporal has it.
var Failures = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: Payloads})

type plainJSON struct {
	*converter.JSONPayloadConverter
}

func (c plainJSON) ToPayload(value any) (*commonpb.Payload, error) {
	data, err := encode(value)
	if err != nil {
		return nil, err
	}
	return payloadOf(c.Encoding(), data), nil
}

func encode(value any) ([]byte, error) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("%w: %w", converter.ErrUnableToEncode, err)
	}
	return bytes.TrimSuffix(data.Bytes(), []byte("\n")), nil
}

func payloadOf(encoding string, data []byte) *commonpb.Payload {
	return &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: data}
}

const (
	// packFrom is the length of JSON from which a message is compressed. Temporal takes messages of up to 2 MiB, and
	// the state of a cluster with thousands of members is longer.
	packFrom = 512 << 10
	// packWindow is how far back it finds text again: the ids of thousands of agents are in several lists of them.
	packWindow = 8 << 20
	// denseFrom is the length of a compressed message from which it is compressed more thoroughly, which takes twice
	// as long.
	denseFrom = 1700 << 10
	// maxUnpacked bounds what a packed message may hold.
	maxUnpacked = 64 << 20
	// mostMessage is how long a message may be: Temporal takes 2 MiB, with what the SDK adds to it.
	mostMessage = 2<<20 - 16<<10
)

// mayBePacked are the messages that may be longer than Temporal takes: the states of clusters, jobs and runs, and what
// healing finds. Others stay readable in Temporal's Web UI.
var mayBePacked = map[reflect.Type]bool{
	reflect.TypeFor[ClusterInput](): true, reflect.TypeFor[ClusterView](): true, reflect.TypeFor[Directive](): true,
	reflect.TypeFor[JoinResponse](): true, reflect.TypeFor[JobInput](): true, reflect.TypeFor[job.Job](): true,
	reflect.TypeFor[RunInput](): true, reflect.TypeFor[job.Ledger](): true, reflect.TypeFor[Examined](): true,
	reflect.TypeFor[api.HealingCycleRecord](): true,
}

// packedJSON compresses the JSON of long messages that may be packed, and leaves all others to plainJSON.
type packedJSON struct{}

func (packedJSON) Encoding() string { return "json/zstd" }

func (c packedJSON) ToPayload(value any) (*commonpb.Payload, error) {
	of := reflect.TypeOf(value)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if !mayBePacked[of] {
		return nil, nil
	}
	data, err := encode(value)
	switch {
	case err != nil:
		return nil, err
	case len(data) < packFrom:
		return payloadOf(converter.MetadataEncodingJSON, data), nil
	case len(data) > maxUnpacked:
		return nil, fmt.Errorf("a message has %d bytes, and at most %d can be read", len(data), maxUnpacked)
	}
	var packed []byte
	for _, level := range []zstd.EncoderLevel{zstd.SpeedDefault, zstd.SpeedBetterCompression} {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow),
			zstd.WithEncoderLevel(level))
		if err != nil {
			return nil, err
		}
		if packed = z.EncodeAll(data, packed[:0]); len(packed) < denseFrom {
			break
		}
	}
	return payloadOf(c.Encoding(), packed), nil
}

func (packedJSON) FromPayload(payload *commonpb.Payload, value any) error {
	data, err := unpack(payload)
	if err != nil {
		return fmt.Errorf("read a packed message: %w", err)
	}
	return json.Unmarshal(data, value)
}

func (packedJSON) ToString(payload *commonpb.Payload) string {
	data, err := unpack(payload)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func unpack(payload *commonpb.Payload) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(payload.GetData(), nil)
}

// Fits reports whether Temporal accepts a message. A workflow that ends or continues with a message which it refuses
// stands still for ever: nobody can query, change or cancel it.
//
//workflowcheck:ignore
func Fits(message any) bool {
	payload, err := Payloads.ToPayload(message)
	return err == nil && len(payload.GetData()) <= mostMessage
}

// Bytes is how long a message is.
//
//workflowcheck:ignore
func Bytes(message any) int {
	payload, _ := Payloads.ToPayload(message)
	return len(payload.GetData())
}

// muchText is how much text of and about its members, in bytes, a state has at least that does not fit into a message.
const muchText = 768 << 10

// PackShort is the input as a message that Temporal accepts, as far as dropping parts helps; fits says whether it did.
// Each packing takes most of a second of a core for thousands of members, so there are two at most.
//
//workflowcheck:ignore
func (in *ClusterInput) PackShort() (message converter.RawValue, fits bool) {
	if in.State.TextsSize()+in.State.NotesSize() > muchText {
		in.State.Shorten()
	}
	if message, fits = in.pack(); fits {
		return message, true
	}
	in.State.Shorten()
	in.State.ForgetReplaced()
	in.IdleFailovers = nil
	return in.pack()
}

func (in *ClusterInput) pack() (message converter.RawValue, fits bool) {
	payload, err := Payloads.ToPayload(in)
	return converter.NewRawValue(payload), err == nil && len(payload.GetData()) <= mostMessage
}
