package fleet

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// MaxTargets bounds the deployment targets of a cluster: hubs are told all of them.
const MaxTargets = 1000

// Target is a deployment target of a cluster: something that one of its agents looks after. In an
// active_passive cluster that is the leader; in a sharded one the owner of the shard that its id is hashed to, so a
// task with the target as its shard_key goes to the same agent; in an active_active one they are spread evenly.
type Target struct {
	ID string `json:"id"`
	// Agent is who has it in an active_active cluster; in the others its role says so.
	Agent string `json:"agent,omitempty"`
}

// ShardOf hashes a key to one of n shards with FNV-1a (32 bit). It must never change: keys would move.
func ShardOf(key string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(n))
}

// Targets are the deployment targets of a cluster, sorted by id.
type Targets []Target

// Change adds and removes targets. What is there already, or not there, is left as it is.
func (l *Targets) Change(add, remove []string) (changed bool, err error) {
	for _, id := range add {
		if err := ValidateID("target", id); err != nil {
			return false, err
		}
	}
	next := slices.Clone(*l)
	for _, id := range add {
		if i, found := next.search(id); !found {
			next = slices.Insert(next, i, Target{ID: id})
			changed = true
		}
	}
	for _, id := range remove {
		if i, found := next.search(id); found {
			next = slices.Delete(next, i, i+1)
			changed = true
		}
	}
	if len(next) > MaxTargets {
		return false, fmt.Errorf("a cluster may have at most %d targets", MaxTargets)
	}
	*l = next
	return changed, nil
}

func (l Targets) search(id string) (int, bool) {
	return slices.BinarySearchFunc(l, id, func(t Target, id string) int { return strings.Compare(t.ID, id) })
}

// AgentOfTarget is who looks after a target now; empty: nobody may yet.
func (c *Cluster) AgentOfTarget(t Target) string {
	switch c.Config.ReplicationMode {
	case ActivePassive:
		if c.RoleOf(c.Leader) == RoleLeader {
			return c.Leader
		}
		return ""
	case Sharded:
		if len(c.Shards) == 0 {
			return ""
		}
		s := c.Shards[ShardOf(t.ID, len(c.Shards))]
		if s.Owner == "" || !c.holds(s.Owner, s.Epoch) {
			return ""
		}
		return s.Owner
	}
	return t.Agent
}

// TargetsOf are the targets that an agent looks after, sorted.
func (c *Cluster) TargetsOf(agentID string) []string {
	var ids []string
	for _, t := range c.Targets {
		if agentID != "" && c.AgentOfTarget(t) == agentID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// TargetsHeld are the targets that an agent's roles give it, also while it does not serve any more.
func (c *Cluster) TargetsHeld(agentID string) []string {
	var ids []string
	for _, t := range c.Targets {
		held := t.Agent
		switch {
		case c.Config.ReplicationMode == ActivePassive:
			held = c.Leader
		case c.Config.ReplicationMode == Sharded && len(c.Shards) > 0:
			held = c.Shards[ShardOf(t.ID, len(c.Shards))].Owner
		}
		if agentID != "" && held == agentID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// AssignTargets spreads the targets of an active_active cluster over its online members, evenly within one and with as
// few moves as that needs; a suspect member keeps what it has. In the other modes they follow the roles.
func (c *Cluster) AssignTargets() []RebalanceMove {
	if c.Config.ReplicationMode != ActiveActive {
		for i := range c.Targets {
			c.Targets[i].Agent = ""
		}
		return nil
	}
	was := make([]string, len(c.Targets))
	for i := range c.Targets {
		t := &c.Targets[i]
		was[i] = t.Agent
		if m := c.Member(t.Agent); m == nil || !m.Serving() {
			t.Agent = ""
		}
	}
	shares := targetShares(c)
	if len(shares) == 0 {
		return nil
	}
	c.Targets.release(shares)
	var moves []RebalanceMove
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Agent == "" {
			if q := neediest(shares); q != nil {
				q.owned++
				t.Agent = q.agentID
			}
		}
		if t.Agent != was[i] {
			moves = append(moves, RebalanceMove{Target: t.ID, From: was[i], To: t.Agent})
		}
	}
	return moves
}

// release takes from those with too many what others lack beyond what is free.
func (l Targets) release(shares []shardQuota) {
	lacking := 0
	byAgent := map[string]*shardQuota{}
	for i := range shares {
		q := &shares[i]
		byAgent[q.agentID] = q
		if q.online {
			lacking += max(0, q.quota-q.owned)
		}
	}
	for i := range l {
		if l[i].Agent == "" {
			lacking--
		}
	}
	for i := len(l) - 1; i >= 0 && lacking > 0; i-- {
		if q := byAgent[l[i].Agent]; q != nil && q.online && q.owned > q.quota {
			q.owned--
			lacking--
			l[i].Agent = ""
		}
	}
}

// targetShares is how many targets each serving member has and should have.
func targetShares(c *Cluster) []shardQuota {
	held := map[string]int{}
	for _, t := range c.Targets {
		held[t.Agent]++
	}
	return quotas(c.Members, held, len(c.Targets))
}
