package rest

import (
	"errors"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
	"mainstay.dev/sdk/protocol"
)

// The details of errors in answers to clients.
const (
	UnavailableDetail = "Temporal, or a worker for it, did not answer in time; try again"
	InternalDetail    = "the request failed on our side; the server's log says why"
	// unsureDetail is for a change that no worker carried out in time. Temporal may have it; then a worker makes it as
	// soon as one answers.
	unsureDetail   = "no worker carried the change out in time; it may be made as soon as one answers: look before you ask again"
	madeDetail     = "the change was made, but no worker told in time how the cluster stands now: look at it"
	fullDetail     = "it has been changed as often as Temporal allows, and takes no more changes; a task, an array or a run can still be cancelled"
	invalidDetail  = "Temporal takes no such request; the server's log says what is wrong with it"
	outdatedDetail = "the cluster's settings are no longer of the revision that If-Match (--if-revision) names: get the cluster, look again, and send its new one"
)

// Outdated is the answer to a change that was meant for another revision.
func Outdated() error { return httpapi.Problem(protocol.CodePrecondition, outdatedDetail) }

// Answer is the one place that turns errors of Temporal into answers. notFound is the code for a missing workflow. The
// client sees our words; the error itself goes to the log.
func (c *Core) Answer(err error, doing, notFound string) error {
	if err == nil {
		return nil
	}
	if _, done := httpapi.Code(err); done {
		return err
	}
	code, detail := classify(err, notFound)
	switch code {
	case protocol.CodeInternal:
		c.Logger.Error(doing, zap.Error(err))
	case protocol.CodeUnavailable, protocol.CodeInvalidRequest:
		c.Logger.Warn(doing, zap.Error(err))
	default:
		c.Logger.Debug(doing, zap.Error(err))
	}
	return httpapi.Problem(code, detail)
}

// classify maps an error of Temporal to a code and a detail.
func classify(err error, notFound string) (code, detail string) {
	switch store.KindOf(err) {
	case store.Refused:
		return protocol.CodeConflict, store.Refusal(err)
	case store.Outdated:
		return protocol.CodePrecondition, outdatedDetail
	case store.NotFound:
		return notFound, notFoundDetail(notFound)
	case store.Exists:
		return protocol.CodeConflict, "it exists already"
	case store.Full:
		return protocol.CodeConflict, fullDetail
	case store.Unsure:
		return protocol.CodeUnavailable, unsureDetail
	case store.Unavailable:
		return protocol.CodeUnavailable, UnavailableDetail
	case store.Invalid:
		return protocol.CodeInvalidRequest, invalidDetail
	}
	return protocol.CodeInternal, InternalDetail
}

func notFoundDetail(code string) string {
	switch code {
	case protocol.CodeUnknownTask:
		return "there is no task with this id, or its retention has ended"
	case protocol.CodeUnknownCluster:
		return "there is no cluster with this name: create it first (mainstay cluster create, or POST /api/v1/agents/clusters)"
	case protocol.CodeUnknownAgent:
		return "there is no agent with this id"
	case protocol.CodeUnknownFailover:
		return "there is no failover with this id, or its retention has ended; ids are <cluster>:<agent>:<epoch>"
	case protocol.CodeUnknownDrain:
		return "there is no drain with this id, or its retention has ended; ids are <cluster>:<name>"
	case protocol.CodeUnknownScaling:
		return "there is no action of scaling with this id, or its retention has ended; ids are <cluster>:<number>"
	case protocol.CodeUnknownSchedule:
		return "there is no schedule with this name"
	case protocol.CodeUnknownToken:
		return "there is no token with this id; see those there are (mainstay token list, or GET /api/v1/agents/tokens)"
	case protocol.CodeUnknownJob:
		return "there is no job with this name: apply its definition first (mainstay job apply FILE, or PUT /api/v1/agents/jobs/NAME)"
	case protocol.CodeUnknownRun:
		return "there is no run with this id, or its retention has ended"
	case protocol.CodeUnknownArray:
		return "there is no array with this id, or its retention has ended"
	case protocol.CodeUnknownEvent:
		return "there is no such event, or its retention has ended"
	case protocol.CodeUnknownBulk:
		return "there is no bulk operation with this id, or its retention has ended"
	}
	return "there is no such thing"
}

// Unknown is the answer for an id that names nothing.
func Unknown(code string) error { return httpapi.Problem(code, notFoundDetail(code)) }

// Invalid is the answer to a failed validation; its messages never repeat the submitted value.
func Invalid(location string, err error) error {
	if errors.Is(err, api.ErrTooLarge) {
		return httpapi.Problem(protocol.CodePayloadTooLarge, err.Error())
	}
	if wrong, ok := errors.AsType[*payload.Error](err); ok {
		fields := make([]api.ProblemField, len(wrong.Problems))
		for i, p := range wrong.Problems {
			fields[i] = api.ProblemField{Location: location + "." + p.Field, Message: p.What}
		}
		return httpapi.InvalidFields(fields)
	}
	return httpapi.InvalidField(location, err.Error())
}
