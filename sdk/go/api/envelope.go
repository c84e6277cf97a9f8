package api

import (
	"fmt"
	"strings"
)

// Limits of an event and of a batch.
const (
	maxAttributes = 64
	maxAttribute  = 2048 // bytes
	maxName       = 255  // bytes of a type, which lists are searched by
	maxLabel      = 128  // bytes of a correlation id, which is a label
)

// The attributes of events that have a meaning here, by their names in CloudEvents.
const (
	AttrTenant      = "tenant"
	AttrCorrelation = "correlationid"
)

// Envelope is an event from outside as it was received: a CloudEvent.
type Envelope struct {
	// Attributes are id, source, type, all others that the event has, and the tenant.
	Attributes  map[string]string `json:"attributes" doc:"Its attributes by their names: id, source, type, and all others."`
	ContentType string            `json:"content_type,omitempty" doc:"Of body. application/cloudevents+json: body is the whole event."`
	Headers     map[string]string `json:"headers,omitempty" doc:"The headers with the attributes of an event in binary mode, as they were received."`
	Body        []byte            `json:"body,omitempty" doc:"The event, or its data in binary mode, as it was received, byte for byte (base64)."`
}

// Attr is an attribute; empty: the event does not have it.
func (e *Envelope) Attr(name string) string { return e.Attributes[name] }

// Tenant is whose event it is; empty: nobody's in particular.
func (e *Envelope) Tenant() string { return e.Attr(AttrTenant) }

// Validate checks what CloudEvents leaves open. Its errors do not repeat values.
func (e *Envelope) Validate() error {
	if len(e.Attributes) > maxAttributes {
		return fmt.Errorf("the event has more than %d attributes", maxAttributes)
	}
	for name, value := range e.Attributes {
		if len(value) > maxAttribute || strings.ContainsRune(value, 0) {
			return fmt.Errorf("attribute %s has more than %d bytes, or a zero byte", name, maxAttribute)
		}
	}
	switch {
	case len(e.Attr("type")) > maxName:
		return fmt.Errorf("attribute type has more than %d bytes", maxName)
	case len(e.Attr(AttrCorrelation)) > maxLabel:
		return fmt.Errorf("attribute %s has more than %d bytes", AttrCorrelation, maxLabel)
	case e.Tenant() != "":
		return ValidateID("tenant", e.Tenant())
	}
	return nil
}
