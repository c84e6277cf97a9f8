package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
	"mainstay.dev/sdk/protocol"
)

func listCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	return r.Watched(app.List(r, &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Example: `  mainstay task list --status running
  mainstay task list --label project=film --submitted-after 2h
  mainstay task list --agent render-1 --submitted-after 12h     what it ran, or is to run
  mainstay task list --text nightly
  mainstay task list --status dead_letter --cluster studio -o json`,
	}, func(c *cobra.Command, q *client.TaskQuery) { listFlags(r.App, c, q) }, client.Tasks.List, printTasks))
}

func listFlags(a *app.App, c *cobra.Command, q *client.TaskQuery) {
	app.CheckFirst(c, func() error {
		for _, label := range q.Labels {
			if !strings.ContainsAny(label, "=:") {
				return app.UsageError("--label must be name=value")
			}
		}
		return nil
	})
	flags := c.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar((*string)(&q.Status), "status", "", "only with this status: queued, running, retry_wait, review, "+
		"dead_letter, completed, failed, cancelled or expired")
	flags.StringVar(&q.Recovery, "recovery", "", "blocked: only those that wait and that no agent in service can run")
	flags.StringVar(&q.Type, "type", "", "only of this type")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&q.Agent, "agent", "", "only those that this agent had, or that are pinned to it")
	flags.StringVar(&q.IDPrefix, "id", "", "only those whose id begins so")
	flags.StringVar(&q.Text, "text", "", "only those with this text in their id, type, labels, agents or cause")
	flags.StringArrayVar(&q.Labels, "label", nil, "only with this label, as name=value; of several, those with all")
	a.PastFlag(flags, "submitted-after",
		"only those submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago",
		func(at time.Time) { q.SubmittedAfter = at })
	a.PastFlag(flags, "submitted-before",
		"only those submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago",
		func(at time.Time) { q.SubmittedBefore = at })
}

// maxNamesakes is how many tasks an error lists whose ids begin alike.
const maxNamesakes = 10

// withTask does something with the task that has an id, or else with the one whose id begins so.
func withTask(
	ctx context.Context, tasks client.Tasks, id string, do func(id string) (*api.Task, error),
) (*api.Task, error) {
	done, err := do(id)
	if err == nil {
		return done, nil
	}
	if id, err = fullID(ctx, tasks, id, err); err != nil {
		return nil, err
	}
	return do(id)
}

// fullID is the id of the one task whose id begins with a text; missing is the error for a text that is no task's id.
func fullID(ctx context.Context, tasks client.Tasks, prefix string, missing error) (string, error) {
	if !client.IsNotFound(missing) {
		return "", missing
	}
	list := tasks.List(client.TaskQuery{IDPrefix: prefix})
	found, err := list.Take(ctx, maxNamesakes)
	switch {
	case err != nil || len(found) == 0:
		return "", missing
	case len(found) == 1:
		return found[0].ID, nil
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	if list.More() {
		ids = append(ids, "and more")
	}
	return "", app.WithExit(app.ExitCode(missing),
		fmt.Errorf("several tasks have ids that begin so; give more of it:\n  %s", strings.Join(ids, "\n  ")))
}

func printTasks(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, []string{"ENDED", "TOOK"}, func(task *api.Task) []any {
		return []any{task.ClosedAt, app.Took(task.CreatedAt, task.ClosedAt)}
	})
}

// printTable prints tasks; the last columns are named, and are what last makes of a task.
func printTable(a *app.App, tasks []api.Task, names []string, last func(*api.Task) []any) error {
	header := append([]string{"TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED"}, names...)
	return app.PrintTable(a, tasks, "There are no such tasks.", header, func(task *api.Task) []any {
		return append([]any{task.ID, task.Type, task.Cluster, task.PriorityName, statusText(a, task), agentOf(task),
			task.CreatedAt}, last(task)...)
	})
}

