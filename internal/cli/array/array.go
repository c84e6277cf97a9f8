// Package array has the commands of arrays.
package array

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
	"mainstay.dev/sdk/payload"
)

// Command is the group of arrays.
func Command(a *app.App) *cobra.Command {
	r := &app.Resource[client.Arrays]{App: a, Of: func(c *client.Client) client.Arrays { return c.Arrays },
		Group: "array", Arg: "ARRAY", ID: "an array's id", Sample: "a-06f3…", Title: "Array",
		Next: "See it with: mainstay array get", Reason: "why; kept with the array", Why: "new disks"}
	return a.GroupOf(&cobra.Command{Use: "array", Short: "Submit and steer arrays: many small tasks in one"},
		submitCommand(a),
		app.List(r, &cobra.Command{
			Use: "list", Short: "List arrays, newest first", Example: "  mainstay array list --status blocked",
		}, listFlags, client.Arrays.List, printArrays),
		getCommand(a), elementsCommand(a), resultsCommand(a),
		app.Tell(r, &cobra.Command{
			Use: "retry ARRAY", Short: "Run elements again: all dead letters, or those that are named",
			Example: "  mainstay array retry a-06f3…\n  mainstay array retry a-06f3… --element 17 --element 25",
		}, func(c *cobra.Command, in *api.RetryArrayRequest) {
			c.Flags().IntSliceVar(&in.Elements, "element", nil,
				"number of a dead letter, a review or a failed element (repeatable)")
			r.ReasonFlag(c, &in.Reason)
		}, client.Arrays.Retry, func(id string, _ *api.Array) string { return r.Then(id, "runs elements again") }),
		app.Tell(r, &cobra.Command{
			Use: "priority ARRAY PRIORITY", Short: "Change the priority of what an array has still to deliver",
			Example: "  mainstay array priority a-06f3… low",
		}, func(c *cobra.Command, in *api.TaskPriorityRequest) {
			c.Args = app.PriorityArgs(r.ID, &in.Priority)
			r.ReasonFlag(c, &in.Reason)
		}, client.Arrays.SetPriority, func(id string, _ *api.Array) string {
			return r.Then(id, "has another priority")
		}),
		app.Steer(r, "pause", "Pause an array: nothing new begins", "is paused", client.Arrays.Pause),
		app.Steer(r, "resume", "Let a paused array go on", "goes on", client.Arrays.Resume),
		app.Steer(r, "cancel", "Cancel an array", "is being cancelled", client.Arrays.Cancel))
}

func submitCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var r api.ArrayRequest
	var each string
	var wait time.Duration
	tolerate := -1
	var command *cobra.Command
	command = a.Call(&cobra.Command{
		Use:   "submit (--each FILE | --count N) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit an array",
		Long: `Submit an array. With --each, each line of a file is the payload of one element, as JSON. With a command
after "--", each line is the last argument of one run of it. With --count, all elements have one payload; a command
finds its element's place, from 0, in MAINSTAY_ELEMENT. With --wait, a bar shows how far it is; the exit code is 6
unless the array completed.`,
		Example: `  ls /data/*.jpg | mainstay array submit --each - --wait -- sha256sum
  mainstay array submit --type render --each frames.jsonl --max-parallel 16
  mainstay array submit --count 1000 -- ./simulate.sh`,
	}, func(ctx context.Context, c *app.Client, args []string) error {
		task, err := s.Build(a.Stdin, args, command.ArgsLenAtDash())
		if err != nil {
			return err
		}
		r.TaskSpec = task.TaskSpec
		if each != "" {
			if err := readItems(a, each, len(args) > 0, &r); err != nil {
				return err
			}
		}
		if tolerate >= 0 {
			r.Tolerate = &tolerate
		}
		definition := array.DefinitionOf(&r)
		if err := cmp.Or(definition.Validate(), payload.Elements(&definition.Spec, definition.Items)); err != nil {
			return app.WithExit(app.ExitUsage, err)
		}
		submitted, err := c.Arrays.Submit(ctx, &r)
		if err != nil {
			return err
		}
		if wait == 0 {
			return c.Print(func() error { return printSubmitted(a, submitted) })
		}
		if a.JSON() {
			fmt.Fprintf(a.Stderr, "Array %s is submitted.\n", submitted.ID)
		} else if err := printSubmitted(a, submitted); err != nil {
			return err
		}
		return await(ctx, a, c, submitted.ID, wait)
	})
	flags := command.Flags()
	flags.StringVar(&each, "each", "", "file whose lines are the elements; - for standard input")
	flags.IntVar(&r.Count, "count", 0, "how many elements there are, all with the same payload")
	flags.IntVar(&r.MaxParallel, "max-parallel", 0, "bundles that are under way at a time (default 64)")
	flags.IntVar(&tolerate, "tolerate", -1,
		"elements that may fail; when one more has, the rest is cancelled (default: all are tried)")
	flags.StringVar(&r.ID, "id", "", "id of the array (default: one is made); the same id again is the same array")
	flags.StringVar(&r.IdempotencyKey, "idempotency-key", "", "the same key again is the same array")
	app.Bounded[api.ArrayRequest](flags, map[string]string{"count": "count", "max-parallel": "max_parallel"})
	app.MayBeZero(flags, "tolerate")
	s.TaskFlags(command)
	app.WaitFlag(command, &wait, "the array has ended or waits for a person")
	return command
}

