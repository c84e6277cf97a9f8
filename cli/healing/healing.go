// Package healing has the commands that show and steer healing.
package healing

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// Command is the group of healing.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "healing", Short: "See what healing does and why; trigger, pause and resume it"}
	a.ServerFlag(command)
	command.AddCommand(statusCommand(a), actionsCommand(a), triggerCommand(a),
		pauseCommand(a, "pause", "Pause healing: no cycle begins by itself", "kernel updates tonight",
			client.Healing.Pause),
		pauseCommand(a, "resume", "Resume healing", "done", client.Healing.Resume))
	return command
}

func statusCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use: "status", Short: "Show how healing stands: its last cycle with what that decided, and what is under way",
		Args: app.Exactly(), Example: "  mainstay healing status",
	}, func(ctx context.Context, s *client.Client, _ []string) (*api.HealingStatus, error) {
		return s.Healing.Status(ctx)
	}, printHealingStatus)
}

func printHealingStatus(a *app.App, s *api.HealingStatus) error {
	state := string(s.State)
	if s.State == api.HealingMissing {
		state = "missing: no worker has run here yet; its start makes the schedule"
	}
	modes := map[fleet.HealingMode]int{}
	for _, c := range s.Clusters {
		modes[c.Mode]++
	}
	last := "none yet"
	if s.LastCycle != nil {
		last = fmt.Sprintf("%s: looked at %s in %s", a.Ago(&s.LastCycle.StartedAt),
			fleet.Count(s.LastCycle.Agents, "agent"), fleet.Count(s.LastCycle.Clusters, "cluster"))
	}
	err := a.Facts([][2]string{
		{"Healing", state}, {"Note", s.Note}, {"Every", s.CycleInterval.String()}, {"Last cycle", last},
		{"Next cycle", a.Ago(s.NextCycleAt)},
		{"Clusters", fmt.Sprintf("%d on, %d dry run, %d off", modes[fleet.HealingOn], modes[fleet.HealingDryRun],
			modes[fleet.HealingOff])},
	})
	if err == nil && s.LastCycle != nil {
		err = printHealingDecisions(a, s.LastCycle)
	}
	if err != nil || len(s.Running) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nUnder way:")
	return PrintActions(a, s.Running)
}

// printHealingDecisions shows what a cycle decided.
func printHealingDecisions(a *app.App, r *fleet.HealingCycleRecord) error {
	for _, cluster := range r.Silent {
		fmt.Fprintf(a.Stdout, "\nCluster %s did not answer; nothing is concluded about it.\n", app.OneLine(cluster))
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(a.Stdout, "\n%s more that wait are not listed.\n", fleet.Count(r.LeftOut, "decision"))
	}
	fmt.Fprintln(a.Stdout)
	header := []string{"CLUSTER", "WHAT", "ABOUT", "VERDICT", "REASON"}
	return app.PrintTable(a, r.Decisions, "Nothing is wrong.", header, func(d *fleet.HealingDecision) []string {
		reason := d.Reason
		if d.Why != "" {
			reason += " — " + d.Why
		}
		return []string{d.Cluster, string(d.Type), d.TargetID, string(d.Verdict), reason}
	})
}

func actionsCommand(a *app.App) *cobra.Command {
	var q client.HealingQuery
	command := app.LimitedList(a, &cobra.Command{
		Use: "actions", Aliases: []string{"list"}, Short: "List what healing did, or deliberately did not, newest first", Args: app.Exactly(),
		Example: "  mainstay healing actions --cluster default --agent agent-1",
	}, func(s *client.Client) *client.List[fleet.HealingRecord] { return s.Healing.Actions(q) }, PrintActions)
	flags := command.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Agent, "agent", "", "only about this agent")
	flags.StringVar((*string)(&q.Type), "type", "",
		"only of this type: failover_agent, reassign_task, rebalance_cluster, drain_agent, reduce_load, restore_agent or report")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, succeeded, failed, planned, skipped or reported")
	return command
}

// PrintActions lists what healing did.
func PrintActions(a *app.App, records []fleet.HealingRecord) error {
	header := []string{"DECIDED", "CLUSTER", "WHAT", "ABOUT", "STATUS", "REASON", "OUTCOME"}
	return app.PrintTable(a, records, "There are no such healing actions.", header, func(r *fleet.HealingRecord) []string {
		outcome := r.Outcome
		if r.Ref != "" {
			outcome += " (" + r.Ref + ")"
		}
		return []string{a.Ago(&r.DecidedAt), r.Cluster, string(r.Type), r.TargetID, string(r.Status), r.Reason, outcome}
	})
}

func triggerCommand(a *app.App) *cobra.Command {
	var request api.HealingTrigger
	command := app.Show(a, &cobra.Command{
		Use: "trigger", Short: "Run a healing cycle now, also while healing is paused", Args: app.Exactly(),
		Example: "  mainstay healing trigger --dry-run\n  mainstay healing trigger --cluster default --reason \"the disks are replaced\"",
	}, func(ctx context.Context, s *client.Client, _ []string) (*fleet.HealingCycleRecord, error) {
		return s.Healing.Trigger(ctx, request)
	}, func(a *app.App, r *fleet.HealingCycleRecord) error {
		if r.CompletedAt == nil {
			return a.Sayf("The cycle is under way; see the workflow %s.\n", app.OneLine(r.ID))
		}
		what := "Looked at"
		if r.DryRun {
			what = "Dry run: looked at"
		}
		fmt.Fprintf(a.Stdout, "%s %s in %s.\n", what, fleet.Count(r.Agents, "agent"),
			fleet.Count(r.Clusters, "cluster"))
		return printHealingDecisions(a, r)
	})
	command.Flags().StringVar(&request.Cluster, "cluster", "", "look at this cluster only")
	command.Flags().BoolVar(&request.DryRun, "dry-run", false, "only tell what would be done")
	command.Flags().StringVar(&request.Reason, "reason", "", "why, for the record")
	return command
}

func pauseCommand(
	a *app.App, action, short, example string,
	change func(client.Healing, context.Context, string) (*api.HealingStatus, error),
) *cobra.Command {
	var reason string
	command := app.Show(a, &cobra.Command{
		Use:     action,
		Short:   short,
		Args:    app.Exactly(),
		Example: fmt.Sprintf("  mainstay healing %s --reason %q", action, example),
	}, func(ctx context.Context, s *client.Client, _ []string) (*api.HealingStatus, error) {
		return change(s.Healing, ctx, reason)
	}, func(a *app.App, s *api.HealingStatus) error { return a.Sayf("Healing is %s.\n", s.State) })
	command.Flags().StringVar(&reason, "reason", "", "why; it is shown with the status")
	return command
}