// statusText is the status, with the time that the task waits for.
func statusText(a *app.App, task *api.Task) string {
	text := string(task.Status)
	if task.NextAttemptAt != nil {
		text += ", " + a.Ago(task.NextAttemptAt)
	}
	return text
}

// agentOf is the agent that has the task, or had it last, else the one it is pinned to.
func agentOf(task *api.Task) string {
	if n := len(task.Attempts); n > 0 && task.Attempts[n-1].Outcome == api.AttemptRunning {
		return task.Attempts[n-1].AgentID
	}
	if n := len(task.RanOn); n > 0 {
		return task.RanOn[n-1]
	}
	return task.Agent
}

func waitingCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	type query struct{ cluster, tenant string }
	return r.Watched(app.List(r, &cobra.Command{
		Use: "queue", Short: "List tasks that wait for an agent or for the end of a backoff",
		Example: "  mainstay task queue --cluster default",
	}, func(c *cobra.Command, q *query) {
		c.Flags().StringVar(&q.cluster, "cluster", "", "only of this cluster")
		c.Flags().StringVar(&q.tenant, "tenant", "", "only of this tenant")
	}, func(tasks client.Tasks, q query) *client.List[api.Task] {
		return tasks.Waiting(q.cluster, q.tenant)
	}, printWaiting))
}

func deadLettersCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	var q client.DeadLetterQuery
	var count bool
	command := app.List(r, &cobra.Command{
		Use: "dead-letters", Short: "List tasks whose attempts are used up, or count them by cause; retry or discard them",
		Long: `List tasks whose attempts are used up. Each has a kind of cause: the type of its last failure, such as
exit_2, or failed, timed_out, lost (with its agent) or not_received. With --count, only the numbers by type and cause.`,
		Example: `  mainstay task dead-letters --count
  mainstay task dead-letters --type render --cause exit_2
  mainstay task bulk retry --type render --cause exit_2 --reason "the disk is back"`,
	}, nil, func(tasks client.Tasks, _ struct{}) *client.List[api.Task] {
		return tasks.DeadLetters(q)
	}, printDeadLetters)
	list := command.RunE
	counted := app.Show(r.App, &cobra.Command{}, func(
		ctx context.Context, s *client.Client, _ []string,
	) (*api.DeadLetters, error) {
		return s.Tasks.CountDeadLetters(ctx, q)
	}, printCauses).RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		if count {
			return counted(c, args)
		}
		return list(c, args)
	}
	flags := command.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&q.Type, "type", "", "only of this type")
	flags.StringVar(&q.Cause, "cause", "", "only with this kind of cause")
	flags.BoolVar(&count, "count", false, "count them by type and cause")
	return r.Watched(command)
}

func printDeadLetters(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, []string{"TRIED", "KEPT", "NEEDS", "CAUSE", "WHY"}, func(task *api.Task) []any {
		dead := api.DeadLetter{}
		if task.DeadLetter != nil {
			dead = *task.DeadLetter
		}
		return []any{task.Tried, dead.Until, needsText(task), dead.Kind, task.Why}
	})
}

// printCauses prints the numbers of dead letters, and how to retry the most.
func printCauses(a *app.App, d *api.DeadLetters) error {
	header := []string{"TASKS", "TYPE", "CAUSE", "FIRST", "NEWEST", "WHY"}
	err := app.PrintTable(a, d.Groups, "There are no dead letters.", header, func(g *api.DeadLetterGroup) []any {
		return []any{g.Count, g.Type, g.Cause, g.Since, g.Newest, g.Why}
	})
	if err != nil || len(d.Groups) == 0 {
		return err
	}
	if d.More {
		fmt.Fprintln(a.Stderr, "There are more: only the newest are counted.")
	}
	first := &d.Groups[0]
	return a.Sayf("\nRetry those of the first line:  mainstay task bulk retry --type %s --cause '%s' --reason …\n",
		first.Type, first.Cause)
}

