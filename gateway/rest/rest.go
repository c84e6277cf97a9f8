// Package rest holds what all resources of the clients' API share: how requests are read, bounded, waited for and
// answered, and how clusters and agents are found.
package rest

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/store"
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
	types      cache[cluster.LaneTypes]     // of clusters
	runs       cache[diagnosis.ScheduleRun] // of healing and scaling
	opening    sync.Map                     // by cluster and tenant, an opener of lanes
	ends       endPolls
	pins       store.Pins
	batches    limit.AtOnce  // one is taken of each tenant or token
	elements   chan struct{} // of batches, that are being started
}

// New makes a core. It calls nothing until it is asked. key is the installation's; empty: there is none.
func New(s store.Store, logger *zap.Logger, key []byte) *Core {
	return &Core{
		Store: s, Logger: logger, PageTokens: key,
		clusters: cache[knownCluster]{fresh: knownFor}, types: cache[cluster.LaneTypes]{fresh: typesKnown},
		runs: cache[diagnosis.ScheduleRun]{fresh: runFresh},
		ends: endPolls{of: map[string]*endPoll{}}, elements: make(chan struct{}, store.BatchFanOut()/2),
	}
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
