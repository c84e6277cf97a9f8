package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// scaleWait is how long --wait may take by default.
const scaleWait = 5 * time.Minute

func scaleCommand(a *app.App) *cobra.Command {
	var to, least, most int
	var wait bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "scale NAME",
		Short: "Say how many agents a cluster is to have",
		Long: `Say how many agents a cluster is to have. Agents are started or stopped by a spawner at once; one that is to stop
finishes its work first, and only agents that a spawner started are stopped. Where scaling was off, it is manual from then
on: the number is kept. In mode auto, the rules go on from there.`,
		Example: "  mainstay cluster scale builders --to 5\n  mainstay cluster scale builders --min 2 --max 20",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			given := c.Flags().Changed
			r := api.ScaleRequest{Desired: when(given("to"), to), Min: when(given("min"), least),
				Max: when(given("max"), most)}
			if r == (api.ScaleRequest{}) {
				return app.UsageError("give --to, --min or --max")
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			status, err := client.Scale(c.Context(), args[0], r)
			if err != nil {
				return err
			}
			if wait && r.Desired != nil {
				if status, err = awaitScaled(c.Context(), client.Client, args[0], timeout); err != nil {
					return err
				}
			}
			return printScaling(a, client.Answer, status)
		},
	}
	flags := command.Flags()
	flags.IntVar(&to, "to", 0, "as many agents are kept")
	flags.IntVar(&least, "min", 0, "never fewer")
	flags.IntVar(&most, "max", 0, "never more")
	flags.BoolVar(&wait, "wait", false, "return when there are so many")
	flags.DurationVar(&timeout, "timeout", scaleWait, "how long --wait may take")
	a.OutputFlag(command)
	return command
}

// awaitScaled looks until the cluster has as many agents as it is to have, and none is on its way.
func awaitScaled(
	ctx context.Context, c *client.Client, cluster string, timeout time.Duration,
) (*api.ScalingStatus, error) {
	deadline := time.Now().Add(timeout)
	for {
		status, err := c.Scaling(ctx, cluster)
		if err != nil {
			return nil, err
		}
		running := false
		for i := range status.Actions {
			running = running || status.Actions[i].Status == fleet.ScalingRunning
		}
		if status.Current == status.Target && !running && status.Blocked == nil {
			return status, nil
		}
		if time.Now().After(deadline) {
			why := ""
			if status.Blocked != nil {
				why = ": " + status.Blocked.Reason
			}
			return nil, fmt.Errorf("the cluster has %d of %d agents after %s%s", status.Current, status.Target, timeout,
				why)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func statusCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use: "scaling NAME", Short: "Show how a cluster's number of agents is kept, and what was done about it",
		Example: "  mainstay cluster scaling builders", Args: app.Exactly("a cluster's name"),
	}, (*client.Client).Scaling, printScaling)
}

func printScaling(a *app.App, raw json.RawMessage, s *api.ScalingStatus) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
		t.Facts([][2]string{
			{"Cluster", s.Cluster}, {"Scaling", scalingModeText(s)}, {"Agents", scalingCounts(s)},
			{"Waiting", waitingText(s.Queue)},
			{"Now", scalingNow(a, s.Decision)}, {"Blocked", evaluationText(a, s.Blocked)},
			{"Stuck", evaluationText(a, s.Stuck)},
			{"Last started", a.Ago(s.LastUp)}, {"Last stopped", a.Ago(s.LastDown)}, {"Next look", nextLook(a, s)},
			{"Rules", rulesText(&s.Settings)}, {"Spawners", spawnersText(a, s)},
		})
		if err := t.Flush(); err != nil || len(s.Actions) == 0 {
			return err
		}
		fmt.Fprintln(a.Stdout)
		return printScalings(a, s.Actions)
	})
}

func scalingModeText(s *api.ScalingStatus) string {
	switch s.Mode {
	case fleet.ScalingManual:
		return "manual: as many agents as desired are kept"
	case fleet.ScalingAuto:
		return fmt.Sprintf("auto: between %d and %d agents", s.Min, s.Max)
	}
	return "off; turn it on with: mainstay cluster scale " + s.Cluster +
		" --to N, or mainstay cluster update " + s.Cluster + " --scaling auto"
}

func scalingCounts(s *api.ScalingStatus) string {
	text := fmt.Sprintf("%d, of which %d by spawners", s.Current, s.Spawned)
	if s.Mode != fleet.ScalingOff {
		text += fmt.Sprintf("; %d wanted", s.Target)
	}
	return text
}

func waitingText(queue *int64) string {
	switch {
	case queue == nil:
		return ""
	case *queue == 1:
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", *queue)
}

func scalingNow(a *app.App, d *api.ScalingDecision) string {
	if d == nil {
		return ""
	}
	text := d.Reason
	if d.Change != fleet.ScaleNone {
		text = fmt.Sprintf("%s %d: %s", d.Change, d.Count, d.Reason)
	}
	if d.NextAt != nil {
		text += " (until " + clockText(a, *d.NextAt) + ")"
	}
	return text
}

func evaluationText(a *app.App, e *api.Evaluation) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("since %s, %d times: %s; next try %s", clockText(a, e.Since), e.Failures, e.Reason,
		clockText(a, e.NextAt))
}

func nextLook(a *app.App, s *api.ScalingStatus) string {
	switch {
	case s.Paused:
		return `the schedule "scaling" is paused in Temporal: the rules do not act`
	case s.NextCheck != nil:
		return clockText(a, *s.NextCheck)
	}
	return ""
}

func rulesText(s *fleet.ScalingPolicy) string {
	if s.Mode != fleet.ScalingAuto {
		return ""
	}
	up, down := s.ScaleUp, s.ScaleDown
	each := ""
	if s.QueueMeasure == fleet.QueuePerAgent {
		each = " for each agent"
	}
	return fmt.Sprintf(
		"%d more when over %d tasks wait%s or the cpu is over %.0f %%, at most every %s; %d fewer when under %d wait%s and idle for %s, at most every %s",
		up.Increment, *up.QueueThreshold, each, up.CPUThreshold, up.Cooldown,
		down.Decrement, *down.QueueThreshold, each, down.IdleTimeout, down.Cooldown)
}

func spawnersText(a *app.App, s *api.ScalingStatus) string {
	if s.Mode == fleet.ScalingOff {
		return ""
	}
	if len(s.Spawners) == 0 {
		return "none is there; start one with: mainstay serve --roles spawner"
	}
	names := make([]string, len(s.Spawners))
	for i, spawner := range s.Spawners {
		names[i] = spawner.Name + " (" + a.Ago(&spawner.LastSeen) + ")"
	}
	return strings.Join(names, ", ")
}

// when is the value of a flag that was given, else nil.
func when[T any](given bool, value T) *T {
	if !given {
		return nil
	}
	return &value
}
