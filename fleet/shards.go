package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// ShardOwner says who owns one shard (rows A3, D2).
type ShardOwner struct {
	Owner string `json:"owner,omitempty"` // "" while nobody may serve the shard
	Epoch int64  `json:"epoch,omitempty"` // of the newest ownership
	// From is who owned the shard before and FreeAt when that agent's lease has certainly run out, while it has no owner.
	From   string    `json:"from,omitempty"`
	FreeAt time.Time `json:"free_at,omitzero"`
}

// ShardMove is one step of a shard: without To it was taken from From (Epoch is the ownership that ended), else it was
// given to To under a new Epoch.
type ShardMove struct {
	Shard int    `json:"shard"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Epoch int64  `json:"epoch"`
}

// AssignShards spreads the shards of a sharded cluster evenly over its online members with as few moves as that needs,
// and returns what it changed. It takes shards from members that do not serve (unless VacateShards already did) and from
// those that have too many, and leaves them without an owner until the old lease has run out; call it again at
// waitUntil, which is zero when nothing waits. A suspect member keeps what it has and gets nothing, so that a closed
// connection moves no shard. roleLease is the longest that an owner may go on after now, counting renewals by a hub that
// has not heard yet.
func (c *Cluster) AssignShards(roleLease time.Duration, now time.Time) (moves []ShardMove, waitUntil time.Time) {
	if c.Config.ReplicationMode != Sharded {
		return nil, time.Time{}
	}
	for len(c.Shards) < c.Config.WithDefaults().Shards {
		c.Shards = append(c.Shards, ShardOwner{})
	}
	freeAt := now.Add(max(roleLease, 0))
	for i := range c.Shards {
		if s := &c.Shards[i]; s.Owner != "" && !c.holds(s.Owner, s.Epoch) {
			moves = append(moves, s.release(i, freeAt))
		}
	}
	quotas := c.shardQuotas()
	byAgent := make(map[string]*shardQuota, len(quotas))
	for i := range quotas {
		byAgent[quotas[i].agentID] = &quotas[i]
	}
	for i := len(c.Shards) - 1; i >= 0; i-- {
		if q := byAgent[c.Shards[i].Owner]; q != nil && q.owned > q.quota {
			q.owned--
			moves = append(moves, c.Shards[i].release(i, freeAt))
		}
	}
	for i := range c.Shards {
		s := &c.Shards[i]
		switch {
		case s.Owner != "":
		case now.Before(s.FreeAt):
			if waitUntil.IsZero() || s.FreeAt.Before(waitUntil) {
				waitUntil = s.FreeAt
			}
		default:
			if q := neediest(quotas); q != nil {
				q.owned++
				c.LastEpoch++
				moves = append(moves, ShardMove{Shard: i, From: s.From, To: q.agentID, Epoch: c.LastEpoch})
				*s = ShardOwner{Owner: q.agentID, Epoch: c.LastEpoch}
			}
		}
	}
	return moves, waitUntil
}

// VacateShards takes all shards from an agent that was lost, left or is failed over by hand, and returns their numbers.
// leaseRemaining is how long it may still act as their owner; zero after a goodbye.
func (c *Cluster) VacateShards(agentID string, leaseRemaining time.Duration, now time.Time) []int {
	var vacated []int
	for i := range c.Shards {
		if s := &c.Shards[i]; agentID != "" && s.Owner == agentID {
			s.release(i, now.Add(max(leaseRemaining, 0)))
			vacated = append(vacated, i)
		}
	}
	return vacated
}

// ShardsOf returns the shards that the agent may serve, ascending. A newer process under the same id has none of its
// predecessor's.
func (c *Cluster) ShardsOf(agentID string) []int {
	var owned []int
	for i := range c.Shards {
		if s := &c.Shards[i]; agentID != "" && s.Owner == agentID && c.holds(agentID, s.Epoch) {
			owned = append(owned, i)
		}
	}
	return owned
}

func (s *ShardOwner) release(shard int, freeAt time.Time) ShardMove {
	ended := ShardMove{Shard: shard, From: s.Owner, Epoch: s.Epoch}
	*s = ShardOwner{From: s.Owner, Epoch: s.Epoch, FreeAt: freeAt}
	return ended
}

// shardQuota is how many shards an online member has and should have.
type shardQuota struct {
	agentID      string
	owned, quota int
}

// shardQuotas divides the shards that no suspect member holds, waiting ones included, among the online members. Who has
// most keeps the larger part of an uneven division: that needs the fewest moves.
func (c *Cluster) shardQuotas() []shardQuota {
	held := make(map[string]int, len(c.Members))
	for i := range c.Shards {
		held[c.Shards[i].Owner]++
	}
	var quotas []shardQuota
	rest := len(c.Shards)
	for i := range c.Members {
		switch m := &c.Members[i]; m.Status {
		case AgentOnline:
			quotas = append(quotas, shardQuota{agentID: m.AgentID, owned: held[m.AgentID]})
		case AgentSuspect:
			rest -= held[m.AgentID]
		}
	}
	slices.SortFunc(quotas, func(a, b shardQuota) int {
		return cmp.Or(cmp.Compare(b.owned, a.owned), strings.Compare(a.agentID, b.agentID))
	})
	for i := range quotas {
		quotas[i].quota = rest / len(quotas)
		if i < rest%len(quotas) {
			quotas[i].quota++
		}
	}
	return quotas
}

// neediest returns the member with the fewest shards of those below their quota, the lowest id among equals; nil when
// there is none.
func neediest(quotas []shardQuota) *shardQuota {
	var best *shardQuota
	for i := range quotas {
		q := &quotas[i]
		if q.owned < q.quota && (best == nil || q.owned < best.owned || q.owned == best.owned && q.agentID < best.agentID) {
			best = q
		}
	}
	return best
}
