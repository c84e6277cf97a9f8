package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// maxDeaths is how many proofs of death a cluster remembers.
const maxDeaths = 50

// DeathProof says that an agent's process has ended, and that nothing which it started still runs. The fields beside
// the agent's id must match its newest process.
type DeathProof struct {
	AgentID  string `json:"agent_id"`
	Instance string `json:"instance_id,omitempty"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Spawner  string `json:"spawner,omitempty"` // that started it
	// EndedAt is when it ended; zero: unknown. A process that began later is another.
	EndedAt time.Time `json:"ended_at,omitzero"`
	By      string    `json:"by"`    // who says so
	Proof   string    `json:"proof"` // how it ended, or how that is known
}

// Death is a proof of death that a cluster has accepted.
type Death struct {
	AgentID  string    `json:"agent_id"`
	Instance string    `json:"instance_id"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

// Deaths are the newest proofs, oldest first. Any new process of the agent ends its proof.
type Deaths []Death

// Of returns the proof about a process of an agent; nil: there is none.
func (d Deaths) Of(agentID, instance string) *Death {
	i := slices.IndexFunc(d, func(d Death) bool { return d.AgentID == agentID && d.Instance == instance })
	if i < 0 {
		return nil
	}
	return &d[i]
}

func (d *Deaths) remove(agentID string) {
	*d = slices.DeleteFunc(*d, func(d Death) bool { return d.AgentID == agentID })
}

// endedBefore reports whether the process ended before another began. Some platforms have times in whole seconds.
func (p DeathProof) endedBefore(began time.Time) bool {
	if p.EndedAt.Nanosecond() == 0 {
		began = began.Truncate(time.Second)
	}
	return p.EndedAt.Before(began)
}

// DeclareDead records that the newest process of a member has ended. Its hub ends its session then, and nothing waits
// for its leases; of a member that was given up before, the roles are free at once.
func (c *Cluster) DeclareDead(p DeathProof, now time.Time) error {
	m := c.Member(p.AgentID)
	switch {
	case m == nil:
		return errors.New("the agent is not a member of the cluster")
	case p.Instance != "" && p.Instance != m.Instance, p.PID != 0 && p.PID != m.PID, p.Host != "" && p.Host != m.Host,
		p.Spawner != "" && p.Spawner != m.Metadata[api.MetadataSpawner],
		!p.EndedAt.IsZero() && p.endedBefore(m.StartedAt):
		return errors.New("the agent's newest process is another one than the proof is about")
	case c.Deaths.Of(m.AgentID, m.Instance) != nil:
		return nil
	}
	c.Vanished.Back(m.AgentID) // an agent that is known to be dead has not vanished
	c.Deaths.remove(m.AgentID)
	c.Deaths = append(c.Deaths, Death{AgentID: m.AgentID, Instance: m.Instance, At: now,
		Reason: noteOf(fmt.Sprintf("proof of death by %s: %s", p.By, p.Proof))})
	c.Deaths = c.Deaths[max(0, len(c.Deaths)-maxDeaths):]
	if m.Status == api.AgentOffline {
		c.freeRoles(m.AgentID, now)
		m.AwaitedUntil = time.Time{}
	}
	return nil
}

// freeRoles ends the wait for the leases of an agent that had roles.
func (c *Cluster) freeRoles(agentID string, now time.Time) {
	if c.Leader == "" && c.LastLeader == agentID && now.Before(c.LeaderFreeAt) {
		c.LeaderFreeAt = now
	}
	for i := range c.Shards {
		if s := &c.Shards[i]; s.Owner == "" && s.From == agentID && now.Before(s.FreeAt) {
			s.FreeAt = now
		}
	}
}
