package agent

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func healthCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use:     "health ID",
		Short:   "Show how well an agent does its work, and what that is made of",
		Example: "  mainstay agent health agent-1",
		Args:    app.Exactly("an agent's id"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.AgentHealth, error) {
		return s.Agents.Health(ctx, args[0])
	}, printHealth)
}

func printHealth(a *app.App, h *api.AgentHealth) error {
	err := a.Facts([][2]string{{"Agent", h.AgentID}, {"Cluster", h.Cluster}, {"Status", string(h.Status)},
		{"Health", string(h.Level)}, {"Score", score(h.Score)}, {"Why", h.Why}})
	if err != nil || len(h.Factors) == 0 {
		return err
	}
	err = app.PrintBelow(a, h.Factors, []string{"FACTOR", "SCORE", "WEIGHT", "WHY"}, func(f *fleet.HealthFactor) []string {
		return []string{f.Name, score(&f.Score), fmt.Sprint(f.Weight), f.Why}
	})
	if err != nil {
		return err
	}
	return app.PrintBelow(a, h.Checks, []string{"CHECK", "STATUS", "WHY"}, func(c *fleet.HealthCheck) []string {
		return []string{c.Name, string(c.Status), c.Why}
	})
}

// worst is the factor that costs an agent most.
func worst(g *api.AgentHealth) string {
	why, most := g.Why, 0.0
	for _, f := range g.Factors {
		if cost := (1 - f.Score) * f.Weight; cost > most {
			why, most = f.Why, cost
		}
	}
	return why
}

func score(s *float64) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *s)
}
