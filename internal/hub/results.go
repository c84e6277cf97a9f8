package hub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// resultTimeout bounds the report of one result to Temporal; the agent repeats it.
const resultTimeout = 10 * time.Second

// reportResult hands an attempt's end to Temporal and answers only when Temporal has accepted it. It needs no session:
// the token is enough, so any hub can take any result.
func (e endpoints) reportResult(ctx context.Context, in *resultInput) (*resultOutput, error) {
	session, err := e.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	claims, err := e.hub.seal.openAttempt(in.Body.Token)
	if err != nil || claims.Agent != session.Agent || claims.Instance != session.Instance || claims.Task != in.TaskID ||
		claims.Attempt != in.Body.Attempt {
		return nil, httpapi.Problem(protocol.CodeUnauthorized,
			"the attempt token is forged, or belongs to another agent, session, task or attempt")
	}
	if len(in.Body.Output) > api.MaxPayloadBytes {
		return nil, httpapi.Problem(protocol.CodePayloadTooLarge,
			"the output is larger than 1 MiB: store it elsewhere and report where")
	}
	for field, at := range map[string]time.Time{"started_at": in.Body.StartedAt, "ended_at": in.Body.EndedAt} {
		if err := api.ValidateTime(field, at); err != nil {
			return nil, invalidField(field, err)
		}
	}
	if err := checkElements(&claims, in.Body.Elements); err != nil {
		return nil, err
	}
	if len(claims.Elements) > 1 && in.Body.Outcome == api.AttemptCompleted && len(in.Body.Elements) == 0 {
		return nil, invalidField("elements", errors.New("must list the elements that are done"))
	}
	boundResult(&claims, &in.Body)
	accepted := &resultOutput{Body: protocol.ResultAccepted{Accepted: true}}
	report, send := e.attemptReport(&claims, &in.Body)
	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	log := boundLog(e.hub.logs.Whole(claims.Task, &in.Body), claims.logLimit())
	if err := send(ctx, claims.Temporal, report, log); err != nil {
		return nil, e.resultProblem(&claims, err, e.bringLate(ctx, &claims, &report, err))
	}
	e.hub.metrics.results.WithLabelValues(string(in.Body.Outcome)).Inc()
	e.settle(&claims, session.Cluster, &in.Body, &report)
	return accepted, nil
}

// boundResult makes an attempt, or an element, fail whose result is too large. Of a bundle it keeps the first elements
// that fit together as JSON. It leaves out what nobody reads, and from texts what takes much room in JSON.
func boundResult(claims *attemptClaims, r *protocol.Result) {
	r.Error = api.Printable(r.Error)
	if r.Outcome == api.AttemptCompleted {
		r.Error, r.ErrorType = "", ""
	} else {
		r.Output, r.Elements = nil, nil
	}
	if len(r.Elements) > 0 {
		r.Output = nil
	}
	tooLarge := api.ResultTooLarge
	limit := cmp.Or(claims.ResultLimit, api.MaxPayloadBytes)
	if len(claims.Elements) > 0 {
		tooLarge = api.ElementTooLarge
		r.Error = api.Shorten(r.Error, limit/errorShare)
	}
	if n := len(r.Output); n > limit {
		r.Outcome, r.Output = api.AttemptFailed, nil
		r.Error, r.NonRetryable = tooLarge(n, limit), true
	}
	bytes := 0
	for i := range r.Elements {
		e := &r.Elements[i]
		boundElement(e, limit)
		// One alone is within the limit, but for its number and the like.
		if bytes += jsonBytes(e); i > 0 && bytes > limit {
			r.Elements = r.Elements[:i] // the others are delivered again
			return
		}
	}
}

// errorShare is the part of its limit that an error of a bundle may have in bytes. As JSON they may be twice as many,
// and the end of a bundle that failed has its error twice.
const errorShare = 4

// boundElement makes an element fail whose result is too large, and leaves out what nobody reads.
func boundElement(e *api.ElementResult, limit int) {
	if e.Outcome != api.AttemptCompleted {
		e.Output = nil
		e.Error, e.ErrorType = api.Shorten(api.Printable(e.Error), limit/errorShare), api.Printable(e.ErrorType)
		return
	}
	e.Error, e.ErrorType = "", ""
	if n := len(e.Output); n > limit {
		e.Outcome, e.Output, e.Error, e.NonRetryable = api.AttemptFailed, nil, api.ElementTooLarge(n, limit), true
	}
}

// jsonBytes is how many bytes an element takes in a bundle's report. One that cannot be encoded has the report fail.
func jsonBytes(e *api.ElementResult) int {
	encoded, _ := contract.Payloads.ToPayload(e)
	return len(encoded.GetData()) + 1
}

// checkElements refuses results of elements that are not the bundle's, or come twice.
func checkElements(claims *attemptClaims, results []api.ElementResult) error {
	told := map[int]bool{}
	for i := range results {
		n := results[i].Number
		if !slices.Contains(claims.Elements, n) || told[n] {
			return invalidField("elements", errors.New("must list elements of the assignment, each once"))
		}
		told[n] = true
	}
	return nil
}

