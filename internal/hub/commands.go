package hub

import (
	"bytes"
	"slices"

	"mainstay.dev/sdk/protocol"
)

// orders are the commands for an agent.
type orders struct {
	waiting   []protocol.Command
	told      []protocol.Command              // those of the newest answer, until a poll confirms that answer
	toldIn    int64                           // sequence of the poll that it answered
	repeated  map[protocol.CommandType]string // the requests for state that were queued again
	role      protocol.Command                // the newest
	answerNow bool                            // answer the next poll at once, to renew a re-attached agent's lease soon
}

// command queues a command for the next answer.
func (s *session) command(c protocol.Command) {
	s.orders.waiting = append(s.orders.waiting, c)
	s.wake.Send()
}

// command queues a command about the attempt.
func (a *attempt) command(kind protocol.CommandType, reason string) {
	a.session.command(protocol.Command{Type: kind, TaskID: a.Task, Attempt: a.Attempt, Reason: reason})
}

// drop has the agent drop an attempt that does not count. It reports false when too many commands wait: the agent lists
// the attempt again.
func (s *session) drop(key attemptKey, reason string) bool {
	if len(s.orders.waiting) >= maxDropped {
		return false
	}
	s.command(protocol.Command{Type: protocol.CommandDrop, TaskID: key.task, Attempt: key.number, Reason: reason})
	return true
}

// toldRole reports whether the agent has read its newest role.
func (o *orders) toldRole() bool {
	unread := func(c protocol.Command) bool { return c.Type == protocol.CommandRole }
	return !slices.ContainsFunc(o.waiting, unread) && !slices.ContainsFunc(o.told, unread)
}

// repeat queues the newest answer's commands again: the agent may not have read it. An agent may say so for ever, so it
// leaves out commands that are over or were sent anew since, and repeats a request for state, which may be large, once.
func (o *orders) repeat(attempts map[attemptKey]*attempt) {
	type about struct {
		kind protocol.CommandType
		attemptKey
	}
	of := func(c *protocol.Command) about { return about{c.Type, attemptKey{c.TaskID, c.Attempt}} }
	anew, drops := map[about]bool{}, 0
	for i := range o.waiting {
		anew[of(&o.waiting[i])] = true
	}
	var again []protocol.Command
	for _, c := range slices.Backward(o.told) {
		what := of(&c)
		if anew[what] {
			continue
		}
		switch c.Type {
		case protocol.CommandState, protocol.CommandSync:
			if o.repeated[c.Type] == c.Request {
				continue
			}
			o.repeated[c.Type] = c.Request
		case protocol.CommandCancel, protocol.CommandLog:
			if attempts[what.attemptKey] == nil {
				continue
			}
		case protocol.CommandDrop:
			if drops++; drops > maxDropped {
				continue // the agent lists it again
			}
		}
		anew[what] = true
		again = append(again, c)
	}
	slices.Reverse(again)
	o.waiting, o.told = append(again, o.waiting...), nil
}

// Command sends an agent a command with the answer of its poll, if it has a session.
func (f facts) Command(agent string, c protocol.Command) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if s := f.hub.sessions[agent]; s != nil {
		s.command(c)
	}
}

// CommandKeeper sends an agent a command. It reports false when the agent has no session or keeps no state.
func (f facts) CommandKeeper(agent string, c protocol.Command) bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	s := f.hub.sessions[agent]
	if s == nil || s.reports.state == nil {
		return false
	}
	s.command(c)
	return true
}

// cancel cancels the attempt with this Temporal token.
func (f facts) cancel(token []byte) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		for _, a := range s.work.attempts {
			if bytes.Equal(a.Temporal, token) {
				f.hub.cancelAttemptLocked(a)
				return
			}
		}
	}
	for _, a := range f.hub.awaited {
		if bytes.Equal(a.Temporal, token) {
			f.hub.giveUpAwaitedLocked(a, "it was cancelled while its agent was out of touch")
		}
	}
}

// dropLocked commands the agent to stop an attempt whose result no longer counts.
func (h *Hub) dropLocked(a *attempt, why string) {
	if s := a.session; s.work.attempts[a.key()] == a {
		h.forgetLocked(a)
		a.command(protocol.CommandDrop, why)
	}
}

// cancelAttemptLocked commands the agent to stop an attempt and report it. Temporal repeats a cancellation, and so does
// the hub, in case the agent missed the command.
func (h *Hub) cancelAttemptLocked(a *attempt) {
	if s := a.session; s.work.attempts[a.key()] == a {
		a.beatNeeds = a.beatNeeds || !a.cancelling
		a.cancelling = true
		a.command(protocol.CommandCancel, "the task was cancelled")
	}
}
