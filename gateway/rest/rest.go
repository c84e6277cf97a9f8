// Package rest holds what all resources of the clients' API share: how requests are read, bounded, waited for and
// answered, and how clusters and agents are found.
package rest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
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
	Store      store.Store
	Logger     *zap.Logger
	PageTokens PageTokens
	clusters   cache[knownCluster]
	types      cache[fleet.LaneTypes]       // of clusters
	runs       cache[diagnosis.ScheduleRun] // of healing and scaling
	opening    sync.Map                     // by cluster and tenant, an opener of lanes
	ends       endPolls
	pins       store.Pins
	batches    sync.Map      // by tenant or token, a channel that holds one element while a batch is taken
	elements   chan struct{} // of batches, that are being started
}

// New makes a core. It calls nothing until it is asked. key is the installation's; empty: there is none.
func New(s store.Store, logger *zap.Logger, key []byte) *Core {
	return &Core{
		Store: s, Logger: logger, PageTokens: key,
		clusters: cache[knownCluster]{fresh: knownFor}, types: cache[fleet.LaneTypes]{fresh: typesKnown},
		runs: cache[diagnosis.ScheduleRun]{fresh: runFresh},
		ends: endPolls{of: map[string]*endPoll{}}, elements: make(chan struct{}, store.BatchFanOut()/2),
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

// Serve adds an operation that answers with what do returns. All that do calls is bounded by CallTimeout.
func Serve[In, Out any](
	routes huma.API, policy access.Policy, o huma.Operation, do func(context.Context, *In) (Out, error),
) {
	Hold(routes, policy, o, func(ctx context.Context, in *In) (Out, error) {
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		return do(ctx, in)
	})
}

// Hold is Serve for an operation that may take longer: it bounds its calls by itself.
func Hold[In, Out any](
	routes huma.API, policy access.Policy, o huma.Operation, do func(context.Context, *In) (Out, error),
) {
	httpapi.Register(routes, policy, o, func(ctx context.Context, in *In) (*Output[Out], error) {
		return Reply(do(ctx, in))
	})
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
