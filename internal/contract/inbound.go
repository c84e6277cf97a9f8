package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/sdk/api"
)

// InboundWorkflow is an event from outside: its id drops repetitions, its input keeps the event as it was received, and
// while it is open, the event can be replayed.
const InboundWorkflow = "Inbound"

const inboundPrefix = "event/"

// InboundWorkflowID is the id of the workflow of an inbound event: "event/<tenant>/<hash>".
func InboundWorkflowID(id string) string { return inboundPrefix + strings.Replace(id, ":", "/", 1) }

// InboundOfWorkflowID is the inverse of InboundWorkflowID.
func InboundOfWorkflowID(id string) (string, bool) {
	rest, ok := strings.CutPrefix(id, inboundPrefix)
	return strings.Replace(rest, "/", ":", 1), ok && rest != ""
}

// InboundInput starts an Inbound workflow.
type InboundInput struct {
	Event api.Envelope `json:"event"`
	// Carried is the record of the run of the workflow before this one, which had closed when something died that the
	// event had started; Before is that run, which this one stands for.
	Carried *api.InboundEvent `json:"carried,omitempty"`
	Before  string            `json:"before,omitempty"`
}

// Messages of the Inbound workflow.
var (
	// InboundQuery answers with the event's state; the workflow returns the same.
	InboundQuery = Query[api.InboundEvent]{"inbound"}
	// ReplayEventUpdate has an event that waits dispatched again. It answers after the first try.
	ReplayEventUpdate  = Update[ReplayEvent, api.InboundEvent]{"replay-event"}
	DiscardEventUpdate = Update[RunRequest, api.InboundEvent]{"discard-event"}
	// DispatchEventActivity starts what asks for an event. It runs locally, so its input is not recorded, and fails as
	// EvaluateActivity does.
	DispatchEventActivity = Activity[DispatchEvent, EventDispatched]{"DispatchEvent"}
	// ReviveActivity starts again, each in its place, the dead things that an event had started, or gives them up.
	ReviveActivity = Activity[Revive, EventDispatched]{"Revive"}
	// ForgetRunActivity removes a closed run of an event's workflow, which a later run stands for.
	ForgetRunActivity = Activity[ForgetRun, None]{"ForgetRun"}
	// OutcomeSignal reports to an event the outcome of something that it started. TellEventActivity sends it, and
	// starts the event's workflow for it if that has closed.
	OutcomeSignal     = Signal[EventOutcome]{"outcome"}
	TellEventActivity = Activity[EventOutcome, None]{"TellEvent"}
)

// EventOutcome is the outcome of a task or run that an event started.
type EventOutcome struct {
	Event   string `json:"event"`
	ID      string `json:"id"`
	Cluster string `json:"cluster,omitempty"`
	Died    string `json:"died,omitempty"` // why; empty: it lives after all
}

// Revive is the input of ReviveActivity.
type Revive struct {
	Event   string         `json:"event"`
	EventID string         `json:"event_id"` // as its source has it
	Dead    []api.Dispatch `json:"dead"`
	Discard bool           `json:"discard,omitempty"`
	RunRequest
}

// ForgetRun is the input of ForgetRunActivity.
type ForgetRun struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// ReplayEvent has an event dispatched again.
type ReplayEvent struct {
	RunRequest
	Data json.RawMessage `json:"data,omitempty"` // instead of the event's own
}

// DispatchEvent is the input of DispatchEventActivity.
type DispatchEvent struct {
	ID    string          `json:"id"`
	Event api.Envelope    `json:"event"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// EventDispatched lists what an event has started. Problem says why something is missing; Cluster is where, if known.
type EventDispatched struct {
	Dispatches []api.Dispatch `json:"dispatches,omitempty"`
	Problem    string         `json:"problem,omitempty"`
	Cluster    string         `json:"cluster,omitempty"`
}

// StartOfInbound makes the start of the workflow of an event.
func StartOfInbound(id string, e *api.Envelope, digest string) TaskStart {
	attributes := []temporal.SearchAttributeUpdate{AttrTaskType.ValueSet(e.Attr("type"))}
	if e.Tenant() != "" {
		attributes = append(attributes, AttrTenant.ValueSet(e.Tenant()))
	}
	if correlation := e.Attr(api.AttrCorrelation); correlation != "" {
		attributes = append(attributes, AttrLabels.ValueSet(LabelList(map[string]string{
			api.LabelCorrelation: correlation})))
	}
	return TaskStart{WorkflowID: InboundWorkflowID(id), Attributes: temporal.NewSearchAttributes(attributes...),
		Memo: map[string]any{MemoDigest: digest}, Summary: "event " + e.Attr("type"),
		Priority: temporal.Priority{FairnessKey: e.Tenant()}}
}

// InboundTerm is the term of a visibility query for the events with a status; empty for any.
func InboundTerm(s api.InboundStatus) string {
	marked := AttrStatus.GetName()
	switch s {
	case "":
		return ""
	case api.InboundReceived:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) + " AND " + marked + " IS NULL"
	case api.InboundDispatched:
		return ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED) + " AND " + marked + " IS NULL"
	}
	return Equals(marked, string(s))
}

// WaitingEvents is the visibility query for the events in quarantine, or those that nothing asks for.
func WaitingEvents(s api.InboundStatus) string {
	return Equals("WorkflowType", InboundWorkflow) + " AND " + openWithMark(string(s))
}

// TriggerTerm is an event's type as the search attribute AttrLabels of the jobs has it whose runs it starts: a hash,
// since types have characters that queries do not take. Unlike a label it has no "=".
func TriggerTerm(eventType string) string {
	sum := sha256.Sum256([]byte(eventType))
	return "on/#" + hex.EncodeToString(sum[:16])
}

// TriggerTerms is the search attribute of a job whose runs events of these types start.
func TriggerTerms(types []string) temporal.SearchAttributeUpdate {
	terms := make([]string, len(types))
	for i, t := range types {
		terms[i] = TriggerTerm(t)
	}
	return AttrLabels.ValueSet(terms)
}

// JobsOn is the visibility query for the jobs of a tenant with a trigger for a type of event.
func JobsOn(tenant, eventType string) string {
	return Equals("WorkflowType", JobWorkflow) + " AND " + ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING) +
		" AND " + Equals(AttrLabels.GetName(), TriggerTerm(eventType)) + " AND " + OfTenant(tenant)
}

// OfTenant is the visibility query for what belongs to a tenant; "": to none.
func OfTenant(tenant string) string {
	if tenant == "" {
		return AttrTenant.GetName() + " IS NULL"
	}
	return Equals(AttrTenant.GetName(), tenant)
}
