package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// drainPause is the time between two looks at a drain that is waited for.
const drainPause = 200 * time.Millisecond

func agentDrainCommand(a *app.App) *cobra.Command {
	var request api.DrainAgentsRequest
	var wait time.Duration
	command := &cobra.Command{
		Use:   "drain ID…",
		Short: "Take agents out of service without losing or repeating work",
		Long: `Take agents out of service: nothing new is given to them, what they have may finish until the deadline, and what is left
then is taken off them. It runs elsewhere, or goes to review if it is at_most_once. Drained agents are in maintenance, also
after a restart, until "mainstay agent maintenance ID off". Several agents are drained one after the other.`,
		Example: `  mainstay agent drain agent-1 --dry-run
  mainstay agent drain agent-1 --deadline 10m --reason "kernel update" --wait=15m
  mainstay agent drain agent-1 agent-2 agent-3 --max-parallel 2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("needs at least one agent's id")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			request.Agents = args
			record, err := startDrain(c.Context(), client.Client, &request)
			if err == nil && wait > 0 && !request.DryRun {
				record, err = waitForDrain(c.Context(), client.Client, record.ID, wait)
			}
			if err != nil {
				return err
			}
			if err := printDrain(a, client.Answer, record); err != nil {
				return err
			}
			return undrained(record, wait)
		},
	}
	a.ServerFlag(command)
	flags := command.Flags()
	flags.StringVar(&request.Deadline, "deadline", "", "how long each agent may finish its work, for example 10m (default: 5m)")
	flags.StringVar(&request.Reason, "reason", "", "why; kept in the record and shown with the agent")
	flags.IntVar(&request.MaxParallel, "max-parallel", 0, "how many are drained at the same time (default: 1)")
	flags.BoolVar(&request.DryRun, "dry-run", false, "only show what would happen")
	app.WaitFlag(command, &wait, "the drain has ended")
	a.OutputFlag(command)
	return command
}

// startDrain asks for a drain of one agent, or of several of the first one's cluster.
func startDrain(ctx context.Context, c *client.Client, r *api.DrainAgentsRequest) (*fleet.DrainRecord, error) {
	if len(r.Agents) == 1 {
		return c.DrainAgent(ctx, r.Agents[0], r.DrainRequest)
	}
	first, err := c.Agent(ctx, r.Agents[0], false)
	if err != nil {
		return nil, err
	}
	return c.DrainAgents(ctx, first.Cluster, r)
}

// waitForDrain returns a drain as soon as it has ended, or as it stands when the time is over.
func waitForDrain(ctx context.Context, c *client.Client, id string, wait time.Duration) (*fleet.DrainRecord, error) {
	deadline := time.Now().Add(wait)
	for {
		record, err := c.Drain(ctx, id)
		if err != nil || record.CompletedAt != nil || !time.Now().Before(deadline) {
			return record, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(drainPause, time.Until(deadline))):
		}
	}
}

// undrained is the error for a drain that failed, or that was waited for in vain.
func undrained(r *fleet.DrainRecord, waited time.Duration) error {
	switch r.Status {
	case fleet.DrainCompleted, fleet.DrainPlanned:
		return nil
	case fleet.DrainRunning:
		if waited == 0 {
			return nil
		}
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("drain %s still runs after %s; it goes on by itself", r.ID, waited))
	}
	return app.WithExit(app.ExitIncomplete, fmt.Errorf("drain %s ended as %s", r.ID, r.Status))
}

// statusWords is an agent's status within a sentence.
func statusWords(s fleet.AgentStatus) string {
	if s == fleet.AgentMaintenance {
		return "in maintenance"
	}
	return string(s)
}

func agentMaintenanceCommand(a *app.App) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use:   "maintenance ID on|off",
		Short: "Keep new work from an agent, or let it have work again",
		Long: `Keep new work from an agent ("on"), or let it have work again ("off"). What it runs goes on; to have it finished or moved
as well, drain the agent. Maintenance stays when the agent restarts.`,
		Example: `  mainstay agent maintenance agent-1 on --reason "disk is being replaced"
  mainstay agent maintenance agent-1 off`,
		Args: app.Exactly("an agent's id", "on or off"),
		RunE: func(c *cobra.Command, args []string) error {
			if args[1] != "on" && args[1] != "off" {
				return app.UsageError("the second argument must be on or off")
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			g, err := client.SetMaintenance(c.Context(), args[0], api.MaintenanceRequest{Enabled: args[1] == "on", Reason: reason})
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Agent %s is %s.\n", g.ID, statusWords(g.Status))
				return err
			})
		},
	}
	a.ServerFlag(command)
	command.Flags().StringVar(&reason, "reason", "", "why; shown with the agent")
	a.OutputFlag(command)
	return command
}
