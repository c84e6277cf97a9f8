package rest

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

const (
	// mostStrangeAgents is for how many agents that their clusters do not know a tenant may submit work at a time.
	mostStrangeAgents = 256
	// laneLoaded is how long Temporal keeps a queue in memory, about 400 KiB, that nobody polls.
	laneLoaded = 5 * time.Minute
	// membersKnown is how long it is believed who is in a cluster.
	membersKnown = 2 * time.Second
)

// pins bounds the lanes of single agents that are opened for nobody.
type pins struct {
	mu      sync.Mutex
	members map[string]membership        // by cluster
	strange map[string]map[pin]time.Time // by tenant: until when the lane is in memory
}

type membership struct {
	agents  map[string]struct{}
	unknown bool // the cluster did not answer
	until   time.Time
}

type pin struct{ cluster, agent string }

// admitPin refuses work for one more agent that its cluster does not know, when the tenant has submitted such work for
// many of late. Where the cluster does not answer, nothing is refused.
func (c *Core) admitPin(ctx context.Context, cluster, agent, tenant string) error {
	p := &c.pins
	p.mu.Lock()
	known, now := p.members[cluster], time.Now()
	p.mu.Unlock()
	if !now.Before(known.until) {
		view, err := c.View(ctx, cluster)
		known = membership{agents: map[string]struct{}{}, unknown: err != nil, until: time.Now().Add(membersKnown)}
		for i := range view.Members {
			known.agents[view.Members[i].AgentID] = struct{}{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members == nil || len(p.members) > 1000 {
		p.members = map[string]membership{}
	}
	p.members[cluster] = known
	if _, member := known.agents[agent]; member || known.unknown || p.admitLocked(pin{cluster, agent}, tenant, now) {
		return nil
	}
	return httpapi.Problem(protocol.CodeConflict, "work was submitted for as many agents that their clusters do not know "+
		"as may be at a time: name agents that there are, or wait for five minutes")
}

func (p *pins) admitLocked(of pin, tenant string, now time.Time) bool {
	strange := p.strange[tenant]
	if now.Before(strange[of]) {
		return true
	}
	for other, until := range strange {
		if !now.Before(until) {
			delete(strange, other)
		}
	}
	if len(strange) >= mostStrangeAgents {
		return false
	}
	if p.strange == nil {
		p.strange = map[string]map[pin]time.Time{}
	}
	if strange == nil {
		strange = map[pin]time.Time{}
		p.strange[tenant] = strange
	}
	strange[of] = now.Add(laneLoaded)
	return true
}
