package store

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

const (
	// mostStrangeAgents is for how many agents that their clusters do not know a tenant may have work made at a time.
	mostStrangeAgents = 256
	// laneLoaded is how long Temporal keeps a queue in memory, about 400 KiB, that nobody polls.
	laneLoaded = 5 * time.Minute
	// membersKnown is how long it is believed who is in a cluster.
	membersKnown = 2 * time.Second
)

// Pins bounds the lanes of single agents that are opened for nobody. Each process that makes tasks has one; its zero
// value is ready for use.
type Pins struct {
	mu      sync.Mutex
	members map[string]membership        // by cluster
	strange map[string]map[pin]time.Time // by tenant: until when the lane is in memory
}

type membership struct {
	agents map[string]struct{}
	until  time.Time
}

type pin struct{ cluster, agent string }

// Admit refuses work for an agent that its cluster does not know, if the tenant has lately had work made, or scheduled,
// for many unknown agents. While the cluster does not answer, the last known members count. The error is Refused.
func (p *Pins) Admit(
	ctx context.Context, spec *api.TaskSpec, view func(context.Context, string) (contract.ClusterView, error),
) error {
	if spec.Agent == "" {
		return nil
	}
	p.mu.Lock()
	known, now := p.members[spec.Cluster], time.Now()
	p.mu.Unlock()
	if !now.Before(known.until) {
		if cluster, err := view(ctx, spec.Cluster); err == nil {
			known.agents = map[string]struct{}{}
			for i := range cluster.Members {
				known.agents[cluster.Members[i].AgentID] = struct{}{}
			}
		}
		known.until = time.Now().Add(membersKnown)
	}
	loaded := now
	if spec.StartAt.After(now) {
		loaded = spec.StartAt
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members == nil || len(p.members) > 1000 {
		p.members = map[string]membership{}
	}
	p.members[spec.Cluster] = known
	if _, member := known.agents[spec.Agent]; member ||
		p.admitLocked(pin{spec.Cluster, spec.Agent}, spec.Tenant, now, loaded.Add(laneLoaded)) {
		return nil
	}
	return temporal.NewApplicationError("work was made for as many agents that their clusters do not know "+
		"as may be at a time: name agents that there are, or wait for five minutes", contract.Refused)
}

func (p *Pins) admitLocked(of pin, tenant string, now, until time.Time) bool {
	strange := p.strange[tenant]
	for other, until := range strange {
		if !now.Before(until) {
			delete(strange, other)
		}
	}
	known, counted := strange[of]
	if !counted && len(strange) >= mostStrangeAgents {
		return false
	}
	if p.strange == nil {
		p.strange = map[string]map[pin]time.Time{}
	}
	if strange == nil {
		strange = map[pin]time.Time{}
		p.strange[tenant] = strange
	}
	if until.After(known) {
		strange[of] = until
	}
	return true
}
