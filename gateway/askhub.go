package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

const (
	// hubAnswer is how long a hub has to take a question.
	hubAnswer = 3 * time.Second
	// hubMargin is how much longer than asked an answer may take.
	hubMargin = 10 * time.Second
)

const noStandaloneActivities = "asking a hub for what only it knows needs standalone activities, which this Temporal does not have: " +
	"use a newer server, with activity.enableStandalone and history.enableChasm on in its dynamic configuration"

// hubQuestion is a question to one hub.
type hubQuestion struct {
	hub     string
	id      string // unique
	summary string
	wait    time.Duration // how long the hub may take on purpose
	margin  time.Duration // how much longer the answer may take; zero: hubMargin
}

// ask puts a question to a hub through an activity without a workflow on the hub's own queue, so that hub and gateway need
// not reach each other. answered is false when the hub does not answer in time. Nothing of it is kept in Temporal.
func ask[In, Out any](
	ctx context.Context, g *Gateway, activity contract.Activity[In, Out], q hubQuestion, in In,
) (answer Out, answered bool, err error) {
	margin := cmp.Or(q.margin, hubMargin)
	ctx, cancel := context.WithTimeout(ctx, hubAnswer+q.wait+margin)
	defer cancel()
	handle, err := g.client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: q.id, TaskQueue: contract.HubQueue(q.hub), ScheduleToStartTimeout: hubAnswer, StartToCloseTimeout: q.wait + margin,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: q.summary,
	}, activity.Name, in)
	if store.KindOf(err) == store.Unsupported {
		return answer, false, httpapi.Problem(protocol.CodeNotSupported, noStandaloneActivities)
	}
	if err != nil && context.Cause(ctx) == context.Canceled { //nolint:errorlint // the asker has gone, which is no fault
		return answer, false, ctx.Err()
	}
	if err != nil {
		return answer, false, g.answer(err, "ask a hub", protocol.CodeInternal)
	}
	defer g.tidy(ctx, q.id, handle.GetRunID())
	err = handle.Get(ctx, &answer)
	var late *temporal.TimeoutError
	switch {
	case err == nil:
		return answer, true, nil
	case errors.As(err, &late):
		return answer, false, nil
	case ctx.Err() != nil && context.Cause(ctx) == context.Canceled: //nolint:errorlint // the asker has gone, which is no fault
		return answer, false, ctx.Err()
	}
	return answer, false, g.answer(err, "read a hub's answer", protocol.CodeInternal)
}

// tidy removes a question from Temporal: a log, above all, is not to be kept there. It is done even if the client has gone.
func (g *Gateway) tidy(ctx context.Context, id, run string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, err := g.client.WorkflowService().DeleteActivityExecution(ctx, &workflowservice.DeleteActivityExecutionRequest{
		Namespace: g.namespace, ActivityId: id, RunId: run,
	})
	if err != nil {
		g.logger.Debug("a question to a hub was not removed; Temporal's retention does") // never with the error: it may hold log lines
	}
}
