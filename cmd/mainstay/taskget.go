package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

const (
	defaultWait = 30 * time.Second
	// maxHold is the longest wait that the API takes in one request.
	maxHold = 60 * time.Second
)

func (a *app) taskGetCommand() *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use:     "get ID",
		Short:   "Show a task: its status, why it waits, its payload, its attempts and its result",
		Example: "  mainstay task get t-06… --wait=2m",
		Args:    exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			raw, task, err := client.waitForTask(c.Context(), args[0], wait, "include", "payload")
			if err != nil {
				return err
			}
			if err := a.printTask(raw, task, shortText); err != nil {
				return err
			}
			if wait > 0 {
				return incomplete(task, wait)
			}
			return nil
		},
	}
	waitFlag(command, &wait)
	a.outputFlag(command)
	return command
}

// waitFlag adds --wait[=30s].
func waitFlag(c *cobra.Command, wait *time.Duration) {
	c.Flags().DurationVar(wait, "wait", 0, "wait until the task has ended or needs a person, at most this long (--wait alone: 30s)")
	c.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if *wait < 0 {
			return usageError("--wait must not be negative")
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
}

// waitForTask returns a task as soon as it has ended or needs a person, or as it stands when the time is over.
// parameters are names and values of the query.
func (c *apiClient) waitForTask(ctx context.Context, id string, wait time.Duration, parameters ...string) (json.RawMessage, *api.Task, error) {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), maxHold)
		query := queryOf(parameters...)
		if hold > 0 {
			query.Set("wait", hold.String())
		}
		path := pathOf(tasksPath, id)
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		task := &api.Task{}
		raw, err := c.call(ctx, http.MethodGet, path, hold, nil, task)
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
