package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

const bulkPath = "/api/v1/agents/tasks/bulk"

func (a *app) taskBulkCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "bulk", Short: "Act on many tasks at once",
		Long: `Act on all tasks that the flags select: those of a cluster, with a status, a label, and so on; all that is given must hold.

The command first says how many there are, and asks before it begins; --yes does not ask, --dry-run only looks. The
operation runs in the control plane and goes on by itself.`,
		Example: `  mainstay task bulk cancel --cluster studio --status queued --dry-run
  mainstay task bulk retry --type render --submitted-after -24h --reason "disk is back" --yes
  mainstay task bulk get b-06… --wait`,
	}
	command.AddCommand(
		a.bulkActionCommand(fleet.BulkCancel, "Cancel open tasks"),
		a.bulkActionCommand(fleet.BulkRetry, "Give dead letters a fresh set of attempts"),
		a.bulkActionCommand(fleet.BulkDiscard, "Give dead letters up"),
		a.bulkActionCommand(fleet.BulkReview, "Decide about tasks in review"),
		a.bulkActionCommand(fleet.BulkPriority, "Change the priority of open tasks"),
		a.bulkGetCommand(), a.bulkListCommand(), a.bulkStopCommand())
	return command
}

// bulkLine is the command line of a bulk action.
type bulkLine struct {
	request       gateway.BulkRequest
	status        string
	labels        []string
	after, before string
	decision      string
	priority      string
	yes           bool
	wait          time.Duration
}

func (a *app) bulkActionCommand(action fleet.BulkAction, short string) *cobra.Command {
	l := bulkLine{}
	l.request.Action = action
	command := &cobra.Command{
		Use: string(action) + " --reason WHY (FILTER… | --id ID… | --all)", Short: short, Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.runBulk(c, &l) },
	}
	flags, f := command.Flags(), &l.request.Filter
	flags.StringVar(&f.Cluster, "cluster", "", "tasks of this cluster")
	flags.StringVar(&l.status, "status", "", "tasks with this status: "+statusNames(action))
	flags.StringVar(&f.Type, "type", "", "tasks of this type")
	flags.StringVar(&f.Tenant, "tenant", "", "tasks of this tenant")
	flags.StringVar(&f.Agent, "agent", "", "tasks pinned to this agent")
	flags.StringArrayVar(&l.labels, "label", nil, "tasks with this label, NAME=VALUE (repeatable)")
	flags.StringVar(&l.after, "submitted-after", "", "tasks submitted at this time or later: 2026-12-24T18:00:00Z, or -2h for two hours ago")
	flags.StringVar(&l.before, "submitted-before", "", "tasks submitted before this time: 2026-12-24T18:00:00Z, or -2h for two hours ago")
	flags.StringArrayVar(&f.IDs, "id", nil, "this task (repeatable); not with other filters")
	flags.BoolVar(&l.request.All, "all", false, "every task that this is possible for")
	flags.StringVar(&l.request.Reason, "reason", "", "why; kept in the history of each task")
	switch action {
	case fleet.BulkReview:
		flags.StringVar(&l.decision, "decision", "", "rerun, completed or failed")
	case fleet.BulkPriority:
		flags.StringVar(&l.priority, "priority", "", "1 (first) to 5 (last), or critical, high, normal, low or background")
	}
	flags.BoolVar(&l.request.DryRun, "dry-run", false, "only say how many tasks there are, and name some")
	flags.BoolVar(&l.yes, "yes", false, "do not ask")
	bulkWaitFlag(command, &l.wait)
	a.outputFlag(command)
	return command
}

