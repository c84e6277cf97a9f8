package agent

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/store"
)

func (h *Handlers) registerHealth(routes huma.API) {
	httpapi.Register(routes, access.View, rest.Op(
		"Agents",
		"get-agent-health",
		"GET /{id}/health",
		"Get an agent's health, with what it is made of",
		"Its hub rates it by the last five minutes. Answers 501 not_supported when Temporal has no standalone activities.",
	),
		func(ctx context.Context, in *rest.AgentInput) (*rest.Output[api.AgentHealth], error) {
			ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
			defer cancel()
			view, live, err := h.ClusterOfAgent(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			agents, err := h.healths(ctx, &view.Cluster, live, in.ID)
			if err != nil {
				return nil, err
			}
			return &rest.Output[api.AgentHealth]{Body: agents[0]}, nil
		})
	httpapi.Register(routes, access.View, rest.Op("Clusters", "get-cluster-health", "GET /clusters/{id}/health",
		"Get the health of a cluster's agents", ""),
		func(ctx context.Context, in *rest.ClusterInput) (*rest.Output[api.ClusterHealth], error) {
			ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
			defer cancel()
			view, err := h.View(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			agents, err := h.healths(ctx, &view.Cluster, h.Live(ctx), "")
			return rest.Reply(api.ClusterHealth{
				Cluster: view.Config.Name, Status: view.Status(), Score: meanScore(agents), Agents: agents,
			}, err)
		})
}

// healths asks the hubs of a cluster's members, or that of one member, how well they do.
func (h *Handlers) healths(
	ctx context.Context, c *fleet.Cluster, live store.Live, only string,
) ([]api.AgentHealth, error) {
	byHub, err := rest.AskHubs(ctx, h.Core, contract.ReadHealthActivity, c, only, "health", contract.ReadHealthID,
		contract.ReadHealthInput{Cluster: c.Config.Name, AgentID: only})
	if err != nil {
		return nil, err
	}
	agents, facts := []api.AgentHealth{}, live.Facts(c)
	for i := range c.Members {
		if m := &c.Members[i]; only == "" || m.AgentID == only {
			a := healthOf(c, m, byHub)
			a.Status, _, _ = live.Status(m)
			if now, known := facts[m.AgentID]; known {
				takeMetrics(&a, &now)
			}
			agents = append(agents, a)
		}
	}
	return agents, nil
}

// healthOf joins what the cluster knows of a member with what its hub says.
func healthOf(c *fleet.Cluster, m *fleet.Member, byHub map[string]contract.ReadHealthResult) api.AgentHealth {
	a := api.AgentHealth{AgentID: m.AgentID, Cluster: c.Config.Name}
	rated, known := byHub[m.Hub].Agents[m.AgentID]
	switch {
	case !m.Connected():
		none := 0.0
		a.Level, a.Score, a.FailedAt = fleet.HealthFailed, &none, &m.StatusSince
		a.Why = "not connected: " + m.StatusReason
	case !known:
		a.Why = "its hub did not answer for it; try again"
	default:
		a.Level, a.Score, a.Why, a.Factors, a.Checks = rated.Level, &rated.Score, rated.Why, rated.Factors, rated.Checks
		a.ConsecutiveFailures = rated.ConsecutiveFailures
		if m.Health != nil && m.Health.Level.WorseThan(fleet.HealthWarning) {
			a.FailedAt = &m.Health.Since
		}
	}
	return a
}

// takeMetrics puts in what the agent's hub publishes of it.
func takeMetrics(a *api.AgentHealth, now *fleet.LiveAgent) {
	a.LastHeartbeat = &now.LastHeartbeat
	a.Metrics = &api.HealthMetrics{CPUPercent: now.CPUPercent, MemoryPercent: now.MemoryPercent, TaskCount: now.Running}
	if now.Processed > 0 {
		a.Metrics.ErrorRate = float64(now.Failed) / float64(now.Processed)
	}
}

func meanScore(agents []api.AgentHealth) *float64 {
	sum, n := 0.0, 0
	for i := range agents {
		if a := &agents[i]; a.Score != nil && a.Status != fleet.AgentMaintenance {
			sum += *a.Score
			n++
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}
