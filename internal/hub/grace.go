package hub

import (
	"time"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// awaited is an attempt whose agent was given up and may still bring it back: it has a disconnect grace, or is fenced
// and the agent's lease has not ended. It has no heartbeats meanwhile; its heartbeat timeout is longer by the grace.
type awaited struct {
	*attempt
	until      time.Time
	leaseUntil time.Time // until then the agent may go on with fenced work
	within     string
	why        string // its agent was given up
}

// awaitLocked keeps an attempt of a session that was given up, if its agent has time to come back. Fenced work goes on
// elsewhere no sooner than when the agent's lease has ended, so that waiting until then costs nothing. It returns until
// when; zero: not at all.
func (h *Hub) awaitLocked(a *attempt, e *ending) time.Time {
	if !a.mayHaveBegun() || e.evidence == "" || e.evidence == api.EvidenceProof || a.cancelling ||
		a.evacuation != nil {
		return time.Time{}
	}
	until, within := e.at.Add(a.Grace.Std()-e.after), "its disconnect grace of "+a.Grace.String()
	if a.Fenced && a.Grace == 0 {
		until, within = e.at.Add(e.lease), "its lease"
	}
	if !until.After(e.at) {
		return time.Time{}
	}
	h.awaited[a.key()] = &awaited{attempt: a, until: until, leaseUntil: e.at.Add(e.lease), within: within,
		why: e.reason}
	return until
}

// giveUpAwaitedLocked loses an attempt that its agent will not bring back.
func (h *Hub) giveUpAwaitedLocked(a *awaited, why string) {
	delete(h.awaited, a.key())
	h.loseLocked(a.attempt, why, time.Until(a.leaseUntil))
}

// settleAwaitedLocked settles the attempts that an agent had before, when it is back with those that it lists.
func (h *Hub) settleAwaitedLocked(s *session, listed map[attemptKey]bool) {
	for key, a := range h.awaited {
		switch {
		case a.session.agent != s.agent:
		case a.session.instance != s.instance:
			h.giveUpAwaitedLocked(a, "a newer process took its agent id")
		case listed[key]:
			delete(h.awaited, key) // it goes on
		case !a.accepted:
			delete(h.awaited, key)
			h.giveBackLocked(a.attempt, "the agent did not receive it")
		default:
			a.leaseUntil = time.Time{} // by its own list the agent has stopped it
			h.giveUpAwaitedLocked(a, "the agent no longer has the attempt")
		}
	}
}

// obeyAwaitedLocked loses the attempts whose agents a cluster has fenced, revoked or knows to be dead.
func (h *Hub) obeyAwaitedLocked(d *contract.Directive) {
	for _, a := range h.awaited {
		s := a.session
		switch death := d.Deaths.Of(s.agent, s.instance); {
		case s.cluster != d.Cluster:
		case d.Fenced(s.agent, s.epoch):
			h.giveUpAwaitedLocked(a, "a newer process took its agent id")
		case d.Ended(s.token):
			h.giveUpAwaitedLocked(a, "its join token was revoked, and its session ended with it")
		case death != nil:
			a.leaseUntil = time.Time{}
			h.giveUpAwaitedLocked(a, death.Reason)
		}
	}
}

// endAwaitedLocked ends the waits that are over.
func (d detector) endAwaitedLocked(now time.Time) {
	for _, a := range d.hub.awaited {
		if !now.Before(a.until) {
			d.hub.giveUpAwaitedLocked(a, a.why+", nor within "+a.within)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
