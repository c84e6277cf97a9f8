package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
)

func (a *app) agentHealthCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "health ID", Short: "Show how well an agent does its work, and what that is made of", Example: "  mainstay agent health agent-1", Args: exactly("an agent's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var h api.AgentHealth
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(agentsPath, args[0], "health"), 0, nil, &h)
			if err != nil {
				return err
			}
			return a.print(raw, func() error { return a.printHealth(&h) })
		},
	}
	a.serverFlag(command)
	a.outputFlag(command)
	return command
}

func (a *app) printHealth(h *api.AgentHealth) error {
	t := newTable(a.stdout)
	t.facts([][2]string{{"Agent", h.AgentID}, {"Cluster", h.Cluster}, {"Status", string(h.Status)}, {"Health", string(h.Level)}, {"Score", score(h.Score)}, {"Why", h.Why}})
	if err := t.flush(); err != nil || len(h.Factors) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	t = newTable(a.stdout, "FACTOR", "SCORE", "WEIGHT", "WHY")
	for _, f := range h.Factors {
		t.row(f.Name, score(&f.Score), fmt.Sprint(f.Weight), f.Why)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	t = newTable(a.stdout, "CHECK", "STATUS", "WHY")
	for _, c := range h.Checks {
		t.row(c.Name, string(c.Status), c.Why)
	}
	return t.flush()
}

func (a *app) clusterHealthCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "health NAME", Short: "Show how well the agents of a cluster do their work", Example: "  mainstay cluster health default", Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var h api.ClusterHealth
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(clustersPath, args[0], "health"), 0, nil, &h)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				fmt.Fprintf(a.stdout, "Cluster %s is %s; score %s\n\n", h.Cluster, h.Status, score(h.Score))
				t := newTable(a.stdout, "AGENT", "STATUS", "HEALTH", "SCORE", "WHY")
				for i := range h.Agents {
					g := &h.Agents[i]
					t.row(g.AgentID, string(g.Status), string(g.Level), score(g.Score), worst(g))
				}
				return t.flush()
			})
		},
	}
	a.outputFlag(command)
	return command
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
