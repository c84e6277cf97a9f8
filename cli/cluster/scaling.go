package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// ScalingCommand is the group of what scaling did.
func ScalingCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "scaling",
		Short: "See which agents scaling started and stopped; steer it with `mainstay cluster scale`"}
	a.ServerFlag(command)
	command.AddCommand(scalingListCommand(a), scalingGetCommand(a))
	return command
}

func scalingListCommand(a *app.App) *cobra.Command {
	var cluster string
	var limit int
	command := &cobra.Command{
		Use:     "list",
		Short:   "List what scaling has done, newest first",
		Example: "  mainstay scaling list --cluster default",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			list := func(s *client.Client) *client.List[fleet.ScalingRecord] { return s.ScalingActions(cluster) }
			return app.PrintList(c, a, list, limit, printScalings)
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

func printScalings(a *app.App, records []fleet.ScalingRecord) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "Scaling has done nothing.")
		return err
	}
	t := app.NewTable(a.Stdout, "ACTION", "CHANGE", "STATUS", "AGENTS", "STARTED", "TOOK", "REASON")
	for i := range records {
		r := &records[i]
		t.Row(r.ID, fmt.Sprintf("%s %d", r.Change, len(r.Agents)), string(r.Status),
			fmt.Sprintf("%d → %d", r.From, r.To), a.Ago(&r.StartedAt), scalingTook(r), r.Reason)
	}
	return t.Flush()
}

func scalingTook(r *fleet.ScalingRecord) string {
	if r.CompletedAt == nil {
		return ""
	}
	return app.Roughly(r.CompletedAt.Sub(r.StartedAt))
}

func scalingGetCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use:     "get ID",
		Short:   "Show one action of scaling, agent by agent",
		Example: "  mainstay scaling get default:7",
		Args:    app.Exactly("an action's id"),
	}, (*client.Client).ScalingAction, printScalingRecord)
}

func printScalingRecord(a *app.App, raw json.RawMessage, r *fleet.ScalingRecord) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
		spawner := r.Spawner
		if r.Platform != "" {
			spawner += " (" + string(r.Platform) + ")"
		}
		t.Facts([][2]string{
			{"Action", r.ID}, {"Cluster", r.Cluster},
			{"Change", fmt.Sprintf("%s, from %d to %d agents", r.Change, r.From, r.To)}, {"Status", string(r.Status)},
			{"Error", r.Error}, {"Rule", string(r.Rule)}, {"Reason", r.Reason}, {"Spawner", spawner},
			{"Drain", r.Drain},
			{"Started", a.Ago(&r.StartedAt)}, {"Took", scalingTook(r)},
		})
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
		t = app.NewTable(a.Stdout, "AGENT", "STATUS", "SPAWNER", "HANDLE", "HOST", "")
		for i := range r.Agents {
			g := &r.Agents[i]
			t.Row(g.AgentID, string(g.Status), g.Spawner, g.Handle, g.Host, g.Error)
		}
		return t.Flush()
	})
}

// clockText is a time of today, or with its date.
func clockText(a *app.App, at time.Time) string {
	at = at.Local()
	if now := a.Now(); at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
