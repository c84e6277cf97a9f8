package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// FailoverCommand is the group of failovers.
func FailoverCommand(a *app.App) *cobra.Command {
	r := &app.Resource[client.Failovers]{App: a, Of: func(c *client.Client) client.Failovers { return c.Failovers },
		ID: "a failover's id"}
	return a.GroupOf(
		&cobra.Command{Use: "failover", Short: "See the failovers of agents; begin one with `mainstay agent failover`"},
		app.List(r, &cobra.Command{
			Use: "list", Short: "List failovers, newest first",
			Example: "  mainstay failover list --cluster default --agent agent-1",
		}, failoverFlags, client.Failovers.List, printFailovers),
		app.Get(r, &cobra.Command{
			Use: "get ID", Short: "Show a failover: who, why, what was moved to whom, and when",
			Example: "  mainstay failover get default:agent-1:7",
		}, client.Failovers.Get, printFailover))
}

func failoverFlags(c *cobra.Command, q *client.FailoverQuery) {
	flags := c.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Agent, "agent", "", "only of this agent")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, succeeded, not_in_cluster, no_target_available or failed")
}

func printFailovers(a *app.App, records []api.FailoverRecord) error {
	header := []string{"FAILOVER", "STATUS", "TRIGGER", "TARGET", "MOVED", "NOTICED", "RUNNING AGAIN", "CLOSED"}
	return app.PrintTable(a, records, "There are no such failovers.", header, func(r *api.FailoverRecord) []any {
		return []any{r.ID, r.Status, r.Trigger, r.TargetAgentID, cluster.MovedBy(r), r.NoticedAt, after(r, r.ResumedAt),
			after(r, r.CompletedAt)}
	})
}

// evidenceText is the sign by which the agent was given up, and how long after its last sign of life.
func evidenceText(r *api.FailoverRecord) string {
	text := strings.ReplaceAll(string(r.Evidence), "_", " ")
	if r.NoticedAfter > 0 {
		text += ", after " + r.NoticedAfter.String()
	}
	return text
}

// printFailover shows a failover and its timeline.
func printFailover(a *app.App, r *api.FailoverRecord) error {
	err := a.Facts([][2]any{
		{"Failover", r.ID},
		{"Agent", fmt.Sprintf("%s, epoch %d, in cluster %s", r.FailedAgentID, r.Epoch, r.Cluster)},
		{"Status", r.Status}, {"Error", r.Error}, {"Trigger", triggerText(r.Trigger)}, {"Reason", r.Reason},
		{"Evidence", evidenceText(r)}, {"Target", r.TargetAgentID},
		{"Moved", cluster.MovedBy(r)}, {"Noticed", r.NoticedAt},
		{"Running again", after(r, r.ResumedAt)}, {"Closed", after(r, r.CompletedAt)},
	})
	if err != nil {
		return err
	}
	return app.PrintBelow(a, timeline(r), []string{"TIME", "AFTER", "WHAT"}, func(step *failoverStep) []any {
		if step.at == nil {
			return []any{"", "", step.what}
		}
		after := "+" + app.Roughly(max(0, step.at.Sub(r.NoticedAt)))
		return []any{app.ExactClock(*step.at), after, step.what}
	})
}

// failoverStep is one line of a timeline. at is nil when nobody recorded the time.
type failoverStep struct {
	at   *time.Time
	what string
}

// timeline lists a failover's steps in the order in which they happened. Steps without a time come before the end.
func timeline(r *api.FailoverRecord) []failoverStep {
	steps := []failoverStep{{&r.NoticedAt, "noticed: " + triggerText(r.Trigger)}, {&r.StartedAt, "started"}}
	var untimed []failoverStep
	for i := range r.Transfers {
		step := failoverStep{r.Transfers[i].At, transferText(&r.Transfers[i])}
		if step.at == nil {
			untimed = append(untimed, step)
		} else {
			steps = append(steps, step)
		}
	}
	if r.ResumedAt != nil {
		steps = append(steps, failoverStep{r.ResumedAt, "all that moved runs again"})
	}
	if r.Promoted != "" {
		untimed = append(untimed, failoverStep{what: fmt.Sprintf("leader: %s → %s, epoch %d", r.FailedAgentID,
			r.Promoted, r.LeaderEpoch)})
	}
	for _, m := range r.Shards {
		untimed = append(untimed, failoverStep{what: fmt.Sprintf("shard %d: %s → %s, epoch %d", m.Shard,
			cmp.Or(m.From, "nobody"), cmp.Or(m.To, "nobody"), m.Epoch)})
	}
	slices.SortStableFunc(steps, func(x, y failoverStep) int { return x.at.Compare(*y.at) })
	steps = append(steps, untimed...)
	if r.CompletedAt != nil {
		steps = append(steps, failoverStep{r.CompletedAt, "closed: " + string(r.Status)})
	}
	return steps
}

