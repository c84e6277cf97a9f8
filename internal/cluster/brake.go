package cluster

import (
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// AgentLoss is one agent that vanished and is not back.
type AgentLoss struct {
	AgentID string `json:"agent_id"`
	// Idle: it never had work. It may be made up to hold failovers back, so it counts neither as lost nor as online.
	Idle bool `json:"idle,omitempty"`
	// At is when the cluster learned of it, on the same clock as Settle's now.
	At time.Time `json:"at"`
}

// Brake stops automatic failover while a cluster has lost too many agents at once. Report losses and returns, then call
// Settle; failovers wait while it is engaged. An agent that said goodbye or is drained is no loss.
type Brake struct {
	Policy api.BrakePolicy `json:"policy,omitzero"`
	// Losses are the losses within the window, and while the brake is engaged also all since.
	Losses    []AgentLoss `json:"losses,omitempty"`
	EngagedAt time.Time   `json:"engaged_at,omitzero"`
}

// Lost records that an agent vanished. If that is recorded already, it may add that the agent had work.
func (b *Brake) Lost(loss AgentLoss) {
	i := slices.IndexFunc(b.Losses, func(l AgentLoss) bool { return l.AgentID == loss.AgentID })
	if i < 0 {
		b.Losses = append(b.Losses, loss)
	} else if !loss.Idle {
		b.Losses[i].Idle = false
	}
}

// Back records that an agent is back.
func (b *Brake) Back(agentID string) {
	b.Losses = slices.DeleteFunc(b.Losses, func(l AgentLoss) bool { return l.AgentID == agentID })
}

// Settle engages or releases the brake after a batch of losses, returns or joins, and reports whether it is engaged.
// online is the number of online agents after the batch. An engaged brake holds, however much time passes, until so
// many agents are back or replaced that the lost ones are at most Share of all.
func (b *Brake) Settle(online int, now time.Time) bool {
	policy := b.Policy.WithDefaults()
	if b.EngagedAt.IsZero() {
		b.forget(now.Add(-policy.Window.Std()))
		if b.Count() >= policy.MinLost && b.tooMany(policy, online) {
			b.EngagedAt = now
		}
	} else if !b.tooMany(policy, online) {
		b.EngagedAt = time.Time{}
		b.forget(now.Add(-policy.Window.Std()))
	}
	return !b.EngagedAt.IsZero()
}

// Engaged reports what Settle would report, and changes nothing.
func (b Brake) Engaged(online int, now time.Time) bool {
	b.Losses = slices.Clone(b.Losses)
	return b.Settle(online, now)
}

// Release releases the brake for a person and returns the agents that are given up with it, in the order of their loss.
// These no longer count; new losses do.
func (b *Brake) Release() []string {
	var given []string
	for _, l := range b.Losses {
		given = append(given, l.AgentID)
	}
	b.Losses, b.EngagedAt = nil, time.Time{}
	return given
}

// Count is how many agents count as lost.
func (b *Brake) Count() int { return count(b.Losses, func(l *AgentLoss) bool { return !l.Idle }) }

// tooMany compares the losses with the agents online before them: those online now, and the lost.
func (b *Brake) tooMany(policy api.BrakePolicy, online int) bool {
	lost := float64(b.Count())
	return lost > policy.Share*(float64(online)+lost)
}

func (b *Brake) forget(before time.Time) {
	b.Losses = slices.DeleteFunc(b.Losses, func(l AgentLoss) bool { return !l.At.After(before) })
}

// BrakeHold reports that a mass-loss brake is engaged: failovers of lost agents wait.
type BrakeHold struct {
	// Hub is the one whose agents vanished; empty: the brake over all hubs of the cluster.
	Hub string `json:"hub,omitempty"`
	// Process is the hub's process; its successor does not continue the hold.
	Process string    `json:"process"`
	Since   time.Time `json:"since"`
	// Lost is how many agents had vanished at the hub's last report.
	Lost int `json:"lost"`
}

// Where names the hub, or all.
func (b BrakeHold) Where() string {
	if b.Hub == "" {
		return "all hubs"
	}
	return "hub " + b.Hub
}

// Brakes are the mass-loss brakes as a cluster knows them. While all agents are with one hub, that hub's brake judges;
// else the cluster's own, over all hubs.
type Brakes struct {
	// BrakeHolds are the brakes that are engaged, sorted by hub.
	BrakeHolds []BrakeHold `json:"brake_holds,omitempty"`
	// Vanished is the brake over all hubs.
	Vanished Brake `json:"vanished,omitzero"`
	// HubStarts are the newest processes of hubs with agents here, sorted by hub.
	HubStarts HubStarts `json:"hub_starts,omitempty"`
}

// Miss records which agents a hub misses now: their connections are closed, or they are silent, and the hub has not
// given them up. idle are those of them that never had work. It settles the brake over all hubs.
func (c *Cluster) Miss(hub string, agents, idle []string, now time.Time) {
	without := map[string]bool{}
	for _, id := range idle {
		without[id] = true
	}
	for _, l := range slices.Clone(c.Vanished.Losses) {
		if m := c.Member(l.AgentID); m != nil && m.Hub == hub && m.Connected() && !slices.Contains(agents, l.AgentID) {
			c.Vanished.Back(l.AgentID)
		}
	}
	for _, id := range agents {
		if m := c.Member(id); m != nil && m.Hub == hub && m.Serving() && c.Deaths.Of(id, m.Instance) == nil {
			c.Vanished.Lost(AgentLoss{AgentID: id, Idle: without[id], At: now})
		}
	}
	c.SettleBrake(now)
}

// MissHub records that a hub was lost at some time and that its agents did not go to another. It settles the brake over
// all hubs as of that time, and reports whether it is engaged: then it holds these agents. working reports which of
// them had work.
func (c *Cluster) MissHub(hub string, working func(agent string) bool, at, now time.Time) (held bool) {
	for i := range c.Members {
		m := &c.Members[i]
		if m.Hub != hub || !m.Serving() || c.Deaths.Of(m.AgentID, m.Instance) != nil {
			continue
		}
		c.Vanished.Lost(AgentLoss{AgentID: m.AgentID, Idle: !working(m.AgentID), At: at})
	}
	if !c.SettleBrake(at) {
		return false
	}
	for i := range c.Members {
		if m := &c.Members[i]; m.Hub == hub && m.Connected() && m.HubLostAt.IsZero() {
			m.HubLostAt = now
			if m.Serving() {
				m.SetStatus(api.AgentSuspect, "held by the mass-loss brake: its hub was lost, and too many agents with it", now)
			}
		}
	}
	return true
}

// SettleBrake engages or releases the brake over all hubs, and reports whether it is engaged.
func (c *Cluster) SettleBrake(now time.Time) bool {
	b := &c.Vanished
	b.Policy = c.Config.Brake
	b.Losses = slices.DeleteFunc(b.Losses, func(l AgentLoss) bool { return c.Member(l.AgentID) == nil })
	lost := map[string]bool{}
	for _, l := range b.Losses {
		lost[l.AgentID] = true
	}
	online := count(c.Members, func(m *Member) bool { return m.Serving() && !lost[m.AgentID] })
	if !b.Settle(online, now) {
		c.SetBrake("", nil)
		return false
	}
	c.SetBrake("", &BrakeHold{Since: b.EngagedAt, Lost: b.Count()})
	return true
}

// HoldsNobody reports whether no lost agent waits for the brake over all hubs: all were given up.
func (c *Cluster) HoldsNobody() bool {
	return !slices.ContainsFunc(c.Vanished.Losses, func(l AgentLoss) bool {
		m := c.Member(l.AgentID)
		return !l.Idle && m != nil && m.Connected()
	})
}

// Braked reports whether the brake over all hubs is engaged.
func (c *Cluster) Braked() bool { return !c.Vanished.EngagedAt.IsZero() }

// ReleaseBrake releases the brake over all hubs for a person.
func (c *Cluster) ReleaseBrake() {
	c.Vanished.Release()
	c.SetBrake("", nil)
}

// AtSeveralHubs reports whether members are with more than one hub.
func (c *Cluster) AtSeveralHubs() bool {
	one := ""
	for i := range c.Members {
		if m := &c.Members[i]; m.Connected() && m.HubLostAt.IsZero() {
			if one != "" && m.Hub != one {
				return true
			}
			one = m.Hub
		}
	}
	return false
}

// HeldHubs are the lost hubs whose agents the brake has held long enough, or holds no more: AttemptBackstop after the
// loss their work has ended anyway. next is when others will be; zero: there are none.
func (c *Cluster) HeldHubs(now time.Time) (over []string, next time.Time) {
	for i := range c.Members {
		m := &c.Members[i]
		until := m.HubLostAt.Add(api.AttemptBackstop)
		switch {
		case m.HubLostAt.IsZero():
		case !c.Braked() || !now.Before(until):
			over = append(over, m.Hub)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return api.SortedSet(over), next
}

// SetBrake records the state of a hub's brake, or of the one over all hubs (hub is empty); nil: not engaged.
func (b *Brakes) SetBrake(hub string, hold *BrakeHold) {
	i, known := search(b.BrakeHolds, hub, func(h BrakeHold) string { return h.Hub })
	switch {
	case hold == nil && known:
		b.BrakeHolds = slices.Delete(b.BrakeHolds, i, i+1)
	case hold == nil:
	case known:
		b.BrakeHolds[i] = *hold
	default:
		b.BrakeHolds = slices.Insert(b.BrakeHolds, i, *hold)
	}
}

// HubProcess records the present process of a hub, and ends the hold of an earlier process.
func (b *Brakes) HubProcess(hub, process string, now time.Time) {
	b.HubStarts.add(hub, process, now)
	over := func(h BrakeHold) bool { return h.Hub == hub && h.Process != process }
	b.BrakeHolds = slices.DeleteFunc(b.BrakeHolds, over)
}
