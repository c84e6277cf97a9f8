package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// ScalingCommand is the group of what scaling did.
func ScalingCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "scaling",
		Short: "See which agents scaling started and stopped; steer it with `mainstay cluster scale`"}
	a.ServerFlag(command)
	var cluster string
	list := app.LimitedList(a, &cobra.Command{
		Use: "list", Short: "List what scaling has done, newest first", Args: app.Exactly(),
		Example: "  mainstay scaling list --cluster default",
	}, func(s *client.Client) *client.List[fleet.ScalingRecord] { return s.Scalings.List(cluster) }, printScalings)
	list.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	command.AddCommand(list, app.Show(a, &cobra.Command{
		Use: "get ID", Short: "Show one action of scaling, agent by agent", Args: app.Exactly("an action's id"),
		Example: "  mainstay scaling get default:7",
	}, func(ctx context.Context, s *client.Client, args []string) (*fleet.ScalingRecord, error) {
		return s.Scalings.Get(ctx, args[0])
	}, printScalingRecord))
	return command
}

// SpawnerCommand is the group of spawners.
func SpawnerCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "spawner", Short: "See who starts and stops agents"}
	a.ServerFlag(command)
	command.AddCommand(a.Watched(app.List(a, &cobra.Command{
		Use: "list", Short: "List spawners with their platform, health and capacity", Args: app.Exactly(),
		Example: "  mainstay spawner list",
	}, func(s *client.Client, _ []string) *client.List[api.Spawner] { return s.Scalings.Spawners() }, printSpawners)))
	return command
}

func printSpawners(a *app.App, spawners []api.Spawner) error {
	header := []string{"SPAWNER", "PLATFORM", "HEALTH", "AGENTS", "CORES", "MEMORY", "LAST SEEN", "PROBLEM"}
	none := "No spawner is there; start one with: mainstay serve --roles spawner"
	return app.PrintTable(a, spawners, none, header, func(s *api.Spawner) []string {
		agents, cores, memory := "", "", ""
		if s.Health != api.SpawnerUnknown {
			agents = strconv.Itoa(s.Agents)
		}
		if s.MaxAgents > 0 {
			agents += "/" + strconv.Itoa(s.MaxAgents)
		}
		if s.CPUs > 0 {
			cores = strconv.Itoa(s.CPUs)
		}
		if s.MemoryBytes > 0 {
			memory = fmt.Sprintf("%d MiB", s.MemoryBytes>>20)
		}
		return []string{s.Name, string(s.Platform), string(s.Health), agents, cores, memory, a.Ago(&s.LastSeen),
			s.Problem}
	})
}

func printScalings(a *app.App, records []fleet.ScalingRecord) error {
	header := []string{"ACTION", "CHANGE", "STATUS", "AGENTS", "STARTED", "TOOK", "REASON"}
	return app.PrintTable(a, records, "Scaling has done nothing.", header, func(r *fleet.ScalingRecord) []string {
		return []string{r.ID, fmt.Sprintf("%s %d", r.Change, len(r.Agents)), string(r.Status),
			fmt.Sprintf("%d → %d", r.From, r.To), a.Ago(&r.StartedAt), scalingTook(r), r.Reason}
	})
}

func scalingTook(r *fleet.ScalingRecord) string {
	if r.CompletedAt == nil {
		return ""
	}
	return app.Roughly(r.CompletedAt.Sub(r.StartedAt))
}

func printScalingRecord(a *app.App, r *fleet.ScalingRecord) error {
	spawner := r.Spawner
	if r.Platform != "" {
		spawner += " (" + string(r.Platform) + ")"
	}
	err := a.Facts([][2]string{
		{"Action", r.ID}, {"Cluster", r.Cluster},
		{"Change", fmt.Sprintf("%s, from %d to %d agents", r.Change, r.From, r.To)}, {"Status", string(r.Status)},
		{"Error", r.Error}, {"Rule", string(r.Rule)}, {"Reason", r.Reason}, {"Spawner", spawner}, {"Drain", r.Drain},
		{"Started", a.Ago(&r.StartedAt)}, {"Took", scalingTook(r)},
	})
	if err != nil {
		return err
	}
	header := []string{"AGENT", "STATUS", "SPAWNER", "HANDLE", "HOST", ""}
	return app.PrintBelow(a, r.Agents, header, func(g *fleet.ScaledAgent) []string {
		return []string{g.AgentID, string(g.Status), g.Spawner, g.Handle, g.Host, g.Error}
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
