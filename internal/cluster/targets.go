package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// Target is a deployment target of a cluster: something that one of its agents looks after. In an active_passive
// cluster that is the leader; in a sharded one the owner of the shard that the target's id is hashed to, so a task with
// the target as its shard_key goes to the same agent; in an active_active one targets are spread evenly.
type Target struct {
	ID string `json:"id"`
	// Agent is its agent in an active_active cluster; in other modes the roles decide.
	Agent string `json:"agent,omitempty"`
}

// Targets are the deployment targets of a cluster, sorted by id.
type Targets []Target

// Change adds and removes targets. Adding a present target or removing an absent one changes nothing.
func (l *Targets) Change(add, remove []string) (changed bool, err error) {
	for _, id := range add {
		if err := api.ValidateID("target", id); err != nil {
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
	if len(next) > api.MaxTargets {
		return false, fmt.Errorf("a cluster may have at most %d targets", api.MaxTargets)
	}
	*l = next
	return changed, nil
}

func (l Targets) search(id string) (int, bool) {
	return search(l, id, func(t Target) string { return t.ID })
}

// AgentOfTarget is the agent of a target now; empty: none yet.
func (c *Cluster) AgentOfTarget(t Target) string {
	switch c.Config.ReplicationMode {
	case api.ActivePassive:
		if c.RoleOf(c.Leader) == api.RoleLeader {
			return c.Leader
		}
		return ""
	case api.Sharded:
		if len(c.Shards) == 0 {
			return ""
		}
		s := c.Shards[task.ShardOf(t.ID, len(c.Shards))]
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

// TargetsHeld returns the targets that an agent's roles give it, even if it no longer serves.
func (c *Cluster) TargetsHeld(agentID string) []string {
	var ids []string
	for _, t := range c.Targets {
		held := t.Agent
		switch {
		case c.Config.ReplicationMode == api.ActivePassive:
			held = c.Leader
		case c.Config.ReplicationMode == api.Sharded && len(c.Shards) > 0:
			held = c.Shards[task.ShardOf(t.ID, len(c.Shards))].Owner
		}
		if agentID != "" && held == agentID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// AssignTargets spreads the targets of an active_active cluster over its online members, evenly within one and with as
// few moves as possible; a suspect member keeps its targets. In the other modes targets follow the roles.
func (c *Cluster) AssignTargets() []api.RebalanceMove {
	if c.Config.ReplicationMode != api.ActiveActive {
		for i := range c.Targets {
			c.Targets[i].Agent = ""
		}
		return nil
	}
	was := make([]string, len(c.Targets))
	for i := range c.Targets {
		t := &c.Targets[i]
		was[i] = t.Agent
		if m := c.Member(t.Agent); m == nil || !m.Serving() || m.Stopping {
			t.Agent = ""
		}
	}
	shares := targetShares(c)
	if len(shares) == 0 {
		return nil
	}
	c.Targets.release(shares)
	var moves []api.RebalanceMove
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Agent == "" {
			if q := neediest(shares); q != nil {
				q.owned++
				t.Agent = q.agentID
			}
		}
		if t.Agent != was[i] {
			moves = append(moves, api.RebalanceMove{Target: t.ID, From: was[i], To: t.Agent})
		}
	}
	return moves
}

// release takes targets from members with too many, as many as others lack beyond the free ones.
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

// Rebalance spreads shards evenly, and then the targets in them as far as exchanging shards allows, with as few moves
// as possible; in an active_active cluster it spreads the targets themselves. A moved shard is free when its old
// owner's lease has run out; call AssignShards as usual. It returns its moves. A second call moves nothing.
func (c *Cluster) Rebalance(roleLease time.Duration, now time.Time, dryRun bool) api.Rebalance {
	answer := api.Rebalance{Cluster: c.Config.Name, DryRun: dryRun, Mode: c.Config.ReplicationMode,
		Moves: []api.RebalanceMove{}}
	before, after := copyOwners(c), copyOwners(c)
	switch c.Config.ReplicationMode {
	case api.ActiveActive:
		answer.Moves = append(answer.Moves, after.AssignTargets()...)
		if !dryRun {
			c.Targets = after.Targets
		}
	case api.Sharded:
		for i := range after.Members {
			after.Members[i].Relieved = false
		}
		after.settleShards(now)
		after.exchangeShards()
		answer.Moves = append(answer.Moves, shardMoves(c, after.Shards)...)
		if !dryRun {
			c.Members = after.Members
			planShards(c, after.Shards, now.Add(max(roleLease, 0)))
		}
	}
	answer.Agents = shares(before, after)
	answer.Why = rebalanceWords(&answer)
	return answer
}

// ownersPlan is a copy of a cluster in which shards and targets may change their owners.
type ownersPlan struct{ *Cluster }

func copyOwners(c *Cluster) ownersPlan {
	copied := *c
	copied.Shards, copied.Targets = slices.Clone(c.Shards), slices.Clone(c.Targets)
	copied.Members = slices.Clone(c.Members)
	return ownersPlan{&copied}
}

// settleShards assigns shards as they will be when no lease is left to wait for.
func (c ownersPlan) settleShards(now time.Time) {
	for range 3 { // first those on their way, then those taken for them; then nothing is left
		_, wait := c.AssignShards(0, now)
		if wait.IsZero() {
			return
		}
		for i := range c.Shards {
			c.Shards[i].FreeAt = time.Time{}
		}
	}
}

// exchangeShards evens out the targets of online members. As long as that helps, the member with most gives a shard to
// the one with fewest, in exchange for one with fewer targets, or for none where it has more shards too.
func (c ownersPlan) exchangeShards() {
	weights := make([]int, len(c.Shards))
	for _, t := range c.Targets {
		weights[task.ShardOf(t.ID, len(c.Shards))]++
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

// holding has the shards of one online member and the number of their targets.
type holding struct {
	agentID string
	shards  []int
	weight  int
}

// extremes returns the online members with the most and the fewest targets; nil when there are fewer than two.
func (c ownersPlan) extremes(weights []int) (most, fewest *holding) {
	byAgent := map[string]*holding{}
	var holdings []*holding
	for i := range c.Members {
		if m := &c.Members[i]; m.MayHold() {
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

// shardMoves returns the moves to the wanted owners.
func shardMoves(c *Cluster, wanted []ShardOwner) []api.RebalanceMove {
	inShard := map[int][]string{}
	for _, t := range c.Targets {
		shard := task.ShardOf(t.ID, len(wanted))
		inShard[shard] = append(inShard[shard], t.ID)
	}
	var moves []api.RebalanceMove
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
		moves = append(moves, api.RebalanceMove{Shard: &shard, Targets: inShard[i], From: cmp.Or(now.Owner, now.From),
			To: to})
	}
	return moves
}

// planShards takes the shards that must move from their owners, and records who gets each.
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

func shares(before, after ownersPlan) []api.AgentShare {
	all := []api.AgentShare{}
	for i := range before.Members {
		id := before.Members[i].AgentID
		share := api.AgentShare{AgentID: id, Shards: after.owned(id), ShardsBefore: before.owned(id),
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

// assigned returns an agent's targets, also by roles that are only planned.
func (c ownersPlan) assigned(agentID string) []string {
	if c.Config.ReplicationMode != api.Sharded {
		return c.TargetsOf(agentID)
	}
	var ids []string
	for _, t := range c.Targets {
		if len(c.Shards) > 0 && c.Shards[task.ShardOf(t.ID, len(c.Shards))].Owner == agentID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

func rebalanceWords(r *api.Rebalance) string {
	what := "targets"
	if r.Mode == api.Sharded {
		what = "shards"
	}
	switch n := len(r.Moves); {
	case r.Mode == api.ActivePassive:
		return "nothing to move: the leader serves alone"
	case n == 0 && r.Mode == api.ActiveActive:
		return "nothing to move: every member takes from the same lanes, and the targets are spread evenly"
	case n == 0:
		return "nothing to move: the shards, and the targets in them, are spread as evenly as they can be"
	case r.DryRun:
		return fmt.Sprintf("%d %s would move", n, what)
	case r.Mode == api.Sharded:
		return fmt.Sprintf("%d shards move; each has no owner until its old owner's lease has run out", n)
	default:
		return fmt.Sprintf("%d targets moved", n)
	}
}

func abs(n int) int { return max(n, -n) }
