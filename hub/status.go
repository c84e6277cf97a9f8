package hub

import "time"

// Status is the state of a hub.
type Status struct {
	// Agents have a session here. Leases are the leaderships and shards that they hold.
	Agents, Leases int
	// RenewedAt is when Temporal last took the heartbeat of the hub's own lease; Fresh: recently enough for the hub to
	// renew its agents' leases.
	RenewedAt time.Time
	Fresh     bool
}

// Status returns the present state of the hub.
func (h *Hub) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := Status{Agents: len(h.sessions), RenewedAt: h.lease.RenewedAt(), Fresh: h.lease.Fresh(time.Now())}
	for _, s := range h.sessions {
		d := h.directives[s.cluster]
		status.Leases += len(s.owns(d))
		if s.leads(d) {
			status.Leases++
		}
	}
	return status
}
