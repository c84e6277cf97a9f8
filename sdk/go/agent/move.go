package agent

import (
	"context"
	"net/http"
	"time"

	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

const (
	// hubLookFirst and hubLookLimit space the looks for another hub, of agents whose hub has lost touch with Temporal.
	hubLookFirst = 2 * time.Second
	hubLookLimit = 30 * time.Second
	// hubLookTimeout bounds how long another hub may take to say whether it is in touch with Temporal.
	hubLookTimeout = 3 * time.Second
)

// movedHub is why an agent leaves a hub that answers: the hub has lost touch with Temporal, and another has not.
type movedHub struct{ from, to int }

func (m *movedHub) Error() string {
	return "it has lost touch with Temporal, and so renews no lease; another hub is in touch"
}

// hubLook looks for a hub that is in touch with Temporal while the session's is not. Only the loop uses it.
type hubLook struct {
	spacing backoff.Backoff
	next    time.Time
	found   chan *movedHub
	leave   context.CancelFunc // ends the polls at the session's hub
}

func newHubLook() hubLook {
	return hubLook{spacing: backoff.Backoff{First: hubLookFirst, Limit: hubLookLimit}, found: make(chan *movedHub, 1),
		leave: func() {}}
}

// ofHub is the context of polls at one hub.
func (l *hubLook) ofHub(work context.Context) (polls context.Context) {
	l.leave()
	polls, l.leave = context.WithCancel(work)
	return polls
}

// renewed ends the looking: the session's hub renews leases.
func (l *hubLook) renewed() {
	l.spacing.Reset()
	l.next = time.Time{}
}

// lookElsewhere asks the hubs, one after another, whether they are ready, and does not wait for them. It asks on new
// connections, and at the session's URL last: that may be a name for several hubs.
func (r *run) lookElsewhere(from int) {
	if time.Now().Before(r.look.next) {
		return
	}
	r.look.next = time.Now().Add(r.look.spacing.Next())
	r.background.Go(func() {
		r.client.calls.CloseIdleConnections()
		hub := from
		for range r.client.urls {
			hub = r.client.after(hub)
			err := r.client.send(r.loopCtx, r.client.calls, request{
				hub: hub, method: http.MethodGet, path: protocol.ReadyPath, timeout: hubLookTimeout,
			}, nil)
			if err != nil {
				r.agent.log.Debug("No hub is ready there", "hub", protocol.ShownURL(r.client.url(hub)), "error", err)
				continue
			}
			select {
			case r.look.found <- &movedHub{from: from, to: hub}:
			default: // an earlier look has found one
			}
			return
		}
	})
}

// leaves reports whether the agent moves to the hub that a look has found. It does not if it has moved meanwhile, or
// its hub renews leases again.
func (r *run) leaves(m *movedHub) bool {
	if m.from != r.sessionNow().hub || r.look.next.IsZero() {
		return false
	}
	r.client.use(m.to)
	r.look.leave() // no later poll may go over their connections
	r.client.polls.CloseIdleConnections()
	return true
}
