package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

const (
	// failers bounds the concurrent reports of ends without a result. One that failed holds none while it pauses.
	failers = 16
	// failGiveUp is when to stop reporting an end: by then the backstop has ended the attempt.
	failGiveUp = 2 * time.Minute
)

// responder reports the ends of attempts to Temporal. A result is reported within its request. An end without a result
// is queued and repeated until Temporal has it, or the backstop has ended the attempt.
type responder struct {
	hub     *Hub
	pending *part.Group
	slots   chan struct{}
}

func newResponder(h *Hub) *responder {
	return &responder{hub: h, pending: part.NewGroup(), slots: make(chan struct{}, failers)}
}

// fail queues the end of an attempt without a result. taken is called once Temporal has it.
func (r *responder) fail(a *attempt, report contract.AttemptReport, log []api.LogLine, taken func()) {
	noted, ended := time.Now(), a.session != nil && a.session.gone
	inTouch := r.hub.lease.Fresh(noted)
	try := func(ctx context.Context) (err error) {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		counts := true
		if inTouch = inTouch && r.hub.lease.Fresh(time.Now()); ended || !inTouch {
			counts, err = r.counts(ctx, a, noted, inTouch)
		}
		if counts {
			err = r.failNow(ctx, a.Temporal, report, log)
			inTouch = inTouch && err == nil
		}
		if counts && err == nil {
			taken()
		}
		return err
	}
	r.pending.Go(func() {
		ctx, cancel := context.WithTimeout(r.hub.run, failGiveUp)
		defer cancel()
		for retry := (backoff.Backoff{First: 50 * time.Millisecond, Limit: 2 * time.Second}); ; retry.Pause(ctx) {
			err := try(ctx)
			if err == nil || store.KindOf(err) == store.NotFound {
				return
			}
			if ctx.Err() != nil {
				r.hub.log.Warn("The end of an attempt was not reported; its backstop ends it", zap.Error(err))
				return
			}
		}
	})
}

// errUnsure: the newest heartbeat of an attempt is this hub's, but Temporal took it after its end here. It was late,
// and may hide one of another hub, which sends more.
var errUnsure = errors.New("it is not known yet whether another hub has the attempt")

// counts reports whether an attempt is still this hub's to end. An agent whose session ended here, or that was here
// while the hub was out of touch with Temporal, may have taken it to another hub. In touch, no heartbeat was late.
func (r *responder) counts(ctx context.Context, a *attempt, noted time.Time, inTouch bool) (bool, error) {
	elsewhere, seen, err := r.hub.elsewhere(ctx, a)
	switch {
	case err != nil:
		return false, err
	case elsewhere:
		r.hub.log.Info("An attempt goes on at another hub, or has ended", zap.String("task", a.Task),
			zap.Int("attempt", a.Attempt))
		return false, nil
	case !inTouch && seen.After(noted):
		return false, errUnsure
	}
	return true, nil
}

func (r *responder) complete(
	ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine,
) error {
	payloads, err := payloads(report, log)
	if err != nil {
		return err
	}
	_, err = r.hub.service.RespondActivityTaskCompleted(ctx, &workflowservice.RespondActivityTaskCompletedRequest{
		TaskToken: token, Result: payloads, Identity: r.hub.identity(), Namespace: r.hub.namespace,
	})
	return err
}

func (r *responder) cancelled(
	ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine,
) error {
	payloads, err := payloads(report, log)
	if err != nil {
		return err
	}
	_, err = r.hub.service.RespondActivityTaskCanceled(ctx, &workflowservice.RespondActivityTaskCanceledRequest{
		TaskToken: token, Details: payloads, Identity: r.hub.identity(), Namespace: r.hub.namespace,
	})
	return err
}

func (r *responder) failNow(
	ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine,
) error {
	payloads, err := payloads(report, log)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("%s: %s", report.Outcome, report.Reason)
	if report.AgentID != "" {
		message = fmt.Sprintf("%s on %s: %s", report.Outcome, report.AgentID, report.Reason)
	}
	_, err = r.hub.service.RespondActivityTaskFailed(ctx, &workflowservice.RespondActivityTaskFailedRequest{
		TaskToken: token, Identity: r.hub.identity(), Namespace: r.hub.namespace,
		Failure: &failurepb.Failure{
			Message: strings.ToValidUTF8(message, "\uFFFD"), Source: "mainstay-hub",
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
					Type: contract.AttemptFailure, NonRetryable: true, Details: payloads,
				}},
		},
	})
	return err
}

// payloads are an attempt's report and, where it wrote something, the end of its log. Workflows read the first only.
func payloads(report contract.AttemptReport, log []api.LogLine) (*commonpb.Payloads, error) {
	p, err := contract.Payloads.ToPayloads(report)
	if err == nil && len(log) > 0 {
		var end *commonpb.Payload
		end, err = contract.Payloads.ToPayload(log)
		p.Payloads = append(p.Payloads, end)
	}
	if err != nil {
		return nil, fmt.Errorf("encode an attempt report: %w", err)
	}
	return p, nil
}

// boundLog is the end of a log with at most so many bytes of JSON.
func boundLog(log []api.LogLine, most int) []api.LogLine {
	for len(log) > 0 {
		if data, err := json.Marshal(log); err == nil && len(data) <= most {
			break
		}
		log = log[len(log)/4+1:] // control characters take six bytes each
	}
	return log
}
