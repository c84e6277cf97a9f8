package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// queueCommands list what waits for an agent, and what waits for a person.
func queueCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		waitingCommand(a, "queue", "List tasks that wait for an agent or for the end of a backoff",
			(*client.Client).WaitingTasks),
		waitingCommand(a, "dead-letters", "List tasks whose attempts are used up; retry or discard them",
			(*client.Client).DeadLetters),
	}
}

func waitingCommand(
	a *app.App, name, short string, list func(s *client.Client, cluster, tenant string) *client.List[api.Task],
) *cobra.Command {
	var cluster, tenant string
	var limit int
	command := &cobra.Command{
		Use: name, Short: short, Example: "  mainstay task " + name + " --cluster default", Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			of := func(s *client.Client) *client.List[api.Task] { return list(s, cluster, tenant) }
			return app.PrintList(c, a, of, limit, printWaiting)
		},
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&tenant, "tenant", "", "only of this tenant")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

// printWaiting says of each task why it waits.
func printWaiting(a *app.App, tasks []api.Task) error {
	if len(tasks) == 0 {
		return printTasks(a, nil)
	}
	t := app.NewTable(a.Stdout, "TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED", "WHY")
	for i := range tasks {
		task := &tasks[i]
		t.Row(task.ID, task.Type, task.Cluster, task.PriorityName, statusText(a, task), agentOf(task),
			a.Ago(task.CreatedAt), task.Why)
	}
	return t.Flush()
}

// batchSize is how many tasks one request takes; maxBatchFile bounds what is read, in bytes.
const (
	batchSize    = 1000
	maxBatchFile = 1 << 30
)

// batchCommand submits many tasks from a file.
func batchCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "submit-batch FILE",
		Short: "Submit the tasks of a file, 1,000 in a request",
		Long: `Submit tasks from a file, or from standard input for "-": a JSON array, or one JSON object after another. Each has the
form of a submission (see /docs); "type" and "cluster" are required. Each is accepted or refused by itself. With an id or
idempotency_key in each, the command can be repeated without harm.`,
		Example: `  mainstay task submit-batch tasks.jsonl
  generate | mainstay task submit-batch - -o json`,
		Args: app.Exactly("a file"),
		RunE: func(c *cobra.Command, args []string) error {
			tasks, err := readTasks(args[0], a.Stdin)
			if err != nil {
				return err
			}
			server, err := a.Client()
			if err != nil {
				return err
			}
			answers := []api.BatchItem{}
			for len(tasks) > 0 {
				n := min(len(tasks), batchSize)
				answer, err := client.SubmitAll(c.Context(), server.Client, tasks[:n])
				if err != nil {
					return errors.Join(fmt.Errorf("after %d tasks: %w", len(answers), err), printBatch(a, answers))
				}
				answers, tasks = append(answers, answer...), tasks[n:]
			}
			return printBatch(a, answers)
		},
	}
	a.OutputFlag(command)
	return command
}

// readTasks reads a JSON array, or JSON objects one after another.
func readTasks(path string, stdin io.Reader) ([]json.RawMessage, error) {
	in, name := stdin, path
	if path == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, app.WithExit(app.ExitUsage, err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	decoder := json.NewDecoder(io.LimitReader(in, maxBatchFile))
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

// printBatch tells what became of each task. That some were refused is an error.
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
			_, err := fmt.Fprintf(a.Stdout, "%s accepted, %d refused.\n", fleet.Count(len(answers)-refused, "task"),
				refused)
			return err
		})
	if err == nil && refused > 0 {
		err = app.WithExit(app.ExitUsage, fmt.Errorf("%d of %d tasks were refused", refused, len(answers)))
	}
	return err
}
