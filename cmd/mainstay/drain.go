package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
)

const drainsPath = "/api/v1/agents/drains"

func (a *app) drainCommand() *cobra.Command {
	command := &cobra.Command{Use: "drain", Short: "See and cancel drains of agents; begin one with `mainstay agent drain`"}
	a.serverFlag(command)
	command.AddCommand(a.drainListCommand(), a.drainOneCommand("get ID", "Show a drain: how far it is, and how the agents' work ended", http.MethodGet),
		a.drainOneCommand("cancel ID", "Cancel a drain: agents that are not done are given work again", http.MethodPost, "cancel"))
	return command
}

func (a *app) drainListCommand() *cobra.Command {
	var cluster string
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List drains, newest first", Example: "  mainstay drain list --cluster default", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return printList(c, a, drainsPath, "drains", queryOf("cluster", cluster), limit, a.printDrains)
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	limitFlag(command, &limit)
	a.outputFlag(command)
	return command
}

func (a *app) printDrains(records []fleet.DrainRecord) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.stdout, "There are no such drains.")
		return err
	}
	t := newTable(a.stdout, "DRAIN", "STATUS", "AGENTS", "DONE", "REQUESTED", "REASON")
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
		t.row(r.ID, drainStatus(r.Status), strings.Join(names, ", "), fmt.Sprintf("%d of %d", done, len(r.Agents)), a.ago(&r.RequestedAt), r.Reason)
	}
	return t.flush()
}

// drainOneCommand is a command about one drain, which it shows as it stands then.
func (a *app) drainOneCommand(use, short, method string, more ...string) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Example: "  mainstay drain " + strings.Replace(use, "ID", "default:d-06gzw9pw", 1), Args: exactly("a drain's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			record := &fleet.DrainRecord{}
			raw, err := client.call(c.Context(), method, pathOf(drainsPath, args[0], more...), 0, nil, record)
			if err != nil {
				return err
			}
			return a.printDrain(raw, record)
		},
	}
	a.outputFlag(command)
	return command
}

// printDrain shows a drain, agent by agent, with the work that each had.
func (a *app) printDrain(raw json.RawMessage, r *fleet.DrainRecord) error {
	return a.print(raw, func() error {
		t := newTable(a.stdout)
		t.facts([][2]string{
			{"Drain", r.ID}, {"Status", drainStatus(r.Status)}, {"Error", r.Error}, {"Reason", r.Reason},
			{"Deadline", r.Timeout.Std().String() + " for each agent"}, {"Requested", a.ago(&r.RequestedAt)}, {"Completed", a.ago(r.CompletedAt)},
		})
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "AGENT", "STATUS", "WORK", "")
		for i := range r.Agents {
			g := &r.Agents[i]
			t.row(g.AgentID, string(g.Status), drainCounts(g), g.Error)
		}
		if err := t.flush(); err != nil {
			return err
		}
		if err := a.printDrainWork(r); err != nil || r.Status != fleet.DrainRunning {
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "\nSee how far it is with: mainstay drain get %s\n", r.ID)
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

func (a *app) printDrainWork(r *fleet.DrainRecord) error {
	t := newTable(a.stdout, "TASK", "AGENT", "TYPE", "STARTED", "AT THE DEADLINE")
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
			t.row(w.TaskID, g.AgentID, w.Type, a.ago(w.StartedAt), fate)
			rows++
		}
	}
	if rows == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	return t.flush()
}
