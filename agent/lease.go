package agent

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

// renewLease counts the lease from when an answered poll was sent. The mutex is held.
func (r *run) renewLease(sentAt time.Time) {
	if sentAt.After(r.leaseFrom) {
		r.leaseFrom = sentAt
	}
	r.watchLease()
}

// watchLease sets the timer to the lease's end. The mutex is held.
func (r *run) watchLease() {
	if r.session.lease <= 0 || r.leaseFrom.IsZero() {
		return
	}
	left := time.Until(r.leaseFrom.Add(r.session.lease))
	if r.leaseTimer == nil {
		r.leaseTimer = time.AfterFunc(left, r.checkLease)
		return
	}
	r.leaseTimer.Reset(left)
}

// checkLease stops fenced work when the lease has run out. Times are monotonic.
func (r *run) checkLease() {
	var expired []*attempt
	r.mu.Lock()
	if r.leaseOver() {
		for _, at := range r.attempts {
			if at.task.RetrySafety == fleet.Fenced && !at.leaseExpired {
				at.leaseExpired = true
				expired = append(expired, at)
			}
		}
	} else {
		r.watchLease()
	}
	r.mu.Unlock()
	for _, at := range expired {
		at.cancel(ErrLeaseExpired)
		at.log().Warn("The lease has run out: stopping a fenced attempt")
		r.agent.emit(at.event(EventLeaseExpired))
	}
}

// leaseOver reports whether the lease has run out. The mutex is held.
func (r *run) leaseOver() bool {
	return !plantLeaseIgnored && r.session.lease > 0 && !r.leaseFrom.IsZero() && time.Since(r.leaseFrom) >= r.session.lease
}

// hasFenced reports whether fenced work runs. The mutex is held.
func (r *run) hasFenced() bool {
	for _, at := range r.attempts {
		if at.task.RetrySafety == fleet.Fenced {
			return true
		}
	}
	return false
}
