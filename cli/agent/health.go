package agent

import (
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func healthCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "health ID",
		Short:   "Show how well an agent does its work, and what that is made of",
		Example: "  mainstay agent health agent-1",
		Args:    app.Exactly("an agent's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			h, err := client.AgentHealth(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error { return printHealth(a, h) })
		},
	}
	a.ServerFlag(command)
	a.OutputFlag(command)
	return command
}

func printHealth(a *app.App, h *api.AgentHealth) error {
	t := app.NewTable(a.Stdout)
	t.Facts([][2]string{{"Agent", h.AgentID}, {"Cluster", h.Cluster}, {"Status", string(h.Status)},
		{"Health", string(h.Level)}, {"Score", score(h.Score)}, {"Why", h.Why}})
	if err := t.Flush(); err != nil || len(h.Factors) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	t = app.NewTable(a.Stdout, "FACTOR", "SCORE", "WEIGHT", "WHY")
	for _, f := range h.Factors {
		t.Row(f.Name, score(&f.Score), fmt.Sprint(f.Weight), f.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	t = app.NewTable(a.Stdout, "CHECK", "STATUS", "WHY")
	for _, c := range h.Checks {
		t.Row(c.Name, string(c.Status), c.Why)
	}
	return t.Flush()
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
