package agent

import (
	"slices"

	"mainstay.dev/mainstay/protocol"
)

// obey carries out the hub's commands. They may arrive twice.
func (r *run) obey(commands []protocol.Command) {
	for _, c := range commands {
		switch c.Type {
		case protocol.CommandCancel:
			r.interrupt(c, ErrCancelled, EventCancelled)
		case protocol.CommandDrop:
			r.interrupt(c, ErrDropped, EventDropped)
		case protocol.CommandRole:
			r.takeRole(c)
		case protocol.CommandStop:
			r.stop("the hub asked for it: " + c.Reason)
		case protocol.CommandLog:
			r.shipLog(c)
		case protocol.CommandState, protocol.CommandSync:
			r.background.Go(func() { r.obeyState(c) })
		default:
			r.agent.log.Warn("A command of an unknown type is ignored; this agent may be too old", "type", c.Type)
		}
	}
}

// interrupt ends the context of one attempt's handler. If the handler has returned, its result is on its way and the
// hub decides whether it counts.
func (r *run) interrupt(c protocol.Command, cause error, kind EventKind) {
	r.mu.Lock()
	at := r.attempts[attemptKey{c.TaskID, c.Attempt}]
	r.mu.Unlock()
	if at == nil || at.handler.Err() != nil {
		return
	}
	at.cancel(cause)
	at.log().Info("Stopping the attempt", "why", kind, "reason", c.Reason)
	ev := at.event(kind)
	ev.Reason = c.Reason
	r.agent.emit(ev)
}

// takeRole keeps the newest role.
func (r *run) takeRole(c protocol.Command) {
	r.mu.Lock()
	old := r.role
	if c.Epoch < old.Epoch {
		r.mu.Unlock()
		return
	}
	r.role = c
	r.mu.Unlock()
	r.takeStateRole(c)
	if old.Role == c.Role && old.Leader == c.Leader && old.Epoch == c.Epoch && slices.Equal(old.Shards, c.Shards) &&
		slices.Equal(old.Targets, c.Targets) {
		return
	}
	r.agent.log.Info("Role", "role", c.Role, "leader", c.Leader, "epoch", c.Epoch, "shards", c.Shards, "targets",
		len(c.Targets))
	r.agent.emit(Event{Kind: EventRole, Role: c.Role, Leader: c.Leader, Epoch: c.Epoch, Shards: c.Shards,
		Targets: c.Targets, Reason: c.Reason})
}
