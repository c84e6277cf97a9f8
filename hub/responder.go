package hub

import (
	"context"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/part"
	"mainstay.dev/mainstay/store"
)

const (
	// failers bounds the concurrent reports of ends without a result.
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
func (r *responder) fail(token []byte, report contract.AttemptReport, log []fleet.LogLine, taken func()) {
	r.pending.Go(func() {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(r.hub.run, failGiveUp)
		defer cancel()
		for retry := (backoff.Backoff{First: 50 * time.Millisecond, Limit: 2 * time.Second}); ; retry.Pause(ctx) {
			err := r.failNow(ctx, token, report, log)
			if err == nil {
				taken()
			}
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

func (r *responder) complete(
	ctx context.Context, token []byte, report contract.AttemptReport, log []fleet.LogLine,
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
	ctx context.Context, token []byte, report contract.AttemptReport, log []fleet.LogLine,
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
	ctx context.Context, token []byte, report contract.AttemptReport, log []fleet.LogLine,
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
			Message: message, Source: "mainstay-hub",
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
					Type: contract.AttemptFailure, NonRetryable: true, Details: payloads,
				}},
		},
	})
	return err
}

// payloads are an attempt's report and, where it wrote something, the end of its log. Workflows read the first only.
func payloads(report contract.AttemptReport, log []fleet.LogLine) (*commonpb.Payloads, error) {
	values := []any{report}
	if len(log) > 0 {
		values = append(values, log)
	}
	p, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	if err != nil {
		return nil, fmt.Errorf("encode an attempt report: %w", err)
	}
	return p, nil
}
