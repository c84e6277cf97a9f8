package task

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use:     "get ID",
		Short:   "Show a task: its status, why it waits, its payload, its attempts and its result",
		Example: "  mainstay task get t-06… --wait=2m",
		Args:    app.Exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			raw, task, err := WaitForTask(c.Context(), client, args[0], wait, "include", "payload")
			if err != nil {
				return err
			}
			if err := printTask(a, raw, task, shortText); err != nil {
				return err
			}
			if wait > 0 {
				return Incomplete(task, wait)
			}
			return nil
		},
	}
	app.WaitFlag(command, &wait, untilSettled)
	a.OutputFlag(command)
	return command
}

// maxHold is the longest wait that the API takes in one request.
const maxHold = 60 * time.Second

// untilSettled is what --wait waits for.
const untilSettled = "the task has ended or needs a person"

// WaitForTask returns a task as soon as it has ended or needs a person, or as it stands when the time is over.
// parameters are names and values of the query.
func WaitForTask(ctx context.Context, c *app.Client, id string, wait time.Duration, parameters ...string) (json.RawMessage, *api.Task, error) {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), maxHold)
		query := app.Query(parameters...)
		if hold > 0 {
			query.Set("wait", hold.String())
		}
		path := app.Path(app.TasksPath, id)
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		task := &api.Task{}
		raw, err := c.Call(ctx, http.MethodGet, path, hold, nil, task)
		if err != nil {
			return nil, nil, err
		}
		if settled(task.Status) || hold == 0 || !time.Now().Before(deadline) {
			return raw, task, nil
		}
	}
}

// settled reports whether nothing more happens to the task by itself.
func settled(s fleet.TaskStatus) bool {
	return s.Final() || s == fleet.TaskReview || s == fleet.TaskDeadLetter
}
