package controlplane

import (
	"strings"

	"mainstay.dev/mainstay/api"
)

// health tells /health what the process does, and how its hub stands.
func (p *Plane) health(r roles) func(*api.Health) {
	names := strings.Split(r.String(), ",")
	return func(h *api.Health) {
		h.Roles = names
		if p.hub == nil {
			return
		}
		status := p.hub.Status()
		h.HubID, h.Agents = p.hub.ID(), &status.Agents
		h.ActiveLeases, h.LastHeartbeatSuccess = &status.Leases, &status.Fresh
		if !status.RenewedAt.IsZero() {
			renewed := status.RenewedAt.UTC()
			h.LastHeartbeat = &renewed
		}
	}
}
