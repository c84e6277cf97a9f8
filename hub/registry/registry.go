// Package registry publishes a hub's sessions to Temporal's worker registry.
package registry

import (
	"context"
	"sync"
	"time"

	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/hub/part"
)

const (
	// batch bounds the sessions in one call.
	batch = 500
	// settle is how long changes gather into one publication.
	settle = 100 * time.Millisecond
)

// Publisher keeps the worker registry up to date: all sessions at each interval, and soon after one opens or ends. The
// registry is memory only and a read model; nothing is decided from it.
type Publisher struct {
	hub      part.Hub
	interval time.Duration
	sessions func() []*workerpb.WorkerHeartbeat
	soon     part.Signal

	mu   sync.Mutex
	gone []*workerpb.WorkerHeartbeat
}

// New makes a publisher of the entries that sessions returns.
func New(hub part.Hub, interval time.Duration, sessions func() []*workerpb.WorkerHeartbeat) *Publisher {
	return &Publisher{hub: hub, interval: interval, sessions: sessions, soon: part.NewSignal()}
}

// Run publishes until the context ends.
func (p *Publisher) Run(ctx context.Context) {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.soon:
			backoff.Pause(ctx, settle)
		}
		p.publish(ctx)
	}
}

// Soon asks for a publication without waiting for the next regular one.
func (p *Publisher) Soon() { p.soon.Send() }

// Remove publishes soon that a session has ended, by its last entry.
func (p *Publisher) Remove(entry *workerpb.WorkerHeartbeat) {
	p.mu.Lock()
	p.gone = append(p.gone, entry)
	p.mu.Unlock()
	p.Soon()
}

func (p *Publisher) publish(ctx context.Context) {
	p.mu.Lock()
	entries := p.gone
	p.gone = nil
	p.mu.Unlock()
	entries = append(entries, p.sessions()...)
	for len(entries) > 0 {
		n := min(len(entries), batch)
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := p.hub.Client.WorkflowService().RecordWorkerHeartbeat(call,
			&workflowservice.RecordWorkerHeartbeatRequest{
				Namespace:       p.hub.Namespace,
				Identity:        p.hub.Identity,
				WorkerHeartbeat: entries[:n],
				ResourceId:      "worker:" + p.hub.Identity,
			})
		cancel()
		if err != nil {
			p.hub.Logger.Debug("The worker registry was not updated", zap.Error(err))
		}
		entries = entries[n:]
	}
}
