package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// failoverPause is the time between two looks at a failover that is waited for.
const failoverPause = 200 * time.Millisecond

func agentFailoverCommand(a *app.App) *cobra.Command {
	var request api.FailoverRequest
	var wait time.Duration
	command := &cobra.Command{
		Use:     "failover ID",
		Short:   "Move an agent's work and roles to others",
		Example: `  mainstay agent failover agent-1 --to agent-2 --reason "its disk is old" --wait`,
		Args:    app.Exactly("an agent's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var before time.Time
			if wait > 0 {
				if before, err = lastFailover(c.Context(), client.Client, args[0]); err != nil {
					return err
				}
			}
			accepted, err := client.StartFailover(c.Context(), args[0], request)
			if err != nil {
				return err
			}
			if wait == 0 {
				return a.Print(client.Answer, func() error {
					_, err := fmt.Fprintf(a.Stdout, "Failover %s is asked for. See it with: mainstay failover get %s\n", accepted.FailoverID, accepted.FailoverID)
					return err
				})
			}
			record, err := waitForFailover(c.Context(), client.Client, accepted.FailoverID, before, wait)
			if err != nil {
				return err
			}
			if err := printFailover(a, client.Answer, record); err != nil {
				return err
			}
			return unfinished(record, wait)
		},
	}
	a.ServerFlag(command)
	flags := command.Flags()
	flags.StringVar(&request.TargetAgentID, "to", "", "the agent that takes over (default: the cluster's strategy selects)")
	flags.StringVar(&request.Reason, "reason", "", "why; kept in the failover's record")
	app.WaitFlag(command, &wait, "the failover has ended")
	a.OutputFlag(command)
	return command
}

// lastFailover is when the newest failover of the agent's present session began; zero when there was none. A failover of
// the same session has the same id, and only its start tells it from the one before.
func lastFailover(ctx context.Context, c *client.Client, agent string) (time.Time, error) {
	g, err := c.Agent(ctx, agent, false)
	if err != nil {
		return time.Time{}, err
	}
	record, err := c.Failover(ctx, contract.FailoverID(g.Cluster, g.ID, g.Epoch))
	switch {
	case client.IsNotFound(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	return record.StartedAt, nil
}

// waitForFailover returns a failover that began after before as soon as it has ended, or as it stands when the time is
// over.
func waitForFailover(ctx context.Context, c *client.Client, id string, before time.Time, wait time.Duration) (*fleet.FailoverRecord, error) {
	deadline := time.Now().Add(wait)
	for {
		record, err := c.Failover(ctx, id)
		if err != nil && !client.IsNotFound(err) {
			return nil, err
		}
		begun, over := err == nil && record.StartedAt.After(before), !time.Now().Before(deadline)
		switch {
		case begun && (over || record.CompletedAt != nil):
			return record, nil
		case over:
			return nil, app.WithExit(app.ExitIncomplete, fmt.Errorf("failover %s has not begun after %s; it is asked for, and begins when a worker runs", id, wait))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(failoverPause, time.Until(deadline))):
		}
	}
}

// unfinished is the error for a failover that was waited for and did not succeed.
func unfinished(r *fleet.FailoverRecord, waited time.Duration) error {
	switch r.Status {
	case fleet.FailoverSucceeded:
		return nil
	case fleet.FailoverRunning:
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("failover %s still runs after %s; it goes on by itself", r.ID, waited))
	}
	return app.WithExit(app.ExitIncomplete, fmt.Errorf("failover %s ended as %s", r.ID, r.Status))
}
