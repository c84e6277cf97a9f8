package task

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func bulkGetCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use: "get ID", Short: "Show a bulk operation: how far it is, and what was not possible",
		Example: "  mainstay task bulk get b-06… --wait", Args: app.Exactly("a bulk operation's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			return waitForBulk(a, c, client, args[0], wait)
		},
	}
	app.WaitFlag(command, &wait, "the operation has ended")
	a.OutputFlag(command)
	return command
}

// waitForBulk prints an operation once it has ended, or as it stands when the time is over.
func waitForBulk(a *app.App, c *cobra.Command, client *app.Client, id string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), time.Minute)
		bulk, err := client.Bulk(c.Context(), id, hold)
		if err != nil {
			return err
		}
		if bulk.Status == fleet.BulkRunning && hold > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := printBulk(a, client.Answer, bulk); err != nil || wait == 0 {
			return err
		}
		switch {
		case bulk.Status == fleet.BulkRunning:
			return app.WithExit(app.ExitIncomplete,
				fmt.Errorf("bulk operation %s is still running after %s; it goes on by itself", bulk.ID, wait))
		case bulk.Status != fleet.BulkCompleted || bulk.Failed > 0:
			return app.WithExit(app.ExitIncomplete, fmt.Errorf("bulk operation %s is %s, with %d failures", bulk.ID,
				bulk.Status, bulk.Failed))
		}
		return nil
	}
}

func printBulk(a *app.App, raw json.RawMessage, b *api.Bulk) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
		var ended string
		if b.StartedAt != nil && b.ClosedAt != nil {
			ended = a.Ago(b.ClosedAt) + ", after " + app.Roughly(b.ClosedAt.Sub(*b.StartedAt))
		}
		t.Facts([][2]string{
			{"Bulk operation", b.ID}, {"Action", actionWords(b)}, {"Tasks", filterText(b)}, {"Reason", b.Reason},
			{"Status", string(b.Status)}, {"Why", b.Why},
			{"Done", fmt.Sprintf("%d of %d", b.Done, b.Expected)}, {"Skipped", skippedText(b.Skipped)},
			{"Failed", fmt.Sprint(b.Failed)},
			{"Started", a.Ago(b.StartedAt)}, {"Ended", ended}, {"Workflow", b.WorkflowID},
		})
		if err := t.Flush(); err != nil || len(b.Examples) == 0 {
			return err
		}
		fmt.Fprintln(a.Stdout)
		t = app.NewTable(a.Stdout, "TASK", "OUTCOME", "REASON")
		for _, e := range b.Examples {
			t.Row(e.TaskID, string(e.Outcome), e.Reason)
		}
		return t.Flush()
	})
}

func skippedText(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, no longer in a state for it", n)
}

func actionWords(b *api.Bulk) string {
	switch b.Action {
	case fleet.BulkReview:
		return "review: " + string(b.Decision)
	case fleet.BulkPriority:
		return "priority: " + fleet.Priority(b.Priority).String()
	}
	return string(b.Action)
}

// filterText says which tasks were meant.
func filterText(b *api.Bulk) string {
	f := b.Filter
	switch {
	case b.All:
		return "all"
	case f == nil:
		return "by id"
	}
	var parts []string
	for _, p := range [][2]string{
		{"cluster", f.Cluster}, {"status", string(f.Status)}, {"type", f.Type}, {"tenant", f.Tenant},
		{"agent", f.Agent}, {"labels", app.LabelText(f.Labels)},
	} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if !f.SubmittedAfter.IsZero() {
		parts = append(parts, "submitted after "+f.SubmittedAfter.UTC().Format(time.RFC3339))
	}
	if !f.SubmittedBefore.IsZero() {
		parts = append(parts, "submitted before "+f.SubmittedBefore.UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, ", ")
}

func bulkListCommand(a *app.App) *cobra.Command {
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List bulk operations, newest first", Args: app.Exactly(),
		Example: "  mainstay task bulk list",
		RunE: func(c *cobra.Command, _ []string) error {
			return app.PrintList(c, a, (*client.Client).Bulks, limit, printBulks)
		},
	}
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

func printBulks(a *app.App, bulks []api.Bulk) error {
	if len(bulks) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "There are no bulk operations.")
		return err
	}
	t := app.NewTable(a.Stdout, "BULK OPERATION", "ACTION", "STATUS", "DONE", "SKIPPED", "FAILED", "STARTED", "REASON")
	for i := range bulks {
		b := &bulks[i]
		t.Row(b.ID, actionWords(b), string(b.Status), fmt.Sprintf("%d of %d", b.Done, b.Expected),
			fmt.Sprint(b.Skipped), fmt.Sprint(b.Failed), a.Ago(b.StartedAt), b.Reason)
	}
	return t.Flush()
}

func bulkStopCommand(a *app.App) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use:     "stop ID",
		Short:   "Stop a bulk operation; what it has done stays done",
		Args:    app.Exactly("a bulk operation's id"),
		Example: `  mainstay task bulk stop b-06… --reason "not those"`,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			bulk, err := client.CancelBulk(c.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Bulk operation %s stops; %d tasks are done so far.\n", bulk.ID,
					bulk.Done)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the operation's history")
	a.OutputFlag(command)
	return command
}