func statusNames(action fleet.BulkAction) string {
	names := []string{}
	for _, s := range action.Statuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func bulkWaitFlag(c *cobra.Command, wait *time.Duration) {
	waitFlag(c, wait)
	c.Flags().Lookup("wait").Usage = "wait until the operation has ended, at most this long (--wait alone: 30s)"
}

// build checks the command line; the rest is the server's.
func (l *bulkLine) build(now time.Time) (*gateway.BulkRequest, error) {
	r := l.request
	r.Filter.Status, r.Decision = fleet.TaskStatus(l.status), fleet.ReviewDecision(l.decision)
	var err error
	if r.Filter.Labels, err = pairs("--label", l.labels); err != nil {
		return nil, err
	}
	if l.priority != "" {
		if r.Priority, err = priorityFlag(l.priority); err != nil {
			return nil, err
		}
	}
	for _, at := range []struct {
		flag, text string
		into       **time.Time
	}{{"--submitted-after", l.after, &r.Filter.SubmittedAfter}, {"--submitted-before", l.before, &r.Filter.SubmittedBefore}} {
		if at.text != "" {
			t, err := timeFlag(at.flag, at.text, now)
			if err != nil {
				return nil, err
			}
			*at.into = &t
		}
	}
	if r.Reason == "" {
		if !r.DryRun {
			return nil, usageError("give a --reason: it is kept in the history of each task")
		}
		r.Reason = "dry run"
	}
	return &r, nil
}

func (a *app) runBulk(c *cobra.Command, l *bulkLine) error {
	request, err := l.build(a.now())
	if err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if !l.yes || request.DryRun {
		preview := *request
		preview.DryRun = true
		var found gateway.Bulk
		raw, err := client.call(c.Context(), http.MethodPost, bulkPath, 0, &preview, &found)
		if err != nil {
			return err
		}
		if request.DryRun {
			return a.print(raw, func() error { return a.printDryRun(&found) })
		}
		if sure, err := a.confirm(&found); err != nil || !sure {
			return err
		}
	}
	var bulk gateway.Bulk
	raw, err := client.call(c.Context(), http.MethodPost, bulkPath, 0, request, &bulk)
	if err != nil {
		return err
	}
	if l.wait > 0 {
		return a.waitForBulk(c, client, bulk.ID, l.wait)
	}
	return a.print(raw, func() error {
		_, err := fmt.Fprintf(a.stdout, "Bulk operation %s is under way on %s. See it with: mainstay task bulk get %s --wait\n", bulk.ID, taskCount(&bulk), bulk.ID)
		return err
	})
}

// confirm asks a person; without one to ask, nothing is done.
func (a *app) confirm(found *gateway.Bulk) (bool, error) {
	if found.Expected == 0 {
		fmt.Fprintln(a.stderr, "There are no such tasks.")
		return false, nil
	}
	fmt.Fprintf(a.stderr, "This will %s %s, such as %s. Go on? [y/N] ", actionText(found), taskCount(found), strings.Join(found.Sample[:min(3, len(found.Sample))], ", "))
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	if err != nil {
		fmt.Fprintln(a.stderr)
		return false, usageError("nothing was done: nobody answered; say --yes to go on without being asked")
	}
	fmt.Fprintln(a.stderr, "Nothing was done.")
	return false, nil
}

func actionText(b *gateway.Bulk) string {
	switch b.Action {
	case fleet.BulkReview:
		return "decide \"" + string(b.Decision) + "\" for"
	case fleet.BulkPriority:
		return "set priority " + fleet.Priority(b.Priority).String() + " for"
	}
	return string(b.Action)
}

func taskCount(b *gateway.Bulk) string {
	text := fmt.Sprintf("%d tasks", b.Expected)
	if b.Expected == 1 {
		text = "1 task"
	}
	if b.AtMost {
		text = "at most " + text
	}
	return text
}

func (a *app) printDryRun(b *gateway.Bulk) error {
	if _, err := fmt.Fprintf(a.stdout, "This would %s %s.\n", actionText(b), taskCount(b)); err != nil || len(b.Sample) == 0 {
		return err
	}
	for _, id := range b.Sample {
		fmt.Fprintln(a.stdout, "  "+id)
	}
	if rest := b.Expected - len(b.Sample); rest > 0 {
		fmt.Fprintf(a.stdout, "  … and %d more\n", rest)
	}
	return nil
}

func (a *app) bulkGetCommand() *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use: "get ID", Short: "Show a bulk operation: how far it is, and what was not possible", Args: exactly("a bulk operation's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			return a.waitForBulk(c, client, args[0], wait)
		},
	}
	bulkWaitFlag(command, &wait)
	a.outputFlag(command)
	return command
}

