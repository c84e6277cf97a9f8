package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

// QueueCommand shows what waits in lanes.
func QueueCommand(a *app.App) *cobra.Command {
	command := app.List(a, &cobra.Command{
		Use:   "queue [CLUSTER]",
		Short: "Show what waits in the lanes of a cluster, or of all",
		Long: `Show what waits in the lanes of a cluster, or of all: how many tasks and for how long, how many come and are taken a
second (over the last 30 s), and who serves the lane. Slots are shared by the lanes that an agent serves. The lane of a
single agent is shown while open work is pinned to it, or it is paused.`,
		Example: "  mainstay queue\n  mainstay queue default -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("takes at most a cluster's name, got %d arguments", len(args))
			}
			return nil
		},
	}, func(s *client.Client, args []string) *client.List[api.Lane] {
		return s.Clusters.Lanes(strings.Join(args, "")) // of one, or of all
	}, printLanes)
	a.ServerFlag(command)
	return a.Watched(command)
}

func printLanes(a *app.App, lanes []api.Lane) error {
	header := []string{"CLUSTER", "LANE", "WAITING", "OLDEST", "IN/S", "OUT/S", "AGENTS", "SLOTS BUSY", "BY PRIORITY",
		"PAUSED"}
	return app.PrintTable(a, lanes, noClusters, header, func(l *api.Lane) []string {
		var oldest string
		if l.OldestAge > 0 {
			oldest = app.Roughly(l.OldestAge.Std())
		}
		return []string{l.Cluster, l.Lane, fmt.Sprint(l.Depth), oldest, fmt.Sprint(l.AddRate),
			fmt.Sprint(l.DispatchRate), fmt.Sprint(l.Agents), busySlots(l), byPriority(l.Priorities),
			pauseText(a, l.Paused)}
	})
}

func busySlots(l *api.Lane) string {
	if l.BusySlots == nil {
		return fmt.Sprintf("? of %d", l.Slots)
	}
	return fmt.Sprintf("%d of %d", *l.BusySlots, l.Slots)
}

// byPriority tells how many wait with each priority, leaving out those where none does.
func byPriority(levels []api.PriorityBacklog) string {
	var parts []string
	for _, p := range levels {
		if p.Depth > 0 {
			parts = append(parts, fmt.Sprintf("%s (%d): %d", p.Name, p.Priority, p.Depth))
		}
	}
	return strings.Join(parts, ", ")
}

// pauseText is a pause in a few words; empty for nil.
func pauseText(a *app.App, p *api.Pause) string {
	if p == nil {
		return ""
	}
	text := "since " + a.Ago(&p.Since)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func loadCommand(a *app.App) *cobra.Command {
	return a.Watched(app.Show(a, &cobra.Command{
		Use: "load NAME", Short: "Show how a cluster's work is spread over its agents", Args: app.Exactly("a cluster's name"),
		Example: "  mainstay cluster load default",
	}, func(ctx context.Context, s *client.Client, args []string) (*api.ClusterLoad, error) {
		return s.Clusters.Load(ctx, args[0])
	}, printLoad))
}

func printLoad(a *app.App, l *api.ClusterLoad) error {
	header := []string{"AGENT", "STATUS", "LOAD", "RUNNING", "SLOTS", "WAITING FOR IT"}
	none := "No agent yet. Start one: mainstay agent run --cluster " + l.Cluster
	if err := app.PrintTable(a, l.Agents, none, header, func(g *api.AgentLoad) []string {
		load := "?"
		if g.Load != nil {
			load = fmt.Sprintf("%.0f %%", *g.Load)
		}
		return []string{g.AgentID, string(g.Status), load, fmt.Sprint(g.Running), fmt.Sprint(g.Slots),
			fmt.Sprint(g.QueueLength)}
	}); err != nil {
		return err
	}
	return a.Sayf("%d tasks run, about %d wait; mean load %.0f %%\n", l.Running, l.Waiting, l.Average)
}
