package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// ShardOwner is the owner of one shard.
type ShardOwner struct {
	Owner string `json:"owner,omitempty"` // "" while nobody may serve the shard
	Epoch int64  `json:"epoch,omitempty"` // epoch of the newest ownership
	// Handovers counts how often the shard went from one agent to another.
	Handovers int64 `json:"handovers,omitempty"`
	// From is the previous owner, and FreeAt is when its lease has certainly run out, while the shard has no owner.
	From   string    `json:"from,omitempty"`
	FreeAt time.Time `json:"free_at,omitzero"`
	// Next is the next owner by a rebalance, if that agent is there then.
	Next string `json:"next,omitempty"`
}

// Shards are the owners of a cluster's shards, by number.
type Shards []ShardOwner

// AssignShards spreads the shards of a sharded cluster evenly over its members with as few moves as possible, and
// returns its changes. It takes shards from members that do not serve (unless VacateShards did) and from those with too
// many, and leaves them without an owner until the old lease has run out. Call it again at waitUntil, which is zero
// when nothing waits. A suspect member keeps its shards and gets none, so a closed connection moves no shard. roleLease
// is the longest that an owner may go on after now, counting renewals by a hub without the change.
func (c *Cluster) AssignShards(roleLease time.Duration, now time.Time) (moves []api.ShardMove, waitUntil time.Time) {
	if c.Config.ReplicationMode != api.Sharded {
		return nil, time.Time{}
	}
	for len(c.Shards) < c.Config.WithDefaults().Shards {
		c.Shards = append(c.Shards, ShardOwner{})
	}
	moves = c.releaseShards(now.Add(max(roleLease, 0)))
	members := shardQuotas(c)
	for i := range c.Shards {
		s := &c.Shards[i]
		switch {
		case s.Owner != "":
		case now.Before(s.FreeAt):
			waitUntil = Sooner(waitUntil, s.FreeAt)
		default:
			if q := nextOwner(members, s.Next); q != nil {
				q.owned++
				c.Member(q.agentID).Relieved = false
				c.LastEpoch++
				moves = append(moves, api.ShardMove{Shard: i, From: s.From, To: q.agentID, Epoch: c.LastEpoch})
				*s = ShardOwner{Owner: q.agentID, Epoch: c.LastEpoch,
					Handovers: handedOver(s.Handovers, s.From, q.agentID)}
			}
		}
	}
	return moves, waitUntil
}

// releaseShards takes all shards from agents that no longer hold them. From online members above their quota it takes
// as many as other online members lack beyond the free ones.
func (c *Cluster) releaseShards(freeAt time.Time) (moves []api.ShardMove) {
	unowned := 0
	for i := range c.Shards {
		s := &c.Shards[i]
		if s.Owner != "" && !c.holds(s.Owner, s.Epoch) {
			moves = append(moves, s.release(i, freeAt))
		}
		if s.Owner == "" {
			unowned++
		}
	}
	members := shardQuotas(c)
	byAgent := make(map[string]*shardQuota, len(members))
	lacking := -unowned
	for i := range members {
		if q := &members[i]; q.online {
			byAgent[q.agentID] = q
			lacking += max(q.quota-q.owned, 0)
		}
	}
	for i := len(c.Shards) - 1; i >= 0 && lacking > 0; i-- {
		if q := byAgent[c.Shards[i].Owner]; q != nil && q.owned > q.quota {
			q.owned--
			lacking--
			moves = append(moves, c.Shards[i].release(i, freeAt))
		}
	}
	return moves
}

// Vacate takes all shards from an agent that was lost, left or is failed over by hand, and returns their numbers.
// leaseRemaining is how long it may still act as their owner; zero after a goodbye.
func (l Shards) Vacate(agentID string, leaseRemaining time.Duration, now time.Time) []int {
	var vacated []int
	for i := range l {
		if s := &l[i]; agentID != "" && s.Owner == agentID {
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

func (s *ShardOwner) release(shard int, freeAt time.Time) api.ShardMove {
	ended := api.ShardMove{Shard: shard, From: s.Owner, Epoch: s.Epoch}
	*s = ShardOwner{From: s.Owner, Epoch: s.Epoch, FreeAt: freeAt, Handovers: s.Handovers}
	return ended
}

// handedOver returns the count of handovers after a role went from one agent to another. A first holder, or a return to
// the previous one, does not count.
func handedOver(count int64, from, to string) int64 {
	if from != "" && from != to {
		count++
	}
	return count
}

// shardQuota is how many shards or targets a serving member has and should have.
type shardQuota struct {
	agentID      string
	online       bool // else suspect or relieved: it gets none
	owned, quota int
}

// shardQuotas returns how many shards each serving member has and should have.
func shardQuotas(c *Cluster) []shardQuota {
	held := make(map[string]int, len(c.Members))
	for i := range c.Shards {
		held[c.Shards[i].Owner]++
	}
	return quotas(c.Members, held, len(c.Shards))
}

// quotas divides shards or targets among the serving members. Members with most keep the larger part of an uneven
// division, which needs the fewest moves. Members that get none come last: suspect ones, and relieved ones while there
// are others.
func quotas(all []Member, held map[string]int, things int) []shardQuota {
	others := slices.ContainsFunc(all, func(m Member) bool { return m.MayHold() && !m.Relieved })
	var members []shardQuota
	for i := range all {
		if m := &all[i]; m.Serving() {
			members = append(members, shardQuota{agentID: m.AgentID,
				online: m.MayHold() && !(m.Relieved && others), owned: held[m.AgentID]})
		}
	}
	slices.SortFunc(members, func(a, b shardQuota) int {
		return cmp.Or(CompareBool(a.online, b.online), cmp.Compare(b.owned, a.owned),
			strings.Compare(a.agentID, b.agentID))
	})
	divide(members, things)
	return members
}

// divide divides n things evenly; the first members get the larger part of an uneven division.
func divide(members []shardQuota, n int) {
	for i := range members {
		members[i].quota = n / len(members)
		if i < n%len(members) {
			members[i].quota++
		}
	}
}

// nextOwner returns the planned member if it is online, else the neediest.
func nextOwner(members []shardQuota, planned string) *shardQuota {
	for i := range members {
		if q := &members[i]; q.online && q.agentID == planned {
			return q
		}
	}
	return neediest(members)
}

// neediest returns the online member with the fewest shards, the lowest id among equals; nil when none is online.
func neediest(members []shardQuota) *shardQuota {
	var best *shardQuota
	for i := range members {
		q := &members[i]
		if q.online && (best == nil || q.owned < best.owned || q.owned == best.owned && q.agentID < best.agentID) {
			best = q
		}
	}
	return best
}
