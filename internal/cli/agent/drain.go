package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// DrainCommand is the group of drains.
func DrainCommand(a *app.App) *cobra.Command {
	r := &app.Resource[client.Drains]{App: a, Of: func(c *client.Client) client.Drains { return c.Drains },
		ID: "a drain's id"}
	return a.GroupOf(
		&cobra.Command{Use: "drain", Short: "See and cancel drains of agents; begin one with `mainstay agent drain`"},
		app.List(r, &cobra.Command{
			Use: "list", Short: "List drains, newest first", Example: "  mainstay drain list --cluster default",
		}, app.ClusterFlag, client.Drains.List, printDrains),
		app.Get(r, &cobra.Command{
			Use: "get ID", Short: "Show a drain: how far it is, and how the agents' work ended",
			Example: "  mainstay drain get default:d-06gzw9pw",
		}, client.Drains.Get, printDrain),
		app.Get(r, &cobra.Command{
			Use: "cancel ID", Short: "Cancel a drain: agents that are not done are given work again",
			Example: "  mainstay drain cancel default:d-06gzw9pw",
		}, client.Drains.Cancel, printDrain))
}

func printDrains(a *app.App, records []api.DrainRecord) error {
	header := []string{"DRAIN", "STATUS", "AGENTS", "DONE", "REQUESTED", "REASON"}
	return app.PrintTable(a, records, "There are no such drains.", header, func(r *api.DrainRecord) []any {
		done := 0
		names := make([]string, 0, len(r.Agents))
		for j := range r.Agents {
			names = append(names, r.Agents[j].AgentID)
			if r.Agents[j].Status == api.DrainCompleted {
				done++
			}
		}
		if len(names) > 3 {
			names = append(names[:3:3], fmt.Sprintf("and %d more", len(names)-3))
		}
		return []any{r.ID, drainStatus(r.Status), names, fmt.Sprintf("%d of %d", done, len(r.Agents)), r.RequestedAt,
			r.Reason}
	})
}

// printDrain shows a drain, agent by agent, with the work that each had.
func printDrain(a *app.App, r *api.DrainRecord) error {
	err := a.Facts([][2]any{
		{"Drain", r.ID}, {"Status", drainStatus(r.Status)}, {"Error", r.Error}, {"Reason", r.Reason},
		{"Deadline", r.Timeout.Std().String() + " for each agent"}, {"Requested", r.RequestedAt},
		{"Completed", r.CompletedAt},
	})
	if err != nil {
		return err
	}
	err = app.PrintBelow(a, r.Agents, []string{"AGENT", "STATUS", "WORK", ""}, func(g *api.AgentDrain) []any {
		return []any{g.AgentID, g.Status, drainCounts(g), g.Error}
	})
	if err != nil {
		return err
	}
	if err := printDrainWork(a, r); err != nil || r.Status != api.DrainRunning {
		return err
	}
	return a.Sayf("\nSee how far it is with: mainstay drain get %s\n", r.ID)
}

// drainStatus is the status as people read it: a dry run is no plan that is carried out later.
func drainStatus(s api.DrainStatus) string {
	if s == api.DrainPlanned {
		return "dry run"
	}
	return string(s)
}

func drainCounts(g *api.AgentDrain) string {
	switch g.Status {
	case api.DrainCompleted:
		text := fmt.Sprintf("%d finished, %d moved", g.Finished, g.Moved)
		if g.Replaced > 0 {
			text += fmt.Sprintf(", %d replaced elsewhere", g.Replaced)
		}
		if g.Lost > 0 {
			text += fmt.Sprintf(", %d lost with the agent", g.Lost)
		}
		if g.Ignored > 0 {
			text += fmt.Sprintf(", %d left alone", g.Ignored)
		}
		return text
	case api.DrainWaiting:
		return ""
	}
	return fmt.Sprintf("%d when it began", len(g.Work)+g.MoreWork)
}

func printDrainWork(a *app.App, r *api.DrainRecord) error {
	t := app.NewTable(a.Stdout, "TASK", "AGENT", "TYPE", "STARTED", "AT THE DEADLINE")
	rows := 0
	for i := range r.Agents {
		g := &r.Agents[i]
		for j := range g.Work {
			w := &g.Work[j]
			fate := w.AtDeadline
			switch {
			case w.Ignored:
			case w.Moved:
				fate = "was taken off at the deadline: " + fate
			case w.Lost:
				fate = "was lost with the agent"
			case g.Status == api.DrainCompleted && w.Kind != "":
				fate = "was replaced elsewhere before"
			case g.Status == api.DrainCompleted:
				fate = "finished before"
			}
			t.Row(w.TaskID, g.AgentID, w.Type, a.Ago(w.StartedAt), fate)
			rows++
		}
		if g.MoreWork > 0 {
			t.Row(fmt.Sprintf("… and %d more", g.MoreWork), g.AgentID)
		}
	}
	if rows == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return t.Flush()
}