// printWaiting says of each task how often it was tried, when it expires, what it needs of an agent, and why it waits.
func printWaiting(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, []string{"TRIED", "EXPIRES", "NEEDS", "WHY"}, func(task *api.Task) []any {
		return []any{task.Tried, task.ExpiresAt, needsText(task), task.Why}
	})
}

// needsText is what a task needs of its agent: the agent it is pinned to, capabilities, and its place.
func needsText(task *api.Task) string {
	var needs []string
	if task.Agent != "" {
		needs = append(needs, "agent "+task.Agent)
	}
	needs = append(needs, task.RequiredCapabilities...)
	return strings.Join(append(needs, task.Place.Words()...), ", ")
}

// batchSize is how many tasks one request takes; maxBatchFile bounds how much of the standard input is read, in bytes.
const (
	batchSize    = 1000
	maxBatchFile = 1 << 30
)

// batchCommand submits many tasks from a file.
func batchCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use:   "submit-batch FILE",
		Short: "Submit the tasks of a file, 1,000 in a request",
		Long: `Submit tasks from a file, or from standard input for "-": a JSON array, or one JSON object after another.
Each has the form of a submission (see /docs); "type" and "cluster" are required. Each is accepted or refused by itself.
With an id or idempotency_key in each, the command can be repeated without harm.`,
		Example: `  mainstay task submit-batch tasks.jsonl
  generate | mainstay task submit-batch - -o json`,
		Args: app.Exactly("a file"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		tasks, err := readTasks(args[0], a.Stdin)
		if err != nil {
			return err
		}
		answers := []api.BatchItem{}
		for len(tasks) > 0 {
			n := min(len(tasks), batchSize)
			answer, err := client.SubmitAll(ctx, s.Client, tasks[:n])
			if err != nil {
				return errors.Join(fmt.Errorf("after %d tasks: %w", len(answers), err), printBatch(a, answers))
			}
			answers, tasks = append(answers, answer...), tasks[n:]
		}
		return printBatch(a, answers)
	})
}

// readTasks reads a JSON array, or JSON objects one after another.
func readTasks(path string, stdin io.Reader) ([]json.RawMessage, error) {
	text, err := textfile.ReadFrom(io.LimitReader(stdin, maxBatchFile), path)
	if err != nil {
		return nil, app.WithExit(app.ExitUsage, err)
	}
	name := path
	if path == "-" {
		name = "standard input"
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var tasks []json.RawMessage
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		switch {
		case errors.Is(err, io.EOF) && len(tasks) == 0:
			return nil, app.UsageError("%s holds no tasks", name)
		case errors.Is(err, io.EOF):
			return tasks, nil
		case err != nil:
			return nil, app.UsageError("%s is not JSON after %d bytes: %w", name, decoder.InputOffset(), err)
		case value[0] != '[':
			tasks = append(tasks, value)
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, app.UsageError("%s: %w", name, err)
		}
		tasks = append(tasks, list...)
	}
}

// printBatch prints each task's outcome. It returns an error if some were refused.
func printBatch(a *app.App, answers []api.BatchItem) error {
	refused := 0
	for i := range answers {
		if answers[i].Error != nil {
			refused++
		}
	}
	err := a.Print(map[string]any{"tasks": answers, "accepted": len(answers) - refused, "rejected": refused},
		func() error {
			for i := range answers {
				if p := answers[i].Error; p != nil {
					fmt.Fprintf(a.Stderr, "Task %d was refused: %s\n", i+1,
						&client.Error{Problem: protocol.Problem{Code: p.Code, Detail: p.Detail, Errors: p.Errors}})
				}
			}
			return a.Sayf("%s accepted, %d refused.\n", api.Count(len(answers)-refused, "task"), refused)
		})
	if err == nil && refused > 0 {
		err = app.WithExit(app.ExitUsage, fmt.Errorf("%d of %d tasks were refused", refused, len(answers)))
	}
	return err
}
