package task

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func bulkCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "bulk", Short: "Act on many tasks at once",
		Long: `Act on all tasks that the flags select: those of a cluster, with a status, a label, and so on; all that is
given must hold.

The command first says how many there are, and asks before it begins; --yes does not ask, --dry-run only looks. The
operation runs in the control plane and goes on by itself.`,
		Example: `  mainstay task bulk cancel --cluster studio --status queued --dry-run
  mainstay task bulk retry --type render --cause exit_2 --reason "disk is back" --yes
  mainstay task bulk get b-06… --wait`,
	}
	r := &app.Resource[client.Bulks]{App: a, Of: func(c *client.Client) client.Bulks { return c.Bulks },
		ID: "a bulk operation's id", Reason: "why; kept in the operation's history"}
	command.AddCommand(
		bulkActionCommand(a, api.BulkCancel, "Cancel open tasks"),
		bulkActionCommand(a, api.BulkRetry, "Give dead letters a fresh set of attempts"),
		bulkActionCommand(a, api.BulkDiscard, "Give dead letters up"),
		bulkActionCommand(a, api.BulkReview, "Decide about tasks in review"),
		bulkActionCommand(a, api.BulkPriority, "Change the priority of open tasks"),
		bulkGetCommand(a),
		app.List(r, &cobra.Command{
			Use: "list", Short: "List bulk operations, newest first", Example: "  mainstay task bulk list",
		}, nil, app.All(client.Bulks.List), printBulks),
		app.Tell(r, &cobra.Command{
			Use: "stop ID", Short: "Stop a bulk operation; what it has done stays done",
			Example: `  mainstay task bulk stop b-06… --reason "not those"`,
		}, r.ReasonFlag, client.Bulks.Cancel, func(_ string, b *api.Bulk) string {
			return fmt.Sprintf("Bulk operation %s stops; %d tasks are done so far.", b.ID, b.Done)
		}))
	return command
}

// bulkLine is the command line of a bulk action.
type bulkLine struct {
	request api.BulkRequest
	yes     bool
	wait    time.Duration
}

var bulkExamples = map[api.BulkAction]string{
	api.BulkCancel:   `cancel --cluster studio --status queued --reason "wrong input" --dry-run`,
	api.BulkRetry:    `retry --type render --submitted-after 24h --reason "disk is back"`,
	api.BulkDiscard:  `discard --label project=film --reason "project has ended"`,
	api.BulkReview:   `review --cluster billing --decision rerun --reason "no invoice was sent" --wait`,
	api.BulkPriority: `priority --tenant acme --priority high --reason "deadline"`,
}

func bulkActionCommand(a *app.App, action api.BulkAction, short string) *cobra.Command {
	l := bulkLine{}
	l.request.Action = action
	command := a.Call(&cobra.Command{
		Use: string(action) + " --reason WHY (FILTER… | --id ID… | --all)", Short: short, Args: app.Exactly(),
		Example: "  mainstay task bulk " + bulkExamples[action],
	}, func(ctx context.Context, s *app.Client, _ []string) error { return runBulk(ctx, a, s, &l) })
	flags, f := command.Flags(), &l.request.Filter
	flags.StringVar(&f.Cluster, "cluster", "", "tasks of this cluster")
	flags.StringVar((*string)(&f.Status), "status", "", "tasks with this status: "+statusNames(action))
	flags.StringVar(&f.Type, "type", "", "tasks of this type")
	if slices.Contains(action.Statuses(), api.TaskDeadLetter) {
		flags.StringVar(&f.Cause, "cause", "", "dead letters with this kind of cause, as mainstay task dead-letters has it")
	}
	flags.StringVar(&f.Tenant, "tenant", "", "tasks of this tenant")
	flags.StringVar(&f.Agent, "agent", "", "tasks pinned to this agent")
	app.PairsFlag(flags, &f.Labels, "label", "", "tasks with this label, NAME=VALUE (repeatable)")
	a.PastFlag(flags, "submitted-after",
		"tasks submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago",
		func(at time.Time) { f.SubmittedAfter = &at })
	a.PastFlag(flags, "submitted-before",
		"tasks submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago",
		func(at time.Time) { f.SubmittedBefore = &at })
	flags.StringArrayVar(&f.IDs, "id", nil, "this task (repeatable); not with other filters")
	flags.BoolVar(&l.request.All, "all", false, "every task that this is possible for")
	flags.StringVar(&l.request.Reason, "reason", "", "why; kept in the history of each task")
	switch action {
	case api.BulkReview:
		flags.StringVar((*string)(&l.request.Decision), "decision", "", "rerun, completed or failed")
	case api.BulkPriority:
		app.PriorityFlag(flags, &l.request.Priority,
			"1 (first) to 5 (last), or critical, high, normal, low or background")
	}
	flags.BoolVar(&l.request.DryRun, "dry-run", false, "only say how many tasks there are, and name some")
	flags.BoolVar(&l.yes, "yes", false, "do not ask")
	app.WaitFlag(command, &l.wait, "the operation has ended")
	return command
}

