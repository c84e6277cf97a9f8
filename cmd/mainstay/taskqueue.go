package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// taskQueueCommands list what waits for an agent, and what waits for a person.
func (a *app) taskQueueCommands() []*cobra.Command {
	return []*cobra.Command{
		a.waitingCommand("queue", "List tasks that wait for an agent or for the end of a backoff", tasksPath+"/queue"),
		a.waitingCommand("dead-letters", "List tasks whose attempts are used up; retry or discard them", tasksPath+"/queue/dead-letter"),
	}
}

func (a *app) waitingCommand(name, short, path string) *cobra.Command {
	var cluster, tenant string
	var limit int
	command := &cobra.Command{
		Use: name, Short: short, Example: "  mainstay task " + name + " --cluster default", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return printList(c, a, path, "tasks", queryOf("cluster", cluster, "tenant", tenant), limit, a.printWaiting)
		},
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&tenant, "tenant", "", "only of this tenant")
	limitFlag(command, &limit)
	a.outputFlag(command)
	return command
}

// printWaiting says of each task why it waits.
func (a *app) printWaiting(tasks []api.Task) error {
	if len(tasks) == 0 {
		return a.printTasks(nil)
	}
	t := newTable(a.stdout, "TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED", "WHY")
	for i := range tasks {
		task := &tasks[i]
		t.row(task.ID, task.Type, task.Cluster, task.PriorityName, a.statusText(task), agentOf(task), a.ago(task.CreatedAt), task.Why)
	}
	return t.flush()
}

// batchSize is how many tasks one request takes; maxBatchFile bounds what is read, in bytes.
const (
	batchSize    = 1000
	maxBatchFile = 1 << 30
)

// taskBatchCommand submits many tasks from a file.
func (a *app) taskBatchCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "submit-batch FILE",
		Short: "Submit the tasks of a file, 1,000 in a request",
		Long: `Submit tasks from a file, or from standard input for "-": a JSON array, or one JSON object after another. Each has the
form of a submission (see /docs); "type" and "cluster" are required. Each is accepted or refused by itself. With an id or
idempotency_key in each, the command can be repeated without harm.`,
		Example: `  mainstay task submit-batch tasks.jsonl
  generate | mainstay task submit-batch - -o json`,
		Args: exactly("a file"),
		RunE: func(c *cobra.Command, args []string) error {
			tasks, err := readTasks(args[0], a.stdin)
			if err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			answers := []api.BatchItem{}
			for len(tasks) > 0 {
				n := min(len(tasks), batchSize)
				var answer struct{ Tasks []api.BatchItem }
				if _, err := client.call(c.Context(), http.MethodPost, batchPath, batchHold, tasks[:n], &answer); err != nil {
					return errors.Join(fmt.Errorf("after %d tasks: %w", len(answers), err), a.printBatch(answers))
				}
				answers, tasks = append(answers, answer.Tasks...), tasks[n:]
			}
			return a.printBatch(answers)
		},
	}
	a.outputFlag(command)
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
			return nil, withExit(exitUsage, err)
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
			return nil, usageError("%s holds no tasks", name)
		case errors.Is(err, io.EOF):
			return tasks, nil
		case err != nil:
			return nil, usageError("%s is not JSON after %d bytes: %w", name, decoder.InputOffset(), err)
		case value[0] != '[':
			tasks = append(tasks, value)
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, usageError("%s: %w", name, err)
		}
		tasks = append(tasks, list...)
	}
}

// printBatch tells what became of each task. That some were refused is an error.
func (a *app) printBatch(answers []api.BatchItem) error {
	refused := 0
	for i := range answers {
		if answers[i].Error != nil {
			refused++
		}
	}
	err := a.print(map[string]any{"tasks": answers, "accepted": len(answers) - refused, "rejected": refused}, func() error {
		for i := range answers {
			if p := answers[i].Error; p != nil {
				fmt.Fprintf(a.stderr, "Task %d was refused: %s\n", i+1, &problemError{protocol.Problem{Code: p.Code, Detail: p.Detail, Errors: p.Errors}})
			}
		}
		_, err := fmt.Fprintf(a.stdout, "%s accepted, %d refused.\n", fleet.Count(len(answers)-refused, "task"), refused)
		return err
	})
	if err == nil && refused > 0 {
		err = withExit(exitUsage, fmt.Errorf("%d of %d tasks were refused", refused, len(answers)))
	}
	return err
}
