package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
)

const scalingsPath = "/api/v1/agents/scalings"

func (a *app) scalingCommand() *cobra.Command {
	command := &cobra.Command{Use: "scaling", Short: "See which agents scaling started and stopped; steer it with `mainstay cluster scale`"}
	a.serverFlag(command)
	command.AddCommand(a.scalingListCommand(), a.scalingGetCommand())
	return command
}

func (a *app) scalingListCommand() *cobra.Command {
	var cluster string
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List what scaling has done, newest first", Example: "  mainstay scaling list --cluster default", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return printList(c, a, scalingsPath, "scalings", queryOf("cluster", cluster), limit, a.printScalings)
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	limitFlag(command, &limit)
	a.outputFlag(command)
	return command
}

func (a *app) printScalings(records []fleet.ScalingRecord) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.stdout, "Scaling has done nothing.")
		return err
	}
	t := newTable(a.stdout, "ACTION", "CHANGE", "STATUS", "AGENTS", "STARTED", "TOOK", "REASON")
	for i := range records {
		r := &records[i]
		t.row(r.ID, fmt.Sprintf("%s %d", r.Change, len(r.Agents)), string(r.Status), fmt.Sprintf("%d → %d", r.From, r.To), a.ago(&r.StartedAt), scalingTook(r), r.Reason)
	}
	return t.flush()
}

func scalingTook(r *fleet.ScalingRecord) string {
	if r.CompletedAt == nil {
		return ""
	}
	return roughly(r.CompletedAt.Sub(r.StartedAt))
}

func (a *app) scalingGetCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "get ID", Short: "Show one action of scaling, agent by agent", Example: "  mainstay scaling get default:7", Args: exactly("an action's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			record := &fleet.ScalingRecord{}
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(scalingsPath, args[0]), 0, nil, record)
			if err != nil {
				return err
			}
			return a.printScalingRecord(raw, record)
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) printScalingRecord(raw json.RawMessage, r *fleet.ScalingRecord) error {
	return a.print(raw, func() error {
		t := newTable(a.stdout)
		spawner := r.Spawner
		if r.Platform != "" {
			spawner += " (" + string(r.Platform) + ")"
		}
		t.facts([][2]string{
			{"Action", r.ID}, {"Cluster", r.Cluster}, {"Change", fmt.Sprintf("%s, from %d to %d agents", r.Change, r.From, r.To)}, {"Status", string(r.Status)},
			{"Error", r.Error}, {"Rule", string(r.Rule)}, {"Reason", r.Reason}, {"Spawner", spawner}, {"Drain", r.Drain},
			{"Started", a.ago(&r.StartedAt)}, {"Took", scalingTook(r)},
		})
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "AGENT", "STATUS", "SPAWNER", "HANDLE", "HOST", "")
		for i := range r.Agents {
			g := &r.Agents[i]
			t.row(g.AgentID, string(g.Status), g.Spawner, g.Handle, g.Host, g.Error)
		}
		return t.flush()
	})
}

// clock is a time of today, or with its date.
func (a *app) clock(at time.Time) string {
	at = at.Local()
	if now := a.now(); at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
