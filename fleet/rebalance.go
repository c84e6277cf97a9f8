package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rebalance is the answer to asking a cluster to spread its work evenly.
type Rebalance struct {
	Cluster string          `json:"cluster"`
	DryRun  bool            `json:"dry_run,omitempty"`
	Mode    ReplicationMode `json:"replication_mode"`
	// Why says in words what came of it.
	Why   string          `json:"why"`
	Moves []RebalanceMove `json:"moves"`
	// Agents is who has how much, before and after.
	Agents []AgentShare `json:"agents"`
}

// RebalanceMove moves one shard with its targets, or one target of an active_active cluster.
type RebalanceMove struct {
	Shard   *int     `json:"shard,omitempty"`
	Target  string   `json:"target,omitempty"`
	Targets []string `json:"targets,omitempty"` // of the shard
	From    string   `json:"from,omitempty"`    // empty: nobody had it
	To      string   `json:"to"`
}

// AgentShare is what one agent has before and after a rebalance.
type AgentShare struct {
	AgentID       string `json:"agent_id"`
	Shards        int    `json:"shards"`
	ShardsBefore  int    `json:"shards_before"`
	Targets       int    `json:"targets"`
	TargetsBefore int    `json:"targets_before"`
}

// Rebalance spreads shards evenly, and then the targets in them as far as exchanging shards does, with as few moves as
// that needs; the targets of an active_active cluster one by one. A shard that moves is free when its old owner's lease
// has run out; call AssignShards as ever. What it moved is what it answers; asked again, it finds nothing to do.
func (c *Cluster) Rebalance(roleLease time.Duration, now time.Time, dryRun bool) Rebalance {
	answer := Rebalance{Cluster: c.Config.Name, DryRun: dryRun, Mode: c.Config.ReplicationMode,
		Moves: []RebalanceMove{}}
	before, after := copyOwners(c), copyOwners(c)
	switch c.Config.ReplicationMode {
	case ActiveActive:
		answer.Moves = append(answer.Moves, after.AssignTargets()...)
		if !dryRun {
			c.Targets = after.Targets
		}
	case Sharded:
		after.settleShards(now)
		after.exchangeShards()
		answer.Moves = append(answer.Moves, shardMoves(c, after.Shards)...)
		if !dryRun {
			planShards(c, after.Shards, now.Add(max(roleLease, 0)))
		}
	}
	answer.Agents = shares(before, after)
	answer.Why = answer.words()
	return answer
}

// ownersPlan is a copy of a cluster in which shards and targets may change their owners.
type ownersPlan struct{ *Cluster }

func copyOwners(c *Cluster) ownersPlan {
	copied := *c
	copied.Shards, copied.Targets = slices.Clone(c.Shards), slices.Clone(c.Targets)
	return ownersPlan{&copied}
}

// settleShards assigns shards as they will be when nothing waits for a lease any more.
func (c ownersPlan) settleShards(now time.Time) {
	for range 3 { // what is on its way, what is taken for it, and that nothing is left
		_, wait := c.AssignShards(0, now)
		if wait.IsZero() {
			return
		}
		for i := range c.Shards {
			c.Shards[i].FreeAt = time.Time{}
		}
	}
}

// exchangeShards evens out the targets of online members: as long as that helps, who has most gives a shard to who has
// fewest, for one with fewer targets or, where it has more shards too, for none.
func (c ownersPlan) exchangeShards() {
	weights := make([]int, len(c.Shards))
	for _, t := range c.Targets {
		weights[ShardOf(t.ID, len(c.Shards))]++
	}
	for range len(c.Shards) {
		most, fewest := c.extremes(weights)
		if most == nil || most.weight-fewest.weight < 2 {
			return
		}
		give, take, best := -1, -1, most.weight-fewest.weight
		for _, s := range most.shards {
			for _, t := range append([]int{-1}, fewest.shards...) {
				back := 0
				if t >= 0 {
					back = weights[t]
				} else if len(most.shards) <= len(fewest.shards) {
					continue // would upset the number of shards
				}
				if gap := abs(most.weight - fewest.weight - 2*(weights[s]-back)); gap < best {
					give, take, best = s, t, gap
				}
			}
		}
		if give < 0 {
			return
		}
		c.Shards[give].Owner = fewest.agentID
		if take >= 0 {
			c.Shards[take].Owner = most.agentID
		}
	}
}

