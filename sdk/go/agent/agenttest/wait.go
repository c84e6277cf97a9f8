package agenttest

import (
	"slices"
	"time"

	"mainstay.dev/sdk/protocol"
)

// Until waits until condition holds. It calls condition at each change at the hub, without the hub's lock.
func (h *Hub) Until(what string, condition func() bool) {
	h.t.Helper()
	timer := time.NewTimer(h.options.Patience)
	defer timer.Stop()
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			h.t.Fatalf("agenttest: waited %s in vain for %s", h.options.Patience, what)
		}
	}
}

// WaitRegistered waits for the nth registration, counted from 1.
func (h *Hub) WaitRegistered(n int) protocol.Register {
	h.t.Helper()
	h.Until("a registration", func() bool { return len(h.Registrations()) >= n })
	return h.Registrations()[n-1]
}

// WaitPoll waits for a poll that fits and returns the first one that does.
func (h *Hub) WaitPoll(what string, fits func(protocol.Poll) bool) protocol.Poll {
	h.t.Helper()
	return waitFor(h, "a poll: "+what, h.Polls, fits)
}

// waitFor waits until one of a list fits, and returns the first that does.
func waitFor[T any](h *Hub, what string, list func() []T, fits func(T) bool) T {
	h.t.Helper()
	var found []T
	h.Until(what, func() bool {
		all := list()
		i := slices.IndexFunc(all, fits)
		found = all[max(i, 0):]
		return i >= 0
	})
	return found[0]
}

// WaitRunning waits for a poll that lists the task as running.
func (h *Hub) WaitRunning(taskID string) protocol.RunningAttempt {
	h.t.Helper()
	poll := h.WaitPoll(taskID+" running", func(p protocol.Poll) bool { return running(p, taskID) != nil })
	return *running(poll, taskID)
}

// WaitResult waits for an accepted result of the task.
func (h *Hub) WaitResult(taskID string) protocol.Result {
	h.t.Helper()
	return waitFor(h, "the result of "+taskID, h.Results, func(r Reported) bool { return r.TaskID == taskID }).Result
}

// WaitGoodbye waits until the agent has ended its session.
func (h *Hub) WaitGoodbye() {
	h.t.Helper()
	h.Until("a goodbye", func() bool { return h.Goodbyes() > 0 })
}

func running(p protocol.Poll, taskID string) *protocol.RunningAttempt {
	for i := range p.Running {
		if p.Running[i].TaskID == taskID {
			return &p.Running[i]
		}
	}
	return nil
}