// readItems reads the elements from a file's lines.
func readItems(a *app.App, name string, arguments bool, r *api.ArrayRequest) error {
	if r.Count != 0 {
		return app.UsageError("give --each or --count, not both")
	}
	var run agent.ExecPayload
	if arguments {
		if err := json.Unmarshal(r.Payload, &run); err != nil {
			return err
		}
	} else if len(r.Payload) > 0 {
		return app.UsageError("give --each or --payload, not both")
	}
	r.Payload = nil
	text, err := textfile.ReadFrom(a.Stdin, name)
	if err != nil {
		return app.UsageError("--each: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		item := json.RawMessage(line)
		if arguments {
			one := run
			one.Command = slices.Concat(run.Command, []string{line})
			if item, err = json.Marshal(one); err != nil {
				return err
			}
		}
		if !json.Valid(item) {
			return app.UsageError("line %d is not JSON: put a text in quotes", number)
		}
		if _, err := payload.Check(r.Type, fmt.Sprintf("line %d", number), item); err != nil {
			return app.WithExit(app.ExitUsage, err)
		}
		r.Items = append(r.Items, item)
	}
	return nil
}

func printSubmitted(a *app.App, one *api.Array) error {
	note := fmt.Sprintf("with %d elements submitted", one.Counts.Total)
	if one.Duplicate {
		note = "was submitted before; it is " + string(one.Status)
	}
	return a.Sayf("Array %[1]s %[2]s. See it with: mainstay array get %[1]s --wait\n", one.ID, note)
}

// lookEvery is how often a waiting command looks at the array.
const lookEvery = 500 * time.Millisecond

// await shows how far an array is, until it has ended or waits for a person, or wait is over.
func await(ctx context.Context, a *app.App, c *app.Client, id string, wait time.Duration) error {
	var one *api.Array
	bar := app.Progress{To: a.Stderr, TTY: a.StdoutTTY && !a.JSON(), Unit: "elements"}
	shown := 0
	err := app.Await(ctx, wait, func() (bool, error) {
		var err error
		if one, err = c.Arrays.Get(ctx, id, min(wait, lookEvery)); err != nil {
			return false, err
		}
		bar.Total = one.Counts.Total
		for ended := one.Counts.Total - one.Counts.Queued - one.Counts.Running; shown < ended; {
			shown = bar.Step()
		}
		return one.Status.Final() || one.Status == api.ArrayBlocked, nil
	})
	if err != nil {
		return app.GoesOn(err, "array "+id, "mainstay array get "+id+" --wait=1h", "mainstay array cancel "+id)
	}
	return errors.Join(c.Print(func() error { return printArray(a, one) }), incomplete(one))
}

// incomplete is the error of a command that waited for an array which did not complete; nil for one that did.
func incomplete(one *api.Array) error {
	switch one.Status {
	case api.ArrayCompleted, api.ArrayPartial:
		return nil
	}
	return app.IncompleteError("array %s is %s", one.ID, one.Status)
}

func listFlags(c *cobra.Command, q *client.ArrayQuery) {
	flags := c.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Type, "type", "", "only of this task type")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, paused, blocked, completed, partial, failed or cancelled")
}

