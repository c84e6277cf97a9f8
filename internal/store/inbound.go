package store

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// Inbound are the events from outside of a namespace.
func (s Store) Inbound() Records[api.InboundEvent] {
	return Records[api.InboundEvent]{Store: s, Query: contract.InboundQuery, Partial: partialInbound}
}

// InboundEntries are the events as lists show them: without the data of a replay, which may be 50 MiB in a page.
func (s Store) InboundEntries() Records[api.InboundEvent] {
	r := s.Inbound()
	r.Locate = func(e *api.InboundEvent, _ *commonpb.WorkflowExecution) { e.Corrected = nil }
	return r
}

// partialInbound reads an event from Temporal's record of its workflow.
func partialInbound(k Known) (api.InboundEvent, bool) {
	id, ok := contract.InboundOfWorkflowID(k.WorkflowID)
	i := api.InboundEvent{ID: id, Why: k.Why, ReceivedAt: k.StartedAt, EndedAt: k.ClosedAt, Tenant: k.Tenant,
		Type: k.TaskType, Status: api.InboundStatus(k.Mark)}
	switch {
	case i.Status != "":
	case k.Status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		i.Status = api.InboundDispatched
	case k.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		i.Status = api.InboundReceived
	default:
		i.Status = api.InboundDiscarded // somebody ended its workflow
	}
	return i, ok
}

// StartInbound starts the workflow of an event. One with the same source and id is an error of the kind Exists.
func (s Store) StartInbound(ctx context.Context, e *api.Envelope, digest string) (api.InboundEvent, error) {
	id := mesh.InboundID(e)
	start := contract.StartOfInbound(id, e, digest)
	_, err := s.Client.ExecuteWorkflow(ctx, start.Options(), contract.InboundWorkflow, contract.InboundInput{Event: *e})
	return api.InboundEvent{ID: id, Tenant: e.Tenant(), EventID: e.Attr("id"), Source: e.Attr("source"),
		Type: e.Attr("type"), CorrelationID: e.Attr(api.AttrCorrelation), Status: api.InboundReceived,
		ReceivedAt: time.Now().UTC()}, err
}

// FirstInbound is the state of an event that came before, and the digest of what was sent then.
func (s Store) FirstInbound(ctx context.Context, id string) (first api.InboundEvent, digest string, err error) {
	info, err := s.Describe(ctx, contract.InboundWorkflowID(id))
	if err != nil {
		return first, "", err
	}
	contract.Decode(info.GetMemo().GetFields()[contract.MemoDigest], &digest)
	first, _ = s.Inbound().Of(ctx, info)
	return first, digest, nil
}

// Envelope is an event as it was received, from the first event of its workflow's history; it needs no worker.
func (s Store) Envelope(ctx context.Context, id string) (api.Envelope, error) {
	var payload *commonpb.Payload
	payload, err := s.firstInput(ctx, contract.InboundWorkflowID(id), "")
	var in contract.InboundInput
	if err == nil {
		contract.Decode(payload, &in)
	}
	return in.Event, err
}
