package agent

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// renewLease starts the lease anew from when an answered poll was sent. The mutex is held.
func (r *run) renewLease(sentAt time.Time) {
	if sentAt.After(r.leaseFrom) {
		r.leaseFrom = sentAt
		close(r.renewed)
		r.renewed = make(chan struct{})
	}
	r.watchLease()
}

// leaseEnd returns the present end of the lease, zero for never, and a channel that is closed when the lease is
// renewed.
func (r *run) leaseEnd() (time.Time, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session.lease <= 0 || r.leaseFrom.IsZero() {
		return time.Time{}, r.renewed
	}
	return r.leaseFrom.Add(r.session.lease), r.renewed
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
	return r.session.lease > 0 && !r.leaseFrom.IsZero() && time.Since(r.leaseFrom) >= r.session.lease
}

// inTime returns the assignments of an answer, or none when the answer took longer than the lease, as in a process that
// was frozen: the hub may have given them to others. Without a lease it also leaves out fenced work. The next poll does
// not list what was left out, so the hub knows that it never began.
func (r *run) inTime(answer pollAnswer) []protocol.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	late, over := r.session.lease > 0 && time.Since(answer.poll.sentAt) >= r.session.lease, r.leaseOver()
	return slices.DeleteFunc(answer.polled.Assignments, func(a protocol.Assignment) bool {
		return late || over && a.RetrySafety == fleet.Fenced
	})
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
