// Package healing has the commands that show and steer healing.
package healing

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of healing.
func Command(a *app.App) *cobra.Command {
	r := &app.Resource[client.Healing]{App: a, Of: func(c *client.Client) client.Healing { return c.Healing },
		Reason: "why; it is shown with the status"}
	steer := func(
		verb, short, example string, do func(client.Healing, context.Context, string) (*api.HealingStatus, error),
	) *cobra.Command {
		return app.Tell(r, &cobra.Command{Use: verb, Short: short,
			Example: fmt.Sprintf("  mainstay healing %s --reason %q", verb, example),
		}, r.ReasonFlag, app.Only(do), func(_ string, s *api.HealingStatus) string {
			return fmt.Sprintf("Healing is %s.", s.State)
		})
	}
	return a.GroupOf(&cobra.Command{Use: "healing", Short: "See what healing does and why; trigger, pause and resume it"},
		app.Show(a, &cobra.Command{
			Use: "status", Short: "Show how healing stands: its last cycle with what that decided, and what is under way",
			Args: app.Exactly(), Example: "  mainstay healing status",
		}, func(ctx context.Context, c *client.Client, _ []string) (*api.HealingStatus, error) {
			return c.Healing.Status(ctx)
		}, printHealingStatus),
		app.List(r, &cobra.Command{
			Use: "actions", Aliases: []string{"list"}, Short: "List what healing did, or deliberately did not, newest first",
			Example: "  mainstay healing actions --cluster default --agent agent-1",
		}, actionFlags, client.Healing.Actions, PrintActions),
		app.Do(r, &cobra.Command{
			Use: "trigger", Short: "Run a healing cycle now, also while healing is paused",
			Example: "  mainstay healing trigger --dry-run\n" +
				"  mainstay healing trigger --cluster default --reason \"the disks are replaced\"",
		}, func(c *cobra.Command, in *api.HealingTrigger) {
			c.Flags().StringVar(&in.Cluster, "cluster", "", "look at this cluster only")
			c.Flags().BoolVar(&in.DryRun, "dry-run", false, "only tell what would be done")
			c.Flags().StringVar(&in.Reason, "reason", "", "why, for the record")
		}, app.Only(client.Healing.Trigger), printCycle),
		steer("pause", "Pause healing: no cycle begins by itself", "kernel updates tonight", client.Healing.Pause),
		steer("resume", "Resume healing", "done", client.Healing.Resume))
}

func printHealingStatus(a *app.App, s *api.HealingStatus) error {
	state := string(s.State)
	if s.State == api.HealingMissing {
		state = "missing: no worker has run here yet; its start makes the schedule"
	}
	modes := map[api.HealingMode]int{}
	for _, c := range s.Clusters {
		modes[c.Mode]++
	}
	last := "none yet"
	if s.LastCycle != nil {
		last = fmt.Sprintf("%s: looked at %s in %s", a.Ago(&s.LastCycle.StartedAt),
			api.Count(s.LastCycle.Agents, "agent"), api.Count(s.LastCycle.Clusters, "cluster"))
	}
	err := a.Facts([][2]any{
		{"Healing", state}, {"Note", s.Note}, {"Every", s.CycleInterval}, {"Last cycle", last},
		{"Next cycle", s.NextCycleAt},
		{"Clusters", fmt.Sprintf("%d on, %d dry run, %d off", modes[api.HealingOn], modes[api.HealingDryRun],
			modes[api.HealingOff])},
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
func printHealingDecisions(a *app.App, r *api.HealingCycleRecord) error {
	for _, cluster := range r.Silent {
		fmt.Fprintf(a.Stdout, "\nCluster %s did not answer; nothing is concluded about it.\n", app.OneLine(cluster))
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(a.Stdout, "\n%s more that wait are not listed.\n", api.Count(r.LeftOut, "decision"))
	}
	fmt.Fprintln(a.Stdout)
	header := []string{"CLUSTER", "WHAT", "ABOUT", "VERDICT", "REASON"}
	return app.PrintTable(a, r.Decisions, "Nothing is wrong.", header, func(d *api.HealingDecision) []any {
		reason := d.Reason
		if d.Why != "" {
			reason += " — " + d.Why
		}
		return []any{d.Cluster, d.Type, d.TargetID, d.Verdict, reason}
	})
}

func actionFlags(c *cobra.Command, q *client.HealingQuery) {
	flags := c.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Agent, "agent", "", "only about this agent")
	flags.StringVar((*string)(&q.Type), "type", "",
		"only of this type: failover_agent, reassign_task, rebalance_cluster, drain_agent, reduce_load, restore_agent or "+
			"report")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, succeeded, failed, planned, skipped or reported")
}

// PrintActions lists what healing did.
func PrintActions(a *app.App, records []api.HealingRecord) error {
	header := []string{"DECIDED", "CLUSTER", "WHAT", "ABOUT", "STATUS", "REASON", "OUTCOME"}
	return app.PrintTable(a, records, "There are no such healing actions.", header, func(r *api.HealingRecord) []any {
		outcome := r.Outcome
		if r.Ref != "" {
			outcome += " (" + r.Ref + ")"
		}
		return []any{r.DecidedAt, r.Cluster, r.Type, r.TargetID, r.Status, r.Reason, outcome}
	})
}

// printCycle prints the result of a cycle that a person started.
func printCycle(a *app.App, r *api.HealingCycleRecord) error {
	if r.CompletedAt == nil {
		return a.Sayf("The cycle is under way; see the workflow %s.\n", app.OneLine(r.ID))
	}
	what := "Looked at"
	if r.DryRun {
		what = "Dry run: looked at"
	}
	fmt.Fprintf(a.Stdout, "%s %s in %s.\n", what, api.Count(r.Agents, "agent"), api.Count(r.Clusters, "cluster"))
	return printHealingDecisions(a, r)
}