func transferText(t *api.Transfer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "task %s: %s → ", t.TaskID, t.From)
	if t.To == "" {
		b.WriteString("nobody yet")
	} else {
		fmt.Fprintf(&b, "%s, epoch %d", t.To, t.Epoch)
	}
	fmt.Fprintf(&b, ", %s", t.Status)
	if t.RetryCount > 0 {
		fmt.Fprintf(&b, ", retry %d", t.RetryCount)
	}
	if t.Why != "" {
		b.WriteString(": " + t.Why)
	}
	return b.String()
}

func triggerText(trigger api.FailoverTrigger) string {
	switch trigger {
	case api.TriggerLost:
		return "the agent was lost"
	case api.TriggerHubLost:
		return "its hub was lost, and it did not come back at another"
	case api.TriggerManual:
		return "a person asked for it"
	case "":
		return "not known"
	}
	return string(trigger)
}

// after is how long after the loss was noticed something happened.
func after(r *api.FailoverRecord, at *time.Time) string {
	if at == nil {
		return ""
	}
	return "after " + app.Roughly(max(0, at.Sub(r.NoticedAt)))
}

func failOverCommand(a *app.App) *cobra.Command {
	var request api.FailoverRequest
	var wait time.Duration
	command := a.Call(&cobra.Command{
		Use:     "failover ID",
		Short:   "Move an agent's work and roles to others",
		Example: `  mainstay agent failover agent-1 --to agent-2 --reason "its disk is old" --wait`,
		Args:    app.Exactly("an agent's id"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		accepted, err := s.Agents.FailOver(ctx, args[0], request)
		if err != nil {
			return err
		}
		if wait == 0 {
			return s.Sayf("Failover %[1]s is asked for. See it with: mainstay failover get %[1]s\n", accepted.FailoverID)
		}
		fmt.Fprintf(a.Stderr, "Failover %s is asked for.\n", accepted.FailoverID)
		record, err := waitForFailover(ctx, s.Client, accepted.FailoverID, wait)
		if err != nil {
			return err
		}
		if err := s.Print(func() error { return printFailover(a, record) }); err != nil {
			return err
		}
		return unfinished(record, wait)
	})
	flags := command.Flags()
	flags.StringVar(&request.TargetAgentID, "to", "",
		"the agent that takes over (default: the cluster's strategy selects)")
	flags.StringSliceVar(&request.RequiredCapabilities, "capability", nil,
		"a capability that the agent that takes over must have; repeat it, or separate several by commas")
	flags.StringSliceVar(&request.Affinity, "affinity", nil,
		"an agent, group or zone that comes first; repeat it, or separate several by commas")
	flags.StringVar(&request.Reason, "reason", "", "why; kept in the failover's record")
	app.WaitFlag(command, &wait, "the failover has ended")
	return command
}

// waitForFailover returns a failover as soon as it has ended, or as it stands when the time is over.
func waitForFailover(
	ctx context.Context, c *client.Client, id string, wait time.Duration,
) (*api.FailoverRecord, error) {
	var record *api.FailoverRecord
	begun := false
	err := app.Await(ctx, wait, func() (_ bool, err error) {
		record, err = c.Failovers.Get(ctx, id)
		begun = err == nil
		if client.IsNotFound(err) {
			err = nil
		}
		return begun && record.CompletedAt != nil, err
	})
	if err == nil && !begun {
		err = app.IncompleteError("failover %s has not begun after %s; it is asked for, and begins when a worker runs",
			id, wait)
	}
	return record, err
}

// unfinished is the error for a failover that was waited for and did not succeed.
func unfinished(r *api.FailoverRecord, waited time.Duration) error {
	switch r.Status {
	case api.FailoverSucceeded:
		return nil
	case api.FailoverRunning:
		return app.IncompleteError("failover %s still runs after %s; it goes on by itself", r.ID, waited)
	}
	return app.IncompleteError("failover %s ended as %s", r.ID, r.Status)
}
