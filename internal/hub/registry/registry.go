// Package registry publishes a hub's sessions to Temporal's worker registry.
package registry

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	workerpb "go.temporal.io/api/worker/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/sdk/backoff"
)

const (
	// batch bounds the sessions in one call.
	batch = 500
	// settle is how long changes gather into one publication.
	settle = 100 * time.Millisecond
)

// parts is how many publications an interval has. Each takes a part of the sessions, so that a large fleet does not
// hold up the work of others.
const parts = 10

// Publisher keeps the worker registry up to date: each session once in an interval, and soon after it changed. The
// registry is memory only and a read model; nothing is decided from it.
type Publisher struct {
	hub      part.Hub
	interval time.Duration
	sessions Sessions
	soon     part.Signal

	mu      sync.Mutex
	gone    []*workerpb.WorkerHeartbeat
	changed map[string]bool // agents
}

// Sessions returns the entries of the agents that it is to pick.
type Sessions func(picks func(agent string) bool) []*workerpb.WorkerHeartbeat

// New makes a publisher of the entries that sessions returns.
func New(hub part.Hub, interval time.Duration, sessions Sessions) *Publisher {
	return &Publisher{hub: hub, interval: interval, sessions: sessions, soon: part.NewSignal(),
		changed: map[string]bool{}}
}

// Run publishes until the context ends, and then once more what has ended: otherwise its agents' ids would be taken for
// online for minutes.
func (p *Publisher) Run(ctx context.Context) {
	tick := time.NewTicker(p.interval / parts)
	defer tick.Stop()
	seed := maphash.MakeSeed()
	for next := uint64(0); ; {
		select {
		case <-ctx.Done():
			gone, _ := p.take()
			p.publish(context.WithoutCancel(ctx), gone)
			return
		case <-tick.C:
			p.publish(ctx, p.sessions(func(agent string) bool { return maphash.String(seed, agent)%parts == next }))
			next = (next + 1) % parts
		case <-p.soon:
			if backoff.Pause(ctx, settle); ctx.Err() != nil {
				continue
			}
			gone, changed := p.take()
			p.publish(ctx, append(gone, p.sessions(func(agent string) bool { return changed[agent] })...))
		}
	}
}

// Changed publishes an agent's session soon.
func (p *Publisher) Changed(agent string) {
	p.mu.Lock()
	p.changed[agent] = true
	p.mu.Unlock()
	p.soon.Send()
}

// Remove publishes soon that a session has ended, by its last entry.
func (p *Publisher) Remove(entry *workerpb.WorkerHeartbeat) {
	p.mu.Lock()
	p.gone = append(p.gone, entry)
	p.mu.Unlock()
	p.soon.Send()
}

// take returns what waits to be published.
func (p *Publisher) take() (gone []*workerpb.WorkerHeartbeat, changed map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone, changed = p.gone, p.changed
	p.gone, p.changed = nil, map[string]bool{}
	return gone, changed
}

func (p *Publisher) publish(ctx context.Context, entries []*workerpb.WorkerHeartbeat) {
	for len(entries) > 0 {
		n := min(len(entries), batch)
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := p.hub.Publish(call, entries[:n])
		cancel()
		if err != nil {
			p.hub.Logger.Debug("The worker registry was not updated", zap.Error(err))
		}
		entries = entries[n:]
	}
}
