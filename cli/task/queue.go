package task

import (
	"context"
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
			client.Tasks.Waiting),
		waitingCommand(a, "dead-letters", "List tasks whose attempts are used up; retry or discard them",
			client.Tasks.DeadLetters),
	}
}

func waitingCommand(
	a *app.App, name, short string, list func(s client.Tasks, cluster, tenant string) *client.List[api.Task],
) *cobra.Command {
	var cluster, tenant string
	command := app.LimitedList(a, &cobra.Command{
		Use: name, Short: short, Example: "  mainstay task " + name + " --cluster default", Args: app.Exactly(),
	}, func(s *client.Client) *client.List[api.Task] { return list(s.Tasks, cluster, tenant) }, printWaiting)
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&tenant, "tenant", "", "only of this tenant")
	return a.Watched(command)
}

// printWaiting says of each task why it waits.
func printWaiting(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, []string{"WHY"}, func(task *api.Task) []string { return []string{task.Why} })
}

// batchSize is how many tasks one request takes; maxBatchFile bounds what is read, in bytes.
const (
	batchSize    = 1000
	maxBatchFile = 1 << 30
)

// batchCommand submits many tasks from a file.
func batchCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use:   "submit-batch FILE",
		Short: "Submit the tasks of a file, 1,000 in a request",
		Long: `Submit tasks from a file, or from standard input for "-": a JSON array, or one JSON object after another. Each has the
form of a submission (see /docs); "type" and "cluster" are required. Each is accepted or refused by itself. With an id or
idempotency_key in each, the command can be repeated without harm.`,
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
			return a.Sayf("%s accepted, %d refused.\n", fleet.Count(len(answers)-refused, "task"), refused)
		})
	if err == nil && refused > 0 {
		err = app.WithExit(app.ExitUsage, fmt.Errorf("%d of %d tasks were refused", refused, len(answers)))
	}
	return err
}
