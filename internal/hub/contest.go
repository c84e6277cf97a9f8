package hub

import (
	"maps"
	"time"

	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub/registry"
	"mainstay.dev/sdk/protocol"
)

// A process that waits for an agent id may ask again after knockEvery. One that has not asked for rivalKept no longer
// waits.
const (
	knockEvery = 5 * time.Second
	rivalKept  = 12 * time.Second
)

// contest is an agent id that processes take from each other.
type contest struct {
	cluster.Contest
	rival *protocol.Register // the newest process without the id; nil: none is known
	seen  time.Time          // when it asked, or lost the id
}

// living reports whether the agent's process is certainly there: one that has crashed has closed its connection.
func (s *session) living() bool {
	return !s.gone && s.link.sequence > 0 && s.loss.judged == cluster.Alive && !s.link.closed()
}

// takenLocked counts that a newer process took the id from a session's, if that lives.
func (h *Hub) takenLocked(s *session, now time.Time) (living bool) {
	if !s.living() {
		return false
	}
	id := s.cluster + "/" + s.agent
	c := h.contests[id]
	if c == nil {
		c = &contest{}
		h.contests[id] = c
	}
	c.Take(now)
	if c.Taken > 1 {
		h.setRivalLocked(c, &s.registration, now)
	}
	return true
}

// refuseRival keeps a new process waiting while a living one has its agent id, and processes have taken it from each
// other before. elsewhere says that another hub has the id online.
func (h *Hub) refuseRival(reg *protocol.Register, elsewhere bool, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, s := h.contests[reg.Cluster+"/"+reg.AgentID], h.sessions[reg.AgentID]
	if c == nil {
		return nil
	}
	if s != nil {
		elsewhere = s.instance != reg.InstanceID && s.living()
	}
	wait := c.Wait(now)
	if !elsewhere || wait == 0 {
		return nil
	}
	h.setRivalLocked(c, reg, now)
	return httpapi.RetryAfter(min(wait, knockEvery),
		"another process with this agent id is connected, and they have taken the id from each other: give each process "+
			"an id of its own, or stop one of them (mainstay overview names both)")
}

// setRivalLocked makes a process the newest one without the id.
func (h *Hub) setRivalLocked(c *contest, r *protocol.Register, now time.Time) {
	if c.rival != nil && c.rival.InstanceID != r.InstanceID {
		h.registry.Remove(c.entry(false))
	}
	c.rival, c.seen = r, now
	h.registry.Changed(r.AgentID)
}

// rivalsLocked are the processes without their agent id, as entries of the worker registry. The last entries of those
// that no longer wait are among them.
func (h *Hub) rivalsLocked(picks func(agent string) bool, now time.Time) (entries []*workerpb.WorkerHeartbeat) {
	maps.DeleteFunc(h.contests, func(_ string, c *contest) bool { return c.rival == nil && c.Over(now) })
	for _, c := range h.contests {
		if c.rival == nil || !picks(c.rival.AgentID) {
			continue
		}
		switch s := h.sessions[c.rival.AgentID]; {
		case s != nil && s.instance == c.rival.InstanceID:
			c.rival = nil // the entry of its session takes the place
		case now.Sub(c.seen) > rivalKept:
			entries = append(entries, c.entry(false))
			c.rival = nil
		default:
			entries = append(entries, c.entry(true))
		}
	}
	return entries
}

// entry is the rival as an entry of the worker registry.
func (c *contest) entry(waits bool) *workerpb.WorkerHeartbeat {
	return registry.Rival(c.rival, c.Since, c.seen, waits)
}