func statusNames(action api.BulkAction) string {
	names := []string{}
	for _, s := range action.Statuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// build checks the command line; the rest is the server's.
func (l *bulkLine) build() (*api.BulkRequest, error) {
	r, f := l.request, &l.request.Filter
	selected := api.TaskFilter{Cluster: f.Cluster, Status: f.Status, Type: f.Type, Tenant: f.Tenant, Agent: f.Agent,
		Labels: f.Labels, Cause: f.Cause}
	if !r.All && selected.Empty() && len(f.IDs) == 0 && f.SubmittedAfter == nil && f.SubmittedBefore == nil {
		return nil, app.UsageError("say which tasks with a filter or --id; if every task is meant, say --all")
	}
	if r.Reason == "" {
		if !r.DryRun {
			return nil, app.UsageError("give a --reason: it is kept in the history of each task")
		}
		r.Reason = "dry run"
	}
	return &r, nil
}

func runBulk(ctx context.Context, a *app.App, s *app.Client, l *bulkLine) error {
	request, err := l.build()
	if err != nil {
		return err
	}
	if !l.yes || request.DryRun {
		preview := *request
		preview.DryRun = true
		found, err := s.Bulks.Start(ctx, &preview)
		if err != nil {
			return err
		}
		if request.DryRun {
			return s.Print(func() error { return printDryRun(a, found) })
		}
		if sure, err := confirm(a, found); err != nil || !sure {
			return err
		}
	}
	bulk, err := s.Bulks.Start(ctx, request)
	if err != nil {
		return err
	}
	if l.wait > 0 {
		fmt.Fprintf(a.Stderr, "Bulk operation %s is under way on %s.\n", bulk.ID, count(bulk))
		return waitForBulk(ctx, a, s, bulk.ID, l.wait)
	}
	return s.Sayf("Bulk operation %[1]s is under way on %[2]s. See it with: mainstay task bulk get %[1]s --wait\n",
		bulk.ID, count(bulk))
}

// confirm asks a person; without one to ask, nothing is done.
func confirm(a *app.App, found *api.Bulk) (bool, error) {
	if found.Expected == 0 {
		fmt.Fprintln(a.Stderr, "There are no such tasks.")
		return false, nil
	}
	fmt.Fprintf(a.Stderr, "This will %s %s, such as %s. Go on? [y/N] ", actionText(found), count(found),
		strings.Join(found.Sample[:min(3, len(found.Sample))], ", "))
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	if err != nil {
		fmt.Fprintln(a.Stderr)
		return false, app.UsageError("nothing was done: nobody answered; say --yes to go on without being asked")
	}
	fmt.Fprintln(a.Stderr, "Nothing was done.")
	return false, nil
}

func actionText(b *api.Bulk) string {
	switch b.Action {
	case api.BulkReview:
		return "decide \"" + string(b.Decision) + "\" for"
	case api.BulkPriority:
		return "set priority " + api.Priority(b.Priority).String() + " for"
	}
	return string(b.Action)
}

func count(b *api.Bulk) string {
	text := api.Count(b.Expected, "task")
	if b.AtMost {
		text = "at most " + text
	}
	return text
}

func printDryRun(a *app.App, b *api.Bulk) error {
	if err := a.Sayf("This would %s %s.\n", actionText(b), count(b)); err != nil {
		return err
	}
	for _, id := range b.Sample {
		fmt.Fprintln(a.Stdout, "  "+id)
	}
	if rest := b.Expected - len(b.Sample); rest > 0 && len(b.Sample) > 0 {
		fmt.Fprintf(a.Stdout, "  … and %d more\n", rest)
	}
	return nil
}

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

// lookFor is how long one look at an operation waits for its end.
const lookFor = time.Second

// waitForBulk prints an operation once it has ended, or as it stands when the time is over.
func waitForBulk(ctx context.Context, a *app.App, s *app.Client, id string, wait time.Duration) error {
	var bulk *api.Bulk
	err := app.Await(ctx, wait, func() (_ bool, err error) {
		bulk, err = s.Bulks.Get(ctx, id, min(wait, lookFor))
		return err == nil && bulk.Status != api.BulkRunning, err
	})
	if err != nil {
		return app.GoesOn(err, "bulk operation "+id, "mainstay task bulk get "+id+" --wait=1h",
			"mainstay task bulk cancel "+id)
	}
	if err := s.Print(func() error { return printBulk(a, bulk) }); err != nil || wait == 0 {
		return err
	}
	switch {
	case bulk.Status == api.BulkRunning:
		return app.IncompleteError("bulk operation %s is still running after %s; it goes on by itself", bulk.ID, wait)
	case bulk.Status != api.BulkCompleted || bulk.Failed > 0:
		return app.IncompleteError("bulk operation %s is %s, with %d failures", bulk.ID, bulk.Status, bulk.Failed)
	}
	return nil
}

func printBulk(a *app.App, b *api.Bulk) error {
	var ended string
	if b.StartedAt != nil && b.ClosedAt != nil {
		ended = a.Ago(b.ClosedAt) + ", after " + app.Roughly(b.ClosedAt.Sub(*b.StartedAt))
	}
	err := a.Facts([][2]any{
		{"Bulk operation", b.ID}, {"Action", actionWords(b)}, {"Tasks", filterText(b)}, {"Reason", b.Reason},
		{"Status", b.Status}, {"Why", b.Why}, {"Done", fmt.Sprintf("%d of %d", b.Done, b.Expected)},
		{"Skipped", skippedText(b.Skipped)}, {"Failed", b.Failed}, {"Started", b.StartedAt},
		{"Ended", ended}, {"Workflow", b.WorkflowID},
	})
	if err != nil {
		return err
	}
	return app.PrintBelow(a, b.Examples, []string{"TASK", "OUTCOME", "REASON"}, func(e *api.BulkExample) []any {
		return []any{e.TaskID, e.Outcome, e.Reason}
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
	case api.BulkReview:
		return "review: " + string(b.Decision)
	case api.BulkPriority:
		return "priority: " + api.Priority(b.Priority).String()
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
		{"cause", f.Cause},
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

func printBulks(a *app.App, bulks []api.Bulk) error {
	header := []string{"BULK OPERATION", "ACTION", "STATUS", "DONE", "SKIPPED", "FAILED", "STARTED", "REASON"}
	return app.PrintTable(a, bulks, "There are no bulk operations.", header, func(b *api.Bulk) []any {
		return []any{b.ID, actionWords(b), b.Status, fmt.Sprintf("%d of %d", b.Done, b.Expected), b.Skipped, b.Failed,
			b.StartedAt, b.Reason}
	})
}