// waitForBulk prints an operation once it has ended, or as it stands when the time is over.
func (a *app) waitForBulk(c *cobra.Command, client *apiClient, id string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), maxHold)
		path := pathOf(bulkPath, id)
		if hold > 0 {
			path += "?wait=" + hold.String()
		}
		var bulk gateway.Bulk
		raw, err := client.call(c.Context(), http.MethodGet, path, hold, nil, &bulk)
		if err != nil {
			return err
		}
		if bulk.Status == contract.BulkRunning && hold > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := a.printBulk(raw, &bulk); err != nil || wait == 0 {
			return err
		}
		switch {
		case bulk.Status == contract.BulkRunning:
			return withExit(exitIncomplete, fmt.Errorf("bulk operation %s is still running after %s; it goes on by itself", bulk.ID, wait))
		case bulk.Status != contract.BulkCompleted || bulk.Failed > 0:
			return withExit(exitIncomplete, fmt.Errorf("bulk operation %s is %s, with %d failures", bulk.ID, bulk.Status, bulk.Failed))
		}
		return nil
	}
}

func (a *app) printBulk(raw json.RawMessage, b *gateway.Bulk) error {
	return a.print(raw, func() error {
		t := newTable(a.stdout)
		var ended string
		if b.StartedAt != nil && b.ClosedAt != nil {
			ended = a.ago(b.ClosedAt) + ", after " + roughly(b.ClosedAt.Sub(*b.StartedAt))
		}
		for _, line := range [][2]string{
			{"Bulk operation", b.ID}, {"Action", actionWords(b)}, {"Tasks", filterText(b.Filter)}, {"Reason", b.Reason}, {"Status", string(b.Status)}, {"Why", b.Why},
			{"Done", fmt.Sprintf("%d of %d", b.Done, b.Expected)}, {"Skipped", fmt.Sprintf("%d, no longer in a state for it", b.Skipped)}, {"Failed", fmt.Sprint(b.Failed)},
			{"Started", a.ago(b.StartedAt)}, {"Ended", ended}, {"Workflow", b.WorkflowID},
		} {
			if line[1] != "" {
				t.row(line[0], line[1])
			}
		}
		if err := t.flush(); err != nil || len(b.Examples) == 0 {
			return err
		}
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "TASK", "OUTCOME", "REASON")
		for _, e := range b.Examples {
			t.row(e.TaskID, string(e.Outcome), e.Reason)
		}
		return t.flush()
	})
}

func actionWords(b *gateway.Bulk) string {
	switch b.Action {
	case fleet.BulkReview:
		return "review: " + string(b.Decision)
	case fleet.BulkPriority:
		return "priority: " + fleet.Priority(b.Priority).String()
	}
	return string(b.Action)
}

// filterText says which tasks were meant.
func filterText(f *fleet.TaskFilter) string {
	if f == nil {
		return "by id, or all"
	}
	var parts []string
	for _, p := range [][2]string{
		{"cluster", f.Cluster}, {"status", string(f.Status)}, {"type", f.Type}, {"tenant", f.Tenant}, {"agent", f.Agent}, {"labels", labelText(f.Labels)},
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

func (a *app) bulkListCommand() *cobra.Command {
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List bulk operations, newest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError("--limit must be at least 1")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			raw, bulks, more, err := list[gateway.Bulk](c.Context(), client, bulkPath, "bulks", nil, limit)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"bulks": raw}, func() error { return a.printBulks(bulks, more) })
		},
	}
	command.Flags().IntVar(&limit, "limit", 50, "at most this many")
	a.outputFlag(command)
	return command
}

func (a *app) printBulks(bulks []gateway.Bulk, more bool) error {
	if len(bulks) == 0 {
		_, err := fmt.Fprintln(a.stdout, "There are no bulk operations.")
		return err
	}
	t := newTable(a.stdout, "BULK OPERATION", "ACTION", "STATUS", "DONE", "SKIPPED", "FAILED", "STARTED", "REASON")
	for i := range bulks {
		b := &bulks[i]
		t.row(b.ID, actionWords(b), string(b.Status), fmt.Sprintf("%d of %d", b.Done, b.Expected), fmt.Sprint(b.Skipped), fmt.Sprint(b.Failed), a.ago(b.StartedAt), b.Reason)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.stderr, "There are more: raise --limit.\n")
	}
	return nil
}

func (a *app) bulkStopCommand() *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "stop ID", Short: "Stop a bulk operation; what it has done stays done", Args: exactly("a bulk operation's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var bulk gateway.Bulk
			raw, err := client.call(c.Context(), http.MethodPost, pathOf(bulkPath, args[0], "cancel"), 0, gateway.ReasonRequest{Reason: reason}, &bulk)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				_, err := fmt.Fprintf(a.stdout, "Bulk operation %s stops; %d tasks are done so far.\n", bulk.ID, bulk.Done)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the operation's history")
	a.outputFlag(command)
	return command
}
