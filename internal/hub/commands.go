package hub

import (
	"bytes"
	"slices"

	"mainstay.dev/sdk/protocol"
)

// command queues a command for the next answer.
func (s *session) command(c protocol.Command) {
	s.commands = append(s.commands, c)
	s.wake.Send()
}

// command queues a command about the attempt.
func (a *attempt) command(kind protocol.CommandType, reason string) {
	a.session.command(protocol.Command{Type: kind, TaskID: a.Task, Attempt: a.Attempt, Reason: reason})
}

// drop has the agent drop an attempt that does not count. It reports false when too many commands wait: the agent lists
// the attempt again.
func (s *session) drop(key attemptKey, reason string) bool {
	if len(s.commands) >= maxDropped {
		return false
	}
	s.command(protocol.Command{Type: protocol.CommandDrop, TaskID: key.task, Attempt: key.number, Reason: reason})
	return true
}

// repeat queues the newest answer's commands again: the agent may not have read it. An agent may say so for ever, so
// what is over or was said anew since is left out, and a request for state, which may be large, is repeated once.
func (s *session) repeat() {
	type about struct {
		kind protocol.CommandType
		attemptKey
	}
	of := func(c *protocol.Command) about { return about{c.Type, attemptKey{c.TaskID, c.Attempt}} }
	anew, drops := map[about]bool{}, 0
	for i := range s.commands {
		anew[of(&s.commands[i])] = true
	}
	var again []protocol.Command
	for _, c := range slices.Backward(s.told) {
		what := of(&c)
		if anew[what] {
			continue
		}
		switch c.Type {
		case protocol.CommandState, protocol.CommandSync:
			if s.repeated[c.Type] == c.Request {
				continue
			}
			s.repeated[c.Type] = c.Request
		case protocol.CommandCancel, protocol.CommandLog:
			if s.attempts[what.attemptKey] == nil {
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
	s.commands, s.told = append(again, s.commands...), nil
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
	if s == nil || s.state == nil {
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
		for _, a := range s.attempts {
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
	if s := a.session; s.attempts[a.key()] == a {
		h.forgetLocked(a)
		a.command(protocol.CommandDrop, why)
	}
}

// cancelAttemptLocked commands the agent to stop an attempt and report it. Temporal repeats a cancellation, and so does
// the hub, in case the agent missed the command.
func (h *Hub) cancelAttemptLocked(a *attempt) {
	if s := a.session; s.attempts[a.key()] == a {
		a.beatNeeds = a.beatNeeds || !a.cancelling
		a.cancelling = true
		a.command(protocol.CommandCancel, "the task was cancelled")
	}
}
