package healing

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "healing", Short: "See what healing does and why; trigger, pause and resume it"}
	a.ServerFlag(command)
	command.AddCommand(statusCommand(a), actionsCommand(a), triggerCommand(a),
		pauseCommand(a, "pause", "Pause healing: no cycle begins by itself", "kernel updates tonight"),
		pauseCommand(a, "resume", "Resume healing", "done"))
	return command
}

func statusCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "status", Short: "Show how healing stands: its last cycle with what that decided, and what is under way", Args: app.Exactly(),
		Example: "  mainstay healing status",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var s api.HealingStatus
			raw, err := client.Call(c.Context(), http.MethodGet, app.HealingPath+"/status", 0, nil, &s)
			if err != nil {
				return err
			}
			return printHealingStatus(a, raw, &s)
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
			last = fmt.Sprintf("%s: looked at %s in %s", a.Ago(&s.LastCycle.StartedAt), fleet.Count(s.LastCycle.Agents, "agent"), fleet.Count(s.LastCycle.Clusters, "cluster"))
		}
		next := a.Ago(s.NextCycleAt)
		t.Facts([][2]string{
			{"Healing", state}, {"Note", s.Note}, {"Every", s.CycleInterval.String()}, {"Last cycle", last}, {"Next cycle", next},
			{"Clusters", fmt.Sprintf("%d on, %d dry run, %d off", modes[fleet.HealingOn], modes[fleet.HealingDryRun], modes[fleet.HealingOff])},
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
	var cluster, agent, kind, status string
	var limit int
	command := &cobra.Command{
		Use: "actions", Short: "List what healing did, or deliberately did not, newest first", Args: app.Exactly(),
		Example: "  mainstay healing actions --cluster default --agent agent-1",
		RunE: func(c *cobra.Command, _ []string) error {
			query := app.Query("cluster", cluster, "agent", agent, "type", kind, "status", status)
			return app.PrintList(c, a, app.HealingPath+"/actions", "actions", query, limit, PrintActions)
		},
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&agent, "agent", "", "only about this agent")
	flags.StringVar(&kind, "type", "", "only of this type: failover_agent, reassign_task, rebalance_cluster, drain_agent, reduce_load, restore_agent or report")
	flags.StringVar(&status, "status", "", "only with this status: running, succeeded, failed, planned, skipped or reported")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

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
			var r fleet.HealingCycleRecord
			raw, err := client.Call(c.Context(), http.MethodPost, app.HealingPath+"/trigger", 0, request, &r)
			if err != nil {
				return err
			}
			return a.Print(raw, func() error {
				if r.CompletedAt == nil {
					_, err := fmt.Fprintf(a.Stdout, "The cycle is under way; see the workflow %s.\n", app.OneLine(r.ID))
					return err
				}
				what := "Looked at"
				if r.DryRun {
					what = "Dry run: looked at"
				}
				fmt.Fprintf(a.Stdout, "%s %s in %s.\n", what, fleet.Count(r.Agents, "agent"), fleet.Count(r.Clusters, "cluster"))
				return printHealingDecisions(a, &r)
			})
		},
	}
	command.Flags().StringVar(&request.Cluster, "cluster", "", "look at this cluster only")
	command.Flags().BoolVar(&request.DryRun, "dry-run", false, "only tell what would be done")
	command.Flags().StringVar(&request.Reason, "reason", "", "why, for the record")
	a.OutputFlag(command)
	return command
}

func pauseCommand(a *app.App, action, short, example string) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: action, Short: short, Args: app.Exactly(), Example: fmt.Sprintf("  mainstay healing %s --reason %q", action, example),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var s api.HealingStatus
			raw, err := client.Call(c.Context(), http.MethodPost, app.HealingPath+"/"+action, 0, api.ReasonRequest{Reason: reason}, &s)
			if err != nil {
				return err
			}
			return a.Print(raw, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Healing is %s.\n", s.State)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; it is shown with the status")
	a.OutputFlag(command)
	return command
}
