package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

func (a *app) bulkGetCommand() *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use: "get ID", Short: "Show a bulk operation: how far it is, and what was not possible",
		Example: "  mainstay task bulk get b-06… --wait", Args: exactly("a bulk operation's id"),
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
		var bulk api.Bulk
		raw, err := client.call(c.Context(), http.MethodGet, path, hold, nil, &bulk)
		if err != nil {
			return err
		}
		if bulk.Status == fleet.BulkRunning && hold > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := a.printBulk(raw, &bulk); err != nil || wait == 0 {
			return err
		}
		switch {
		case bulk.Status == fleet.BulkRunning:
			return withExit(exitIncomplete, fmt.Errorf("bulk operation %s is still running after %s; it goes on by itself", bulk.ID, wait))
		case bulk.Status != fleet.BulkCompleted || bulk.Failed > 0:
			return withExit(exitIncomplete, fmt.Errorf("bulk operation %s is %s, with %d failures", bulk.ID, bulk.Status, bulk.Failed))
		}
		return nil
	}
}

func (a *app) printBulk(raw json.RawMessage, b *api.Bulk) error {
	return a.print(raw, func() error {
		t := newTable(a.stdout)
		var ended string
		if b.StartedAt != nil && b.ClosedAt != nil {
			ended = a.ago(b.ClosedAt) + ", after " + roughly(b.ClosedAt.Sub(*b.StartedAt))
		}
		t.facts([][2]string{
			{"Bulk operation", b.ID}, {"Action", actionWords(b)}, {"Tasks", filterText(b)}, {"Reason", b.Reason}, {"Status", string(b.Status)}, {"Why", b.Why},
			{"Done", fmt.Sprintf("%d of %d", b.Done, b.Expected)}, {"Skipped", skippedText(b.Skipped)}, {"Failed", fmt.Sprint(b.Failed)},
			{"Started", a.ago(b.StartedAt)}, {"Ended", ended}, {"Workflow", b.WorkflowID},
		})
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

func skippedText(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, no longer in a state for it", n)
}

func actionWords(b *api.Bulk) string {
	switch b.Action {
	case fleet.BulkReview:
		return "review: " + string(b.Decision)
	case fleet.BulkPriority:
		return "priority: " + fleet.Priority(b.Priority).String()
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
		Example: "  mainstay task bulk list",
		RunE: func(c *cobra.Command, _ []string) error {
			return printList(c, a, bulkPath, "bulks", nil, limit, a.printBulks)
		},
	}
	limitFlag(command, &limit)
	a.outputFlag(command)
	return command
}

func (a *app) printBulks(bulks []api.Bulk) error {
	if len(bulks) == 0 {
		_, err := fmt.Fprintln(a.stdout, "There are no bulk operations.")
		return err
	}
	t := newTable(a.stdout, "BULK OPERATION", "ACTION", "STATUS", "DONE", "SKIPPED", "FAILED", "STARTED", "REASON")
	for i := range bulks {
		b := &bulks[i]
		t.row(b.ID, actionWords(b), string(b.Status), fmt.Sprintf("%d of %d", b.Done, b.Expected), fmt.Sprint(b.Skipped), fmt.Sprint(b.Failed), a.ago(b.StartedAt), b.Reason)
	}
	return t.flush()
}

func (a *app) bulkStopCommand() *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "stop ID", Short: "Stop a bulk operation; what it has done stays done", Args: exactly("a bulk operation's id"),
		Example: `  mainstay task bulk stop b-06… --reason "not those"`,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var bulk api.Bulk
			raw, err := client.call(c.Context(), http.MethodPost, pathOf(bulkPath, args[0], "cancel"), 0, api.ReasonRequest{Reason: reason}, &bulk)
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
