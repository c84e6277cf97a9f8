package task

import (
	"context"
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
	command := a.Call(&cobra.Command{
		Use: "get ID", Short: "Show a bulk operation: how far it is, and what was not possible",
		Example: "  mainstay task bulk get b-06… --wait", Args: app.Exactly("a bulk operation's id"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		return waitForBulk(ctx, a, s, args[0], wait)
	})
	app.WaitFlag(command, &wait, "the operation has ended")
	return command
}

// waitForBulk prints an operation once it has ended, or as it stands when the time is over.
func waitForBulk(ctx context.Context, a *app.App, s *app.Client, id string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), time.Minute)
		bulk, err := s.Bulks.Get(ctx, id, hold)
		if err != nil {
			return err
		}
		if bulk.Status == fleet.BulkRunning && hold > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := a.Print(s.Answer, func() error { return printBulk(a, bulk) }); err != nil || wait == 0 {
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

func printBulk(a *app.App, b *api.Bulk) error {
	var ended string
	if b.StartedAt != nil && b.ClosedAt != nil {
		ended = a.Ago(b.ClosedAt) + ", after " + app.Roughly(b.ClosedAt.Sub(*b.StartedAt))
	}
	err := a.Facts([][2]string{
		{"Bulk operation", b.ID}, {"Action", actionWords(b)}, {"Tasks", filterText(b)}, {"Reason", b.Reason},
		{"Status", string(b.Status)}, {"Why", b.Why}, {"Done", fmt.Sprintf("%d of %d", b.Done, b.Expected)},
		{"Skipped", skippedText(b.Skipped)}, {"Failed", fmt.Sprint(b.Failed)}, {"Started", a.Ago(b.StartedAt)},
		{"Ended", ended}, {"Workflow", b.WorkflowID},
	})
	if err != nil {
		return err
	}
	return app.PrintBelow(a, b.Examples, []string{"TASK", "OUTCOME", "REASON"}, func(e *fleet.BulkExample) []string {
		return []string{e.TaskID, string(e.Outcome), e.Reason}
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
	return app.LimitedList(a, &cobra.Command{
		Use: "list", Short: "List bulk operations, newest first", Args: app.Exactly(),
		Example: "  mainstay task bulk list",
	}, func(s *client.Client) *client.List[api.Bulk] { return s.Bulks.List() }, printBulks)
}

func printBulks(a *app.App, bulks []api.Bulk) error {
	header := []string{"BULK OPERATION", "ACTION", "STATUS", "DONE", "SKIPPED", "FAILED", "STARTED", "REASON"}
	return app.PrintTable(a, bulks, "There are no bulk operations.", header, func(b *api.Bulk) []string {
		return []string{b.ID, actionWords(b), string(b.Status), fmt.Sprintf("%d of %d", b.Done, b.Expected),
			fmt.Sprint(b.Skipped), fmt.Sprint(b.Failed), a.Ago(b.StartedAt), b.Reason}
	})
}

func bulkStopCommand(a *app.App) *cobra.Command {
	var reason string
	command := app.Show(a, &cobra.Command{
		Use:     "stop ID",
		Short:   "Stop a bulk operation; what it has done stays done",
		Args:    app.Exactly("a bulk operation's id"),
		Example: `  mainstay task bulk stop b-06… --reason "not those"`,
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Bulk, error) {
		return s.Bulks.Cancel(ctx, args[0], reason)
	}, func(a *app.App, b *api.Bulk) error {
		return a.Sayf("Bulk operation %s stops; %d tasks are done so far.\n", b.ID, b.Done)
	})
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the operation's history")
	return command
}