func takeOutCommand(a *app.App) *cobra.Command {
	var request api.DrainAgentsRequest
	var wait time.Duration
	command := a.Call(&cobra.Command{
		Use:   "drain ID…",
		Short: "Take agents out of service without losing or repeating work",
		Long: `Take agents out of service: nothing new is given to them, what they have may finish until the deadline, and
what is left then is taken off them. It runs elsewhere, or goes to review if it is at_most_once. Drained agents are
in maintenance, also after a restart, until "mainstay agent maintenance ID off". Several agents are drained one
after the other.`,
		Example: `  mainstay agent drain agent-1 --dry-run
  mainstay agent drain agent-1 --deadline 10m --reason "kernel update" --wait=15m
  mainstay agent drain agent-1 agent-2 agent-3 --max-parallel 2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("needs at least one agent's id")
			}
			return nil
		},
	}, func(ctx context.Context, s *app.Client, args []string) error {
		request.Agents = args
		record, err := startDrain(ctx, s.Client, &request)
		if err == nil && wait > 0 && !request.DryRun {
			id := record.ID
			fmt.Fprintf(a.Stderr, "Drain %s has begun.\n", id)
			err = app.Await(ctx, wait, func() (bool, error) {
				record, err = s.Drains.Get(ctx, id)
				return err == nil && record.CompletedAt != nil, err
			})
			err = app.GoesOn(err, "drain "+id, "mainstay drain get "+id, "mainstay drain cancel "+id)
		}
		if err != nil {
			return err
		}
		if err := s.Print(func() error { return printDrain(a, record) }); err != nil {
			return err
		}
		return undrained(record, wait)
	})
	flags := command.Flags()
	flags.StringVar(&request.Deadline, "deadline", "",
		"how long each agent may finish its work, for example 10m (default: 5m)")
	flags.StringVar(&request.Reason, "reason", "", "why; kept in the record and shown with the agent")
	flags.IntVar(&request.MaxParallel, "max-parallel", 0, "how many are drained at the same time (default: 1)")
	app.Bounded[api.DrainAgentsRequest](flags, map[string]string{"max-parallel": "max_parallel"})
	flags.BoolVar(&request.DryRun, "dry-run", false, "only show what would happen")
	flags.BoolVar(&request.IncludeSystem, "include-system", false,
		"also take off them what each agent has of system and sysbatch jobs")
	app.WaitFlag(command, &wait, "the drain has ended")
	return command
}

// startDrain asks for a drain of one agent, or of several of the first one's cluster.
func startDrain(ctx context.Context, c *client.Client, r *api.DrainAgentsRequest) (*api.DrainRecord, error) {
	if len(r.Agents) == 1 {
		return c.Agents.Drain(ctx, r.Agents[0], r.DrainRequest)
	}
	first, err := c.Agents.Get(ctx, r.Agents[0], false)
	if err != nil {
		return nil, err
	}
	return c.Clusters.Drain(ctx, first.Cluster, r)
}

// undrained is the error for a drain that failed, or that was waited for in vain.
func undrained(r *api.DrainRecord, waited time.Duration) error {
	switch r.Status {
	case api.DrainCompleted, api.DrainPlanned:
		return nil
	case api.DrainRunning:
		if waited == 0 {
			return nil
		}
		return app.IncompleteError("drain %s still runs after %s; it goes on by itself", r.ID, waited)
	}
	return app.IncompleteError("drain %s ended as %s", r.ID, r.Status)
}

// statusWords is an agent's status within a sentence.
func statusWords(s api.AgentStatus) string {
	if s == api.AgentMaintenance {
		return "in maintenance"
	}
	return string(s)
}

func maintenanceCommand(r *app.Resource[client.Agents]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use:   "maintenance ID on|off",
		Short: "Keep new work from an agent, or let it have work again",
		Long: `Keep new work from an agent ("on"), or let it have work again ("off"). What it runs goes on; to have it
finished or moved as well, drain the agent. Maintenance stays when the agent restarts.`,
		Example: `  mainstay agent maintenance agent-1 on --reason "disk is being replaced"
  mainstay agent maintenance agent-1 off`,
	}, func(c *cobra.Command, in *api.MaintenanceRequest) {
		c.Args = func(c *cobra.Command, args []string) error {
			err := app.Exactly(r.ID, "on or off")(c, args)
			if err == nil && args[1] != "on" && args[1] != "off" {
				err = app.UsageError("the second argument must be on or off")
			}
			in.Enabled = err == nil && args[1] == "on"
			return err
		}
		r.ReasonFlag(c, &in.Reason)
	}, client.Agents.SetMaintenance, func(_ string, g *api.Agent) string {
		return fmt.Sprintf("Agent %s is %s.", g.ID, statusWords(g.Status))
	})
}
