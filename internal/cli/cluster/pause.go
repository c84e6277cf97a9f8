package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const laneUsage = "only this lane: default, cap/<capability>+<capability>, " +
	"type/<type>, fit/<class>, shard/<number> or agent/<id>, as the queue command shows them"

func pauseCommand(a *app.App) *cobra.Command {
	return lanesCommand(a, "pause", client.Clusters.Pause, "Take nothing more from a cluster's lanes, or from one", `
  mainstay cluster pause default --reason "the disks are being changed"
  mainstay cluster pause default --lane cap/gpu`,
		func(cluster, lane string, k *api.Cluster) string {
			if lane != "" {
				return fmt.Sprintf(
					"Lane %s of cluster %s is paused. What runs goes on; what waits in it still expires. "+
						"Go on with: mainstay cluster resume %s --lane %s\n", lane, cluster, cluster, lane)
			}
			return fmt.Sprintf(
				"Cluster %s is paused. What runs goes on; what waits still expires. "+
					"Go on with: mainstay cluster resume %s\n", cluster, cluster)
		})
}

func resumeCommand(a *app.App) *cobra.Command {
	return lanesCommand(a, "resume", client.Clusters.Resume, "Take from a cluster's lanes again, or from one", `
  mainstay cluster resume default
  mainstay cluster resume default --lane cap/gpu`,
		func(cluster, lane string, k *api.Cluster) string {
			switch {
			case k.Paused != nil && lane != "":
				return fmt.Sprintf(
					"Lane %s is not paused by itself now, but all of cluster %s is. "+
						"Go on with: mainstay cluster resume %s\n", lane, cluster, cluster)
			case lane != "":
				return fmt.Sprintf("Lane %s of cluster %s goes on.\n", lane, cluster)
			}
			text := fmt.Sprintf("Cluster %s goes on.\n", cluster)
			for _, l := range k.PausedLanes {
				text += fmt.Sprintf(
					"Lane %s was paused by itself and stays so. "+
						"Go on with: mainstay cluster resume %s --lane %s\n", l.Lane, cluster, l.Lane)
			}
			return text
		})
}

func lanesCommand(
	a *app.App, word string,
	change func(client.Clusters, context.Context, string, api.PauseRequest) (*api.Cluster, error),
	short, example string,
	done func(cluster, lane string, k *api.Cluster) string,
) *cobra.Command {
	var request api.PauseRequest
	command := app.Show(a, &cobra.Command{
		Use: word + " NAME", Short: short, Example: example[1:], Args: app.Exactly("a cluster's name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Cluster, error) {
		if request.Lane != "" {
			lane, err := task.ParseLane(request.Lane)
			if err != nil {
				return nil, app.UsageError("--lane %w", err)
			}
			request.Lane = lane
		}
		return change(s.Clusters, ctx, args[0], request)
	}, func(a *app.App, k *api.Cluster) error { return a.Sayf("%s", done(k.Name, request.Lane, k)) })
	command.Flags().StringVar(&request.Lane, "lane", "", laneUsage)
	why := "why; shown with the pause, and kept in the history"
	if word == "resume" {
		why = "why; kept in the history"
	}
	command.Flags().StringVar(&request.Reason, "reason", "", why)
	return command
}

func releaseBrakeCommand(r *app.Resource[client.Clusters]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use:   "release-brake NAME",
		Short: "Say that agents that vanished at once are really gone",
		Long: `Say that agents that vanished at once are really gone. When a large share of a cluster's agents vanishes within
seconds, the network is to be suspected and not the agents; so their failovers wait until the agents are back, or until
you are sure that they are not and release the brake.`,
		Example: `  mainstay cluster release-brake default --reason "the rack has no power"`,
	}, r.ReasonFlag, client.Clusters.ReleaseBrake, func(name string, released bool) string {
		if !released {
			return fmt.Sprintf("The brake of cluster %s holds nothing back: there was nothing to release.", name)
		}
		return fmt.Sprintf("The brake of cluster %s is released.", name)
	})
}
