package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func drainCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "drain", Short: "See and cancel drains of agents; begin one with `mainstay agent drain`"}
	a.ServerFlag(command)
	command.AddCommand(drainListCommand(a), drainOneCommand(a, "get ID", "Show a drain: how far it is, and how the agents' work ended", (*client.Client).Drain),
		drainOneCommand(a, "cancel ID", "Cancel a drain: agents that are not done are given work again", (*client.Client).CancelDrain))
	return command
}

func drainListCommand(a *app.App) *cobra.Command {
	var cluster string
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List drains, newest first", Example: "  mainstay drain list --cluster default", Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			list := func(s *client.Client) *client.List[fleet.DrainRecord] { return s.Drains(cluster) }
			return app.PrintList(c, a, list, limit, printDrains)
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

func printDrains(a *app.App, records []fleet.DrainRecord) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "There are no such drains.")
		return err
	}
	t := app.NewTable(a.Stdout, "DRAIN", "STATUS", "AGENTS", "DONE", "REQUESTED", "REASON")
	for i := range records {
		r := &records[i]
		done := 0
		names := make([]string, 0, len(r.Agents))
		for j := range r.Agents {
			names = append(names, r.Agents[j].AgentID)
			if r.Agents[j].Status == fleet.DrainCompleted {
				done++
			}
		}
		if len(names) > 3 {
			names = append(names[:3:3], fmt.Sprintf("and %d more", len(names)-3))
		}
		t.Row(r.ID, drainStatus(r.Status), strings.Join(names, ", "), fmt.Sprintf("%d of %d", done, len(r.Agents)), a.Ago(&r.RequestedAt), r.Reason)
	}
	return t.Flush()
}

// drainOneCommand is a command about one drain, which it shows as it stands then.
func drainOneCommand(
	a *app.App, use, short string, do func(*client.Client, context.Context, string) (*fleet.DrainRecord, error),
) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Example: "  mainstay drain " + strings.Replace(use, "ID", "default:d-06gzw9pw", 1), Args: app.Exactly("a drain's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			record, err := do(client.Client, c.Context(), args[0])
			if err != nil {
				return err
			}
			return printDrain(a, client.Answer, record)
		},
	}
	a.OutputFlag(command)
	return command
}

// printDrain shows a drain, agent by agent, with the work that each had.
func printDrain(a *app.App, raw json.RawMessage, r *fleet.DrainRecord) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
		t.Facts([][2]string{
			{"Drain", r.ID}, {"Status", drainStatus(r.Status)}, {"Error", r.Error}, {"Reason", r.Reason},
			{"Deadline", r.Timeout.Std().String() + " for each agent"}, {"Requested", a.Ago(&r.RequestedAt)}, {"Completed", a.Ago(r.CompletedAt)},
		})
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
		t = app.NewTable(a.Stdout, "AGENT", "STATUS", "WORK", "")
		for i := range r.Agents {
			g := &r.Agents[i]
			t.Row(g.AgentID, string(g.Status), drainCounts(g), g.Error)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if err := printDrainWork(a, r); err != nil || r.Status != fleet.DrainRunning {
			return err
		}
		_, err := fmt.Fprintf(a.Stdout, "\nSee how far it is with: mainstay drain get %s\n", r.ID)
		return err
	})
}

// drainStatus is the status as people read it: a dry run is no plan that is carried out later.
func drainStatus(s fleet.DrainStatus) string {
	if s == fleet.DrainPlanned {
		return "dry run"
	}
	return string(s)
}

func drainCounts(g *fleet.AgentDrain) string {
	switch g.Status {
	case fleet.DrainCompleted:
		return fmt.Sprintf("%d finished, %d moved", g.Finished, g.Moved)
	case fleet.DrainWaiting:
		return ""
	}
	return fmt.Sprintf("%d when it began", len(g.Work))
}

func printDrainWork(a *app.App, r *fleet.DrainRecord) error {
	t := app.NewTable(a.Stdout, "TASK", "AGENT", "TYPE", "STARTED", "AT THE DEADLINE")
	rows := 0
	for i := range r.Agents {
		g := &r.Agents[i]
		for j := range g.Work {
			w := &g.Work[j]
			fate := w.AtDeadline
			switch {
			case w.Moved:
				fate = "was taken off at the deadline: " + fate
			case g.Status == fleet.DrainCompleted:
				fate = "finished before"
			}
			t.Row(w.TaskID, g.AgentID, w.Type, a.Ago(w.StartedAt), fate)
			rows++
		}
	}
	if rows == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return t.Flush()
}