func printArrays(a *app.App, arrays []api.ArrayEntry) error {
	header := []string{"ARRAY", "TYPE", "CLUSTER", "ELEMENTS", "STATUS", "SUBMITTED", "TOOK"}
	return app.PrintTable(a, arrays, "There are no such arrays.", header, func(e *api.ArrayEntry) []any {
		return []any{e.ID, e.Type, e.Cluster, e.Elements, e.Status, e.CreatedAt, app.Took(e.CreatedAt, e.ClosedAt)}
	})
}

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := a.Call(&cobra.Command{
		Use: "get ARRAY", Short: "Show an array: how many of its elements have each status",
		Args: app.Exactly("an array's id"), Example: "  mainstay array get a-06f3… --wait",
	}, func(ctx context.Context, c *app.Client, args []string) error {
		if wait > 0 {
			return await(ctx, a, c, args[0], wait)
		}
		one, err := c.Arrays.Get(ctx, args[0], 0)
		if err != nil {
			return err
		}
		return c.Print(func() error { return printArray(a, one) })
	})
	app.WaitFlag(command, &wait, "the array has ended or waits for a person")
	return command
}

func printArray(a *app.App, one *api.Array) error {
	n := one.Counts
	counts := fmt.Sprintf("%d completed, %d running, %d queued, %d failed, %d cancelled", n.Completed, n.Running,
		n.Queued, n.Failed, n.Cancelled)
	held := ""
	if n.DeadLetter+n.Review > 0 {
		held = fmt.Sprintf("%s, %d in review", api.Count(n.DeadLetter, "dead letter"), n.Review)
	}
	err := a.Facts([][2]any{
		{"Array", one.ID}, {"Type", one.Type}, {"Cluster", one.Cluster}, {"Tenant", one.Tenant},
		{"Status", one.Status}, {"Why", one.Why}, {"Elements", fmt.Sprintf("%d: %s", n.Total, counts)},
		{"Need a person", held}, {"Given up", one.Until}, {"Submitted", one.CreatedAt},
		{"Took", app.Took(one.CreatedAt, one.ClosedAt)},
	})
	if err != nil || held == "" {
		return err
	}
	status, which := "dead_letter", ""
	if n.DeadLetter == 0 {
		status, which = "review", " --element N"
	}
	return a.Sayf("\nSee why:    mainstay array elements %[1]s --status %[2]s\n"+
		"Run again:  mainstay array retry %[1]s%[3]s\n", one.ID, status, which)
}

func elementsCommand(a *app.App) *cobra.Command {
	var status string
	var limit int
	command := a.Call(&cobra.Command{
		Use: "elements ARRAY", Short: "List an array's elements, and why they failed or wait",
		Args: app.Exactly("an array's id"), Example: "  mainstay array elements a-06f3… --status dead_letter",
	}, func(ctx context.Context, c *app.Client, args []string) error {
		return app.PrintList(ctx, c, c.Arrays.Elements(args[0], api.ElementStatus(status)), limit, printElements)
	})
	command.Flags().StringVar(&status, "status", "",
		"only with this status: queued, retry_wait, running, review, dead_letter, completed, failed or cancelled")
	command.Flags().IntVar(&limit, "limit", 100, "how many at most; 0: all")
	app.MayBeZero(command.Flags(), "limit")
	return command
}

func printElements(a *app.App, elements []api.ElementEntry) error {
	header := []string{"ELEMENT", "STATUS", "WHY"}
	return app.PrintTable(a, elements, "There are no such elements.", header, func(e *api.ElementEntry) []any {
		return []any{e.Number, e.Status, e.Why}
	})
}

func resultsCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use: "results ARRAY", Short: "Print what an array's elements returned, one JSON object on each line",
		Args: app.Exactly("an array's id"), Example: "  mainstay array results a-06f3… | jq -r .output.stdout",
	}, func(ctx context.Context, c *app.Client, args []string) error {
		out := bufio.NewWriter(a.Stdout)
		lines := json.NewEncoder(out)
		for result, err := range c.Arrays.Results(ctx, args[0]) {
			if err == nil {
				err = lines.Encode(&result)
			}
			if err != nil {
				return errors.Join(out.Flush(), err)
			}
		}
		return out.Flush()
	})
}