// attemptReport is the report of the end of an attempt to Temporal, and the call that sends it.
func (e endpoints) attemptReport(claims *attemptClaims, r *protocol.Result) (
	report contract.AttemptReport, send func(context.Context, []byte, contract.AttemptReport, []api.LogLine) error,
) {
	report = contract.AttemptReport{
		AgentID:   claims.Agent,
		Instance:  claims.Instance,
		Epoch:     claims.Epoch,
		Hub:       e.hub.id,
		StartedAt: new(r.StartedAt.UTC()),
		EndedAt:   new(r.EndedAt.UTC()),
		Outcome:   r.Outcome,
		Output:    r.Output,
		Reason:    api.Printable(r.Error),
		ErrorType: api.Printable(r.ErrorType),
		Final:     r.NonRetryable,
		Begun:     true,
		Elements:  r.Elements,
	}
	if len(claims.Elements) == 1 && r.Outcome == api.AttemptCompleted && len(r.Elements) == 0 {
		report.Elements, report.Output = []api.ElementResult{{
			Number:       claims.Elements[0],
			Outcome:      r.Outcome,
			Output:       r.Output,
			Milliseconds: max(0, r.EndedAt.Sub(r.StartedAt).Milliseconds()),
		}}, nil
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	a := e.hub.attemptLocked(claims)
	if a != nil {
		report.Marks = slices.Clone(a.marks)
	}
	if r.Outcome == api.AttemptCompleted {
		report.Begun = false
		return report, e.hub.store.Complete
	}
	if a != nil { // with its newest checkpoint and progress
		report.Checkpoint, report.CheckpointDigest = a.newCheckpoint()
		report.Progress = a.progress
	}
	none := new(api.Duration(0)) // the agent has stopped: no lease
	switch {
	case r.Outcome == api.AttemptTimedOut && !r.Stuck:
		report.LeaseRemaining = none
	case r.Outcome == api.AttemptCancelled && a != nil && a.cancelling:
		return report, e.hub.store.Cancelled
	case r.Outcome == api.AttemptCancelled: // the agent gave the work up by itself: it stops, or its lease ran out
		report.Outcome, report.LeaseRemaining = api.AttemptMoved, none
		report.Planned = a != nil && a.session.leaving.stopping
	}
	return report, e.hub.store.Fail
}

// attemptLocked returns the attempt that a token names, if the session that it was given to still has it, or the hub
// waits for its agent.
func (h *Hub) attemptLocked(claims *attemptClaims) *attempt {
	key := claims.key()
	if a := h.awaited[key]; a != nil && a.session.instance == claims.Instance {
		return a.attempt
	}
	if s := h.sessions[claims.Agent]; s != nil && s.instance == claims.Instance {
		return s.work.attempts[key]
	}
	return nil
}

// settle publishes the end of an attempt that its agent reported, counts it, and frees its slot unless the handler runs
// on.
func (e endpoints) settle(claims *attemptClaims, cluster string, r *protocol.Result, report *contract.AttemptReport) {
	h := e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.attemptLocked(claims)
	if a == nil { // another hub's, or its session has ended: the token has the certain facts
		h.events.Ended(api.EventData{Cluster: cluster, AgentID: claims.Agent, Epoch: claims.Epoch, TaskID: claims.Task,
			Attempt: claims.Attempt, TaskType: claims.Type, Tenant: claims.Tenant}, nil, report)
		return
	}
	if !a.accepted {
		h.events.Running(a.about(), a.input.TransferredFrom, a.queuedAt) // it ended before the agent's next poll
	}
	h.events.Ended(a.about(), &a.input, report)
	h.instances.end(h.id, a, report.Reason)
	if r.Stuck {
		a.session.leave(a.key(), leftover{})
	}
	a.session.work.ever = true
	for outcome := range r.Outcomes() {
		if outcome == api.AttemptTimedOut && !r.Stuck { // the agent ended in time what had too little of it
			outcome = api.AttemptFailed
		}
		a.session.countEnd(a, outcome, time.Now())
	}
	h.forgetLocked(a)
}

// bringLate keeps a result that Temporal no longer takes beside the review of its task, if it waits for a person now
// because of this attempt. Only work that must not run twice does, and elements of arrays have no review of their own.
func (e endpoints) bringLate(ctx context.Context, claims *attemptClaims, r *contract.AttemptReport, err error) bool {
	if store.KindOf(err) != store.NotFound || !claims.Person || len(claims.Elements) > 0 ||
		r.Outcome != api.AttemptCompleted && r.Outcome != api.AttemptFailed {
		return false
	}
	workflowID, key := contract.Locate(claims.Task)
	_, err = store.Update(ctx, e.hub.store.Store, contract.LateResultUpdate, workflowID, contract.LateResultRequest{
		ForTask: contract.ForTask{Task: key},
		LateResult: api.LateResult{Attempt: claims.Attempt, AgentID: r.AgentID, StartedAt: r.StartedAt,
			EndedAt: r.EndedAt, Outcome: r.Outcome, Result: r.Output, Reason: r.Reason}})
	return err == nil
}

// resultProblem is the answer to a result that Temporal did not take.
func (e endpoints) resultProblem(claims *attemptClaims, err error, kept bool) error {
	switch store.KindOf(err) {
	case store.NotFound:
		e.hub.metrics.stale.Inc()
		e.hub.mu.Lock()
		defer e.hub.mu.Unlock()
		if a := e.hub.attemptLocked(claims); a != nil {
			a.session.countEnd(a, api.AttemptLost, time.Now())
			e.hub.forgetLocked(a)
		}
		if kept {
			return httpapi.Problem(protocol.CodeSuperseded,
				"the task is in review: the result is kept for the person who decides")
		}
		return httpapi.Problem(protocol.CodeSuperseded,
			"the attempt no longer counts: it was accepted before, delivered again, cancelled or timed out")
	case store.Invalid:
		e.hub.log.Error("Temporal refused a result", zap.String("task", claims.Task), zap.Error(err))
		return httpapi.Problem(protocol.CodeInvalidRequest, "Temporal refused the result")
	}
	e.hub.log.Warn("A result could not be handed to Temporal; the agent sends it again",
		zap.String("task", claims.Task), zap.Error(err))
	return httpapi.Problem(protocol.CodeUnavailable, "Temporal does not answer: send the result again")
}
