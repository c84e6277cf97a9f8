package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
)

// QueueCommand shows what waits in lanes.
func QueueCommand(a *app.App) *cobra.Command {
	command := a.Call(&cobra.Command{
		Use:   "queue [CLUSTER]",
		Short: "Show what waits in the lanes of a cluster, or of all",
		Long: `Show what waits in the lanes of a cluster, or of all: how many tasks and for how long, how many come and are
taken a second (over the last 30 s), and who serves the lane. Slots are shared by the lanes that an agent serves.
The lane of a single agent is shown while open work is pinned to it, or it is paused.`,
		Example: "  mainstay queue\n  mainstay queue default -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("takes at most a cluster's name, got %d arguments", len(args))
			}
			return nil
		},
	}, func(ctx context.Context, c *app.Client, args []string) error {
		return app.PrintList(ctx, c, c.Clusters.Lanes(strings.Join(args, "")), 0, printLanes) // of one, or of all
	})
	a.ServerFlag(command)
	return a.Watched(command)
}

func printLanes(a *app.App, lanes []api.Lane) error {
	header := []string{"CLUSTER", "LANE", "WAITING", "OLDEST", "IN/S", "OUT/S", "AGENTS", "SLOTS BUSY", "BY PRIORITY",
		"PAUSED"}
	return app.PrintTable(a, lanes, noClusters, header, func(l *api.Lane) []any {
		var oldest string
		if l.OldestAge > 0 {
			oldest = app.Roughly(l.OldestAge.Std())
		}
		return []any{l.Cluster, l.Lane, l.Depth, oldest, l.AddRate, l.DispatchRate, l.Agents, busySlots(l),
			byPriority(l.Priorities), pauseText(a, l.Paused)}
	})
}

func busySlots(l *api.Lane) string {
	if l.BusySlots == nil {
		return fmt.Sprintf("? of %d", l.Slots)
	}
	return fmt.Sprintf("%d of %d", *l.BusySlots, l.Slots)
}

// byPriority says how many wait with each priority, leaving out priorities without any.
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

func printLoad(a *app.App, l *api.ClusterLoad) error {
	header := []string{"AGENT", "STATUS", "LOAD", "RUNNING", "SLOTS", "WAITING FOR IT"}
	none := "No agent yet. Start one: mainstay agent run --cluster " + l.Cluster
	if err := app.PrintTable(a, l.Agents, none, header, func(g *api.AgentLoad) []any {
		load := "?"
		if g.Load != nil {
			load = fmt.Sprintf("%.0f %%", *g.Load)
		}
		return []any{g.AgentID, g.Status, load, g.Running, g.Slots, g.QueueLength}
	}); err != nil {
		return err
	}
	return a.Sayf("%d tasks run, about %d wait; mean load %.0f %%\n", l.Running, l.Waiting, l.Average)
}
