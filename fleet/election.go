package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Election is the outcome of one election. When no leader may be granted yet, only WaitUntil is set.
type Election struct {
	Leader string `json:"leader,omitempty"`
	// Previous led before. It may be Leader itself, when nobody else was there.
	Previous  string    `json:"previous,omitempty"`
	Epoch     int64     `json:"epoch,omitempty"`
	At        time.Time `json:"at,omitzero"`
	WaitUntil time.Time `json:"wait_until,omitzero"`
}

// Elect gives an active_passive cluster without a leader a new one: of the online members standbys come first,
// then the least loaded, then the lowest id. The leader before is chosen only when it is alone, so that a failover by
// hand does move the leadership. loads are running tasks by agent id. It does nothing while there is a leader; one that
// is LeaderLost must be vacated first.
func (c *Cluster) Elect(loads map[string]int, now time.Time) (Election, bool) {
	if wait, open := c.seatOpen(now); !open {
		return wait, false
	}
	c.RefreshStandbys()
	var best *Member
	for i := range c.Members {
		m := &c.Members[i]
		if m.Status == AgentOnline && electable(c, m) && (best == nil || compareForLeader(c, m, best, loads) < 0) {
			best = m
		}
	}
	if best == nil {
		return Election{}, false
	}
	return c.lead(best.AgentID, now), true
}

// electable reports whether a member may be elected without a person's word: where elections are off, only the leader
// before, or anybody as the first.
func electable(c *Cluster, m *Member) bool {
	return !c.Config.ManualElection || c.LastLeader == "" || m.AgentID == c.LastLeader
}

// Contested reports whether Elect would have to choose between members now, so that their loads matter.
func (c *Cluster) Contested(now time.Time) bool {
	if _, open := c.seatOpen(now); !open {
		return false
	}
	online := 0
	for i := range c.Members {
		if c.Members[i].Status == AgentOnline && electable(c, &c.Members[i]) {
			online++
		}
	}
	return online > 1
}

// Promote makes the given online member the leader, as the target of a failover, by the rules of Elect.
func (c *Cluster) Promote(agentID string, now time.Time) (Election, bool) {
	if wait, open := c.seatOpen(now); !open {
		return wait, false
	}
	if m := c.Member(agentID); m == nil || m.Status != AgentOnline {
		return Election{}, false
	}
	c.RefreshStandbys()
	return c.lead(agentID, now), true
}

// VacateLeader takes the leadership away and returns who had it, or "" when nobody had. leaseRemaining is how long that
// agent may still act as leader, counting renewals by a hub that has not heard yet; zero after a goodbye.
func (c *Cluster) VacateLeader(leaseRemaining time.Duration, now time.Time) (previous string) {
	if c.Leader == "" {
		return ""
	}
	previous = c.Leader
	c.LastLeader, c.Leader, c.LeaderSince = previous, "", time.Time{}
	c.LeaderFreeAt = later(c.LeaderFreeAt, now.Add(max(leaseRemaining, 0)))
	return previous
}

// seatOpen reports whether a leader may be granted, and if it is only too early, until when to wait.
func (c *Cluster) seatOpen(now time.Time) (Election, bool) {
	switch {
	case c.Config.ReplicationMode != ActivePassive || c.Leader != "":
		return Election{}, false
	case now.Before(c.LeaderFreeAt):
		return Election{WaitUntil: c.LeaderFreeAt}, false
	}
	return Election{}, true
}

func compareForLeader(c *Cluster, a, b *Member, loads map[string]int) int {
	return cmp.Or(
		compareBool(b.AgentID == c.LastLeader, a.AgentID == c.LastLeader),
		compareBool(slices.Contains(c.Standbys, a.AgentID), slices.Contains(c.Standbys, b.AgentID)),
		compareLoad(a, b, loads),
		strings.Compare(a.AgentID, b.AgentID),
	)
}

// lead grants the leadership under a new epoch. The leader before is a standby now if it is online.
func (c *Cluster) lead(agentID string, now time.Time) Election {
	c.LastEpoch++
	won := Election{Leader: agentID, Previous: c.LastLeader, Epoch: c.LastEpoch, At: now}
	c.Handovers = handedOver(c.Handovers, c.LastLeader, agentID)
	c.Leader, c.LeaderEpoch, c.LeaderSince = agentID, c.LastEpoch, now
	c.LeaderFreeAt, c.LastLeader = time.Time{}, ""
	c.RefreshStandbys()
	return won
}

// compareBool puts true first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
