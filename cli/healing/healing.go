// Package healing has the commands that show and steer healing.
package healing

import (
	"context"
	"encoding/json"
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
			(*client.Client).PauseHealing),
		pauseCommand(a, "resume", "Resume healing", "done", (*client.Client).ResumeHealing))
	return command
}

func statusCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show how healing stands: its last cycle with what that decided, and what is under way",
		Args:    app.Exactly(),
		Example: "  mainstay healing status",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			s, err := client.Healing(c.Context())
			if err != nil {
				return err
			}
			return printHealingStatus(a, client.Answer, s)
		},
	}
	a.OutputFlag(command)
	return command
}

func printHealingStatus(a *app.App, raw json.RawMessage, s *api.HealingStatus) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
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
		next := a.Ago(s.NextCycleAt)
		t.Facts([][2]string{
			{"Healing", state}, {"Note", s.Note}, {"Every", s.CycleInterval.String()}, {"Last cycle", last},
			{"Next cycle", next},
			{"Clusters", fmt.Sprintf("%d on, %d dry run, %d off", modes[fleet.HealingOn], modes[fleet.HealingDryRun],
				modes[fleet.HealingOff])},
		})
		if err := t.Flush(); err != nil {
			return err
		}
		if s.LastCycle != nil {
			if err := printHealingDecisions(a, s.LastCycle); err != nil {
				return err
			}
		}
		if len(s.Running) == 0 {
			return nil
		}
		fmt.Fprintln(a.Stdout, "\nUnder way:")
		return PrintActions(a, s.Running)
	})
}

// printHealingDecisions shows what a cycle decided.
func printHealingDecisions(a *app.App, r *fleet.HealingCycleRecord) error {
	for _, cluster := range r.Silent {
		fmt.Fprintf(a.Stdout, "\nCluster %s did not answer; nothing is concluded about it.\n", app.OneLine(cluster))
	}
	if len(r.Decisions) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "\nNothing is wrong.")
		return err
	}
	fmt.Fprintln(a.Stdout)
	t := app.NewTable(a.Stdout, "CLUSTER", "WHAT", "ABOUT", "VERDICT", "REASON")
	for i := range r.Decisions {
		d := &r.Decisions[i]
		reason := d.Reason
		if d.Why != "" {
			reason += " — " + d.Why
		}
		t.Row(d.Cluster, string(d.Type), d.TargetID, string(d.Verdict), reason)
	}
	return t.Flush()
}

func actionsCommand(a *app.App) *cobra.Command {
	var q client.HealingQuery
	var limit int
	command := &cobra.Command{
		Use: "actions", Short: "List what healing did, or deliberately did not, newest first", Args: app.Exactly(),
		Example: "  mainstay healing actions --cluster default --agent agent-1",
		RunE: func(c *cobra.Command, _ []string) error {
			list := func(s *client.Client) *client.List[fleet.HealingRecord] { return s.HealingActions(q) }
			return app.PrintList(c, a, list, limit, PrintActions)
		},
	}
	flags := command.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Agent, "agent", "", "only about this agent")
	flags.StringVar((*string)(&q.Type), "type", "",
		"only of this type: failover_agent, reassign_task, rebalance_cluster, drain_agent, reduce_load, restore_agent or report")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, succeeded, failed, planned, skipped or reported")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

// PrintActions lists what healing did.
func PrintActions(a *app.App, records []fleet.HealingRecord) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "There are no such healing actions.")
		return err
	}
	t := app.NewTable(a.Stdout, "DECIDED", "CLUSTER", "WHAT", "ABOUT", "STATUS", "REASON", "OUTCOME")
	for i := range records {
		r := &records[i]
		outcome := r.Outcome
		if r.Ref != "" {
			outcome += " (" + r.Ref + ")"
		}
		t.Row(a.Ago(&r.DecidedAt), r.Cluster, string(r.Type), r.TargetID, string(r.Status), r.Reason, outcome)
	}
	return t.Flush()
}

func triggerCommand(a *app.App) *cobra.Command {
	var request api.HealingTrigger
	command := &cobra.Command{
		Use: "trigger", Short: "Run a healing cycle now, also while healing is paused", Args: app.Exactly(),
		Example: "  mainstay healing trigger --dry-run\n  mainstay healing trigger --cluster default --reason \"the disks are replaced\"",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			r, err := client.TriggerHealing(c.Context(), request)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				if r.CompletedAt == nil {
					_, err := fmt.Fprintf(a.Stdout, "The cycle is under way; see the workflow %s.\n", app.OneLine(r.ID))
					return err
				}
				what := "Looked at"
				if r.DryRun {
					what = "Dry run: looked at"
				}
				fmt.Fprintf(a.Stdout, "%s %s in %s.\n", what, fleet.Count(r.Agents, "agent"),
					fleet.Count(r.Clusters, "cluster"))
				return printHealingDecisions(a, r)
			})
		},
	}
	command.Flags().StringVar(&request.Cluster, "cluster", "", "look at this cluster only")
	command.Flags().BoolVar(&request.DryRun, "dry-run", false, "only tell what would be done")
	command.Flags().StringVar(&request.Reason, "reason", "", "why, for the record")
	a.OutputFlag(command)
	return command
}

func pauseCommand(
	a *app.App, action, short, example string,
	change func(*client.Client, context.Context, string) (*api.HealingStatus, error),
) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use:     action,
		Short:   short,
		Args:    app.Exactly(),
		Example: fmt.Sprintf("  mainstay healing %s --reason %q", action, example),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			s, err := change(client.Client, c.Context(), reason)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Healing is %s.\n", s.State)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; it is shown with the status")
	a.OutputFlag(command)
	return command
}