// holding is the shards of one online member and how many targets are in them.
type holding struct {
	agentID string
	shards  []int
	weight  int
}

// extremes are the online members with the most and the fewest targets; nil when there are not two.
func (c ownersPlan) extremes(weights []int) (most, fewest *holding) {
	byAgent := map[string]*holding{}
	var holdings []*holding
	for i := range c.Members {
		if m := &c.Members[i]; m.Status == AgentOnline {
			h := &holding{agentID: m.AgentID}
			byAgent[m.AgentID] = h
			holdings = append(holdings, h)
		}
	}
	for i := range c.Shards {
		if h := byAgent[c.Shards[i].Owner]; h != nil {
			h.shards, h.weight = append(h.shards, i), h.weight+weights[i]
		}
	}
	if len(holdings) < 2 {
		return nil, nil
	}
	byWeight := func(a, b *holding) int { return cmp.Compare(a.weight, b.weight) }
	return slices.MaxFunc(holdings, byWeight), slices.MinFunc(holdings, byWeight)
}

// shardMoves are what must move to come to the wanted owners.
func shardMoves(c *Cluster, wanted []ShardOwner) []RebalanceMove {
	inShard := map[int][]string{}
	for _, t := range c.Targets {
		shard := ShardOf(t.ID, len(wanted))
		inShard[shard] = append(inShard[shard], t.ID)
	}
	var moves []RebalanceMove
	for i := range wanted {
		now := ShardOwner{}
		if i < len(c.Shards) {
			now = c.Shards[i]
		}
		to := wanted[i].Owner
		if now.Owner == "" && now.Next == to && to != "" || now.Owner == to {
			continue // it is so, or is on its way
		}
		shard := i
		moves = append(moves, RebalanceMove{Shard: &shard, Targets: inShard[i], From: cmp.Or(now.Owner, now.From),
			To: to})
	}
	return moves
}

// planShards takes the shards that are to move from their owners, and notes who gets each.
func planShards(c *Cluster, wanted []ShardOwner, freeAt time.Time) {
	for len(c.Shards) < len(wanted) {
		c.Shards = append(c.Shards, ShardOwner{})
	}
	for i := range wanted {
		s := &c.Shards[i]
		if s.Owner == wanted[i].Owner {
			continue
		}
		if s.Owner != "" {
			s.release(i, freeAt)
		}
		s.Next = wanted[i].Owner
	}
}

func shares(before, after ownersPlan) []AgentShare {
	all := []AgentShare{}
	for i := range before.Members {
		id := before.Members[i].AgentID
		share := AgentShare{AgentID: id, Shards: after.owned(id), ShardsBefore: before.owned(id),
			Targets: len(after.assigned(id)), TargetsBefore: len(before.assigned(id))}
		if before.Members[i].Serving() || share.Shards+share.ShardsBefore+share.Targets+share.TargetsBefore > 0 {
			all = append(all, share)
		}
	}
	return all
}

func (c ownersPlan) owned(agentID string) int {
	n := 0
	for i := range c.Shards {
		if c.Shards[i].Owner == agentID {
			n++
		}
	}
	return n
}

// assigned are an agent's targets also where its roles are only planned.
func (c ownersPlan) assigned(agentID string) []string {
	if c.Config.ReplicationMode != Sharded {
		return c.TargetsOf(agentID)
	}
	var ids []string
	for _, t := range c.Targets {
		if len(c.Shards) > 0 && c.Shards[ShardOf(t.ID, len(c.Shards))].Owner == agentID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

func (r *Rebalance) words() string {
	what := "targets"
	if r.Mode == Sharded {
		what = "shards"
	}
	switch n := len(r.Moves); {
	case r.Mode == ActivePassive:
		return "nothing to move: the leader serves alone"
	case n == 0 && r.Mode == ActiveActive:
		return "nothing to move: every member takes from the same lanes, and the targets are spread evenly"
	case n == 0:
		return "nothing to move: the shards, and the targets in them, are spread as evenly as they can be"
	case r.DryRun:
		return fmt.Sprintf("%d %s would move", n, what)
	case r.Mode == Sharded:
		return fmt.Sprintf("%d shards move; each has no owner until its old owner's lease has run out", n)
	default:
		return fmt.Sprintf("%d targets moved", n)
	}
}

func abs(n int) int { return max(n, -n) }
