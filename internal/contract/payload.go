package contract

import (
	"bytes"
	"encoding/json"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// Payloads converts values to and from what Temporal keeps. Every client of Temporal has it. It writes JSON as the
// SDK's default converter does, except that <, > and & stay one byte long. The default converter makes six of each, so
// that a payload within our limits could pass Temporal's. Each reads what the other wrote.
var Payloads = converter.NewCompositeDataConverter(
	converter.NewNilPayloadConverter(),
	converter.NewByteSlicePayloadConverter(),
	converter.NewProtoJSONPayloadConverter(),
	converter.NewProtoPayloadConverter(),
	plainJSON{converter.NewJSONPayloadConverter()},
)

type plainJSON struct {
	*converter.JSONPayloadConverter
}

func (c plainJSON) ToPayload(value any) (*commonpb.Payload, error) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("%w: %w", converter.ErrUnableToEncode, err)
	}
	return &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(c.Encoding())},
		Data:     bytes.TrimSuffix(data.Bytes(), []byte("\n")),
	}, nil
}
