package hub

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// resultTimeout bounds handing one result to Temporal; the agent sends it again.
const resultTimeout = 10 * time.Second

// reportResult hands an attempt's end to Temporal and answers only when Temporal has accepted it. It needs no session:
// the token is enough, so any hub can take any result.
func (h *Hub) reportResult(ctx context.Context, in *resultInput) (*resultOutput, error) {
	session, err := h.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	claims, err := h.seal.openAttempt(in.Body.Token)
	if err != nil || claims.Agent != session.Agent || claims.Instance != session.Instance || claims.Task != in.TaskID || claims.Attempt != in.Body.Attempt {
		return nil, httpapi.Problem(protocol.CodeUnauthorized, "the attempt token is forged, or belongs to another agent, session, task or attempt")
	}
	if len(in.Body.Output) > fleet.MaxPayloadBytes {
		return nil, httpapi.Problem(protocol.CodePayloadTooLarge, "the output is larger than 1 MiB: store it elsewhere and report where")
	}
	if plantEarlyAnswer {
		time.AfterFunc(time.Second, func() { _, _ = h.hand(h.run, claims, in.Body) })
		return &resultOutput{Body: protocol.ResultAccepted{Accepted: true}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	key := attemptKey{claims.Task, claims.Attempt}
	report, err := h.hand(ctx, claims, in.Body)
	if err != nil && !plantStaleAccepted {
		return nil, h.resultProblem(session, key, err)
	}
	h.metrics.results.WithLabelValues(string(in.Body.Outcome)).Inc()
	if in.Body.Stuck {
		h.keepSlot(session, key)
	}
	h.publishResult(claims, session.Cluster, report)
	h.settled(session, key, in.Body.Outcome)
	return &resultOutput{Body: protocol.ResultAccepted{Accepted: true}}, nil
}

// hand tells Temporal the end of an attempt, and returns what it told.
func (h *Hub) hand(ctx context.Context, claims attemptClaims, r protocol.Result) (contract.AttemptReport, error) {
	started, ended := r.StartedAt.UTC(), r.EndedAt.UTC()
	report := contract.AttemptReport{
		AgentID: claims.Agent, Instance: claims.Instance, Epoch: claims.Epoch, Hub: h.id, StartedAt: &started, EndedAt: &ended,
		Outcome: r.Outcome, Output: r.Output, Reason: r.Error, ErrorType: r.ErrorType, Final: r.NonRetryable, Begun: true,
	}
	report.Checkpoint, report.Progress = h.lastWords(sessionClaims{Agent: claims.Agent, Instance: claims.Instance}, attemptKey{claims.Task, claims.Attempt})
	switch r.Outcome {
	case fleet.AttemptCompleted:
		report.Checkpoint, report.Progress, report.Begun = nil, nil, false
		return report, h.responder.complete(ctx, claims.Temporal, report)
	case fleet.AttemptTimedOut:
		if !r.Stuck {
			none := fleet.Duration(0) // its handler has returned: nothing of it runs on
			report.LeaseRemaining = &none
		}
	case fleet.AttemptCancelled:
		if h.isCancelling(claims) {
			return report, h.responder.cancelled(ctx, claims.Temporal, report)
		}
		// The agent gave the work up by itself, as when it stops: it certainly runs no more.
		none := fleet.Duration(0)
		report.Outcome, report.LeaseRemaining = fleet.AttemptLost, &none
	}
	return report, h.responder.failNow(ctx, claims.Temporal, report)
}

// lastWords are the newest checkpoint and progress that the agent sent of an attempt.
func (h *Hub) lastWords(c sessionClaims, key attemptKey) (checkpoint []byte, progress *fleet.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[c.Agent]; s != nil && s.instance == c.Instance {
		if a := s.attempts[key]; a != nil {
			return a.checkpoint, a.progress
		}
	}
	return nil, nil
}

func (h *Hub) isCancelling(claims attemptClaims) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[claims.Agent]
	if s == nil || s.instance != claims.Instance {
		return false
	}
	a := s.attempts[attemptKey{claims.Task, claims.Attempt}]
	return a != nil && a.cancelling
}

// keepSlot keeps the slot of an attempt whose handler runs on although its result is known.
func (h *Hub) keepSlot(c sessionClaims, key attemptKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[c.Agent]; s != nil && s.instance == c.Instance && s.attempts[key] != nil {
		s.leave(key, leftover{})
	}
}

// settled counts the attempt's end and frees its slot.
func (h *Hub) settled(c sessionClaims, key attemptKey, outcome fleet.AttemptOutcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[c.Agent]; s != nil && s.instance == c.Instance {
		if a := s.attempts[key]; a != nil {
			s.countEnd(a, outcome, time.Now())
			h.forget(a)
		}
	}
}

// resultProblem is the answer to a result that Temporal did not take.
func (h *Hub) resultProblem(c sessionClaims, key attemptKey, err error) error {
	var missing *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	switch {
	case errors.As(err, &missing):
		h.metrics.stale.Inc()
		h.settled(c, key, fleet.AttemptLost)
		return httpapi.Problem(protocol.CodeSuperseded, "the attempt no longer counts: it was accepted before, delivered again, cancelled or timed out")
	case errors.As(err, &invalid):
		h.log.Error("Temporal refused a result", zap.String("task", key.task), zap.Error(err))
		return httpapi.Problem(protocol.CodeInvalidRequest, "Temporal refused the result")
	}
	h.log.Warn("A result could not be handed to Temporal; the agent sends it again", zap.String("task", key.task), zap.Error(err))
	return httpapi.Problem(protocol.CodeUnavailable, "Temporal does not answer: send the result again")
}
