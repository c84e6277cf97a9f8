// Package mesh is the domain of events from outside and of the work that they start: types and pure decisions.
package mesh

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"

	"mainstay.dev/sdk/api"
)

// Limits of an event and of a batch.
const (
	MaxEvents     = 100       // of a batch
	MaxEventBytes = 256 << 10 // of one event, as it is received
	MaxBatchBytes = 2 << 20
)

// The attributes of events that have a meaning here, by their names in CloudEvents.
const (
	AttrCausation   = "causationid"
	AttrTraceParent = "traceparent"
	AttrTraceState  = "tracestate"
)

// InboundID is the id of the event's record. Events with the same source and id share it.
func InboundID(e *api.Envelope) string {
	sum := sha256.Sum256([]byte(e.Attr("source") + "\x00" + e.Attr("id")))
	return api.Qualify(e.Tenant(), hex.EncodeToString(sum[:16]))
}

// DataOf is the event's data as JSON; nil: it has none, or other data than JSON.
func DataOf(e *api.Envelope) json.RawMessage {
	data, isJSON := plainData(e)
	if !isJSON || len(data) == 0 {
		return nil
	}
	return data
}

func plainData(e *api.Envelope) (data []byte, isJSON bool) {
	if len(e.Headers) > 0 {
		return e.Body, json.Valid(e.Body)
	}
	var event struct {
		Data   json.RawMessage `json:"data"`
		Binary []byte          `json:"data_base64"`
	}
	_ = json.Unmarshal(e.Body, &event) // it was read before
	if event.Binary != nil {
		return event.Binary, json.Valid(event.Binary)
	}
	return event.Data, true
}

// DigestOf distinguishes events with the same id. How an event was sent, and in which trace, does not count.
func DigestOf(e *api.Envelope) (string, error) {
	attributes := map[string]string{}
	for name, value := range e.Attributes {
		if name != AttrTraceParent && name != AttrTraceState && name != "datacontenttype" {
			attributes[name] = value
		}
	}
	data, isJSON := plainData(e)
	var value any = data
	if isJSON && len(data) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal([]any{attributes, value})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), err
}

// Complete takes tenant, correlation and causation from the data where the attributes lack them: some senders have them
// there, by other names.
func Complete(e *api.Envelope) {
	var data map[string]json.RawMessage
	if json.Unmarshal(DataOf(e), &data) != nil {
		return
	}
	for attribute, name := range map[string]string{api.AttrTenant: "tenantId", api.AttrCorrelation: "correlationId",
		AttrCausation: "causationId"} {
		var value string
		if e.Attr(attribute) == "" && json.Unmarshal(data[name], &value) == nil && value != "" {
			e.Attributes[attribute] = value
		}
	}
}

// LabelOf adds the labels of the work that the event starts, as far as there is room.
func LabelOf(e *api.Envelope, labels map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	for _, own := range [][2]string{{LabelEvent, InboundID(e)}, {api.LabelCorrelation, e.Attr(api.AttrCorrelation)}} {
		if own[1] != "" && len(all) < api.MaxLabels {
			all[own[0]] = own[1]
		}
	}
	return all
}

// LabelEvent is the label of what events start with the id of the inbound event; see also api.LabelCorrelation.
const LabelEvent = "event"

// ErrTenant says that an event and what it would touch are of different tenants.
var ErrTenant = errors.New("tenant_mismatch: the event is of another tenant than what it is for")

// AssertTenant is called before anything is read or changed for an event: both tenants must be the same.
func AssertTenant(event, target string) error {
	if event != target {
		return ErrTenant
	}
	return nil
}
