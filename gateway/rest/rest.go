// Package rest holds what all resources of the clients' API share: how requests are read, bounded, waited for and
// answered, and how clusters and agents are found.
package rest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Bounds of what one request may cost.
const (
	// CallTimeout bounds the calls to Temporal of one request, so that a client hears of an outage within 5 s.
	CallTimeout = 4500 * time.Millisecond
	// QueryTimeout bounds a question to a workflow: it needs a worker, and there may be none.
	QueryTimeout = 3 * time.Second
	// FanOut bounds the calls to Temporal that one request makes at the same time.
	FanOut = 32
)

// Core is what the handlers of every resource have.
type Core struct {
	Store    store.Store
	Logger   *zap.Logger
	clusters cache[knownCluster]
	runs     cache[diagnosis.ScheduleRun] // of healing and scaling
	opening  chan struct{}                // held while a lane is opened
}

// New makes a core. It calls nothing until it is asked.
func New(s store.Store, logger *zap.Logger) *Core {
	return &Core{
		Store: s, Logger: logger, opening: make(chan struct{}, 1),
		clusters: cache[knownCluster]{fresh: knownFor}, runs: cache[diagnosis.ScheduleRun]{fresh: runFresh},
	}
}

// ClusterInput names a cluster in the path.
type ClusterInput struct {
	ID string `path:"id" doc:"The cluster's name."`
}

// AgentInput names an agent in the path.
type AgentInput struct {
	ID string `path:"id" doc:"The agent's id."`
}

// Output is an answer with a body.
type Output[T any] struct{ Body T }

// Reply answers what was read or done, or the error that it met.
func Reply[T any](body T, err error) (*Output[T], error) {
	if err != nil {
		return nil, err
	}
	return &Output[T]{body}, nil
}

// StatusOutput is an answer with a body, whose status tells more.
type StatusOutput[T any] struct {
	Status int
	Body   T
}

// Op is an operation of the API. at is its method and its path below /api/v1/agents, as in "GET /drains/{id}".
func Op(tag, id, at, summary, description string) huma.Operation {
	method, path, _ := strings.Cut(at, " ")
	return huma.Operation{OperationID: id, Method: method, Path: "/api/v1/agents" + path, Tags: []string{tag},
		Summary: summary, Description: description}
}

// WithStatus gives an operation the status of its answer, where that is not 200.
func WithStatus(status int, o huma.Operation) huma.Operation {
	o.DefaultStatus = status
	return o
}

// WithPayload gives an operation room for a task's payload or result in its body.
func WithPayload(o huma.Operation) huma.Operation {
	o.MaxBodyBytes = httpapi.PayloadMaxBody
	return o
}

// Known is a time in UTC, nil when it is not known.
func Known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Code is the code of the problem that an error is; ok is false for another error, and for none.
func Code(err error) (string, bool) {
	if err == nil {
		return "", false
	}
	return httpapi.Code(err)
}

// Bounds of the pause after which a wait looks again: an eighth of the time waited so far.
const (
	maxWait    = 60 * time.Second
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// WaitUntil looks again and again until it has found what it looks for, fails, or the time to wait is over; last says
// that it does not look again after that.
func (c *Core) WaitUntil(
	ctx context.Context, wait time.Duration, doing string,
	look func(ctx context.Context, last bool) (found bool, err error),
) error {
	start := time.Now()
	for {
		elapsed := time.Since(start)
		found, err := look(ctx, elapsed >= wait)
		if found || err != nil || elapsed >= wait {
			return err
		}
		elapsed = time.Since(start)
		next := min(max(elapsed/8, firstPause), lastPause)
		if err := pause(ctx, max(0, min(next, wait-elapsed))); err != nil {
			return c.Answer(err, doing, protocol.CodeInternal)
		}
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ParseWait reads the parameter wait: huma takes a named integer type such as fleet.Duration for a number.
func ParseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := fleet.ParseDuration(text)
	if err == nil && (wait < 0 || wait > maxWait) {
		err = fmt.Errorf("must be between 0s and %s", maxWait)
	}
	if err != nil {
		return 0, Invalid("query.wait", err)
	}
	return wait, nil
}
