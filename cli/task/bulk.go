package task

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func bulkCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "bulk", Short: "Act on many tasks at once",
		Long: `Act on all tasks that the flags select: those of a cluster, with a status, a label, and so on; all that is given must hold.

The command first says how many there are, and asks before it begins; --yes does not ask, --dry-run only looks. The
operation runs in the control plane and goes on by itself.`,
		Example: `  mainstay task bulk cancel --cluster studio --status queued --dry-run
  mainstay task bulk retry --type render --submitted-after 24h --reason "disk is back" --yes
  mainstay task bulk get b-06… --wait`,
	}
	command.AddCommand(
		bulkActionCommand(a, fleet.BulkCancel, "Cancel open tasks"),
		bulkActionCommand(a, fleet.BulkRetry, "Give dead letters a fresh set of attempts"),
		bulkActionCommand(a, fleet.BulkDiscard, "Give dead letters up"),
		bulkActionCommand(a, fleet.BulkReview, "Decide about tasks in review"),
		bulkActionCommand(a, fleet.BulkPriority, "Change the priority of open tasks"),
		bulkGetCommand(a), bulkListCommand(a), bulkStopCommand(a))
	return command
}

// bulkLine is the command line of a bulk action.
type bulkLine struct {
	request       api.BulkRequest
	labels        []string
	after, before string
	priority      string
	yes           bool
	wait          time.Duration
}

var bulkExamples = map[fleet.BulkAction]string{
	fleet.BulkCancel:   `cancel --cluster studio --status queued --reason "wrong input" --dry-run`,
	fleet.BulkRetry:    `retry --type render --submitted-after 24h --reason "disk is back"`,
	fleet.BulkDiscard:  `discard --label project=film --reason "project has ended"`,
	fleet.BulkReview:   `review --cluster billing --decision rerun --reason "no invoice was sent" --wait`,
	fleet.BulkPriority: `priority --tenant acme --priority high --reason "deadline"`,
}

func bulkActionCommand(a *app.App, action fleet.BulkAction, short string) *cobra.Command {
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
	flags.StringVar(&f.Tenant, "tenant", "", "tasks of this tenant")
	flags.StringVar(&f.Agent, "agent", "", "tasks pinned to this agent")
	flags.StringArrayVar(&l.labels, "label", nil, "tasks with this label, NAME=VALUE (repeatable)")
	flags.StringVar(&l.after, "submitted-after", "",
		"tasks submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	flags.StringVar(&l.before, "submitted-before", "",
		"tasks submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	flags.StringArrayVar(&f.IDs, "id", nil, "this task (repeatable); not with other filters")
	flags.BoolVar(&l.request.All, "all", false, "every task that this is possible for")
	flags.StringVar(&l.request.Reason, "reason", "", "why; kept in the history of each task")
	switch action {
	case fleet.BulkReview:
		flags.StringVar((*string)(&l.request.Decision), "decision", "", "rerun, completed or failed")
	case fleet.BulkPriority:
		flags.StringVar(&l.priority, "priority", "",
			"1 (first) to 5 (last), or critical, high, normal, low or background")
	}
	flags.BoolVar(&l.request.DryRun, "dry-run", false, "only say how many tasks there are, and name some")
	flags.BoolVar(&l.yes, "yes", false, "do not ask")
	app.WaitFlag(command, &l.wait, "the operation has ended")
	return command
}

func statusNames(action fleet.BulkAction) string {
	names := []string{}
	for _, s := range action.Statuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// build checks the command line; the rest is the server's.
func (l *bulkLine) build(now time.Time) (*api.BulkRequest, error) {
	r := l.request
	var err error
	if r.Filter.Labels, err = app.Pairs("--label", l.labels); err != nil {
		return nil, err
	}
	if r.Priority, err = app.PriorityFlag(l.priority); err != nil {
		return nil, err
	}
	for _, at := range []struct {
		flag, text string
		into       **time.Time
	}{{"--submitted-after", l.after, &r.Filter.SubmittedAfter}, {"--submitted-before", l.before, &r.Filter.SubmittedBefore}} {
		if at.text != "" {
			t, err := app.PastFlag(at.flag, at.text, now)
			if err != nil {
				return nil, err
			}
			*at.into = &t
		}
	}
	selected := fleet.TaskFilter{Cluster: r.Filter.Cluster, Status: r.Filter.Status, Type: r.Filter.Type,
		Tenant: r.Filter.Tenant, Agent: r.Filter.Agent, Labels: r.Filter.Labels}
	if !r.All && selected.Empty() && len(r.Filter.IDs) == 0 && l.after == "" && l.before == "" {
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
	request, err := l.build(a.Now())
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
			return a.Print(s.Answer, func() error { return printDryRun(a, found) })
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
		return waitForBulk(ctx, a, s, bulk.ID, l.wait)
	}
	return a.Print(s.Answer, func() error {
		return a.Sayf("Bulk operation %[1]s is under way on %[2]s. See it with: mainstay task bulk get %[1]s --wait\n",
			bulk.ID, count(bulk))
	})
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
	case fleet.BulkReview:
		return "decide \"" + string(b.Decision) + "\" for"
	case fleet.BulkPriority:
		return "set priority " + fleet.Priority(b.Priority).String() + " for"
	}
	return string(b.Action)
}

func count(b *api.Bulk) string {
	text := fleet.Count(b.Expected, "task")
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
