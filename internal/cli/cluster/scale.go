package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// scaleWait is how long --wait may take by default.
const scaleWait = 5 * time.Minute

func scaleCommand(r *app.Resource[client.Clusters]) *cobra.Command {
	var to, least, most int
	var wait bool
	var timeout time.Duration
	var command *cobra.Command
	command = app.Show(r.App, &cobra.Command{
		Use:   "scale NAME [COUNT]",
		Short: "Say how many agents a cluster is to have",
		Long: `Say how many agents a cluster is to have. Agents are started or stopped by a spawner at once; one that is to
stop finishes its work first, and only agents that a spawner started are stopped. Where scaling was off, it is
manual from then on: the number is kept. In mode auto, the rules go on from there.`,
		Example: "  mainstay cluster scale builders 5\n  mainstay cluster scale builders --min 2 --max 20",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return app.Exactly("a cluster's name")(c, args)
			}
			if c.Flags().Changed("to") {
				return app.UsageError("give COUNT or --to, not both")
			}
			return app.WithExit(app.ExitUsage, c.Flags().Set("to", args[1]))
		},
	}, func(ctx context.Context, s *client.Client, args []string) (*api.ScalingStatus, error) {
		given := command.Flags().Changed
		r := api.ScaleRequest{
			Desired: when(given("to"), to), Min: when(given("min"), least), Max: when(given("max"), most),
		}
		if r == (api.ScaleRequest{}) {
			return nil, app.UsageError("say how many, or give --min or --max")
		}
		status, err := s.Clusters.Scale(ctx, args[0], r)
		if err == nil && wait && r.Desired != nil {
			return awaitScaled(ctx, s, args[0], timeout)
		}
		return status, err
	}, printScaling)
	flags := command.Flags()
	flags.IntVar(&to, "to", 0, "the same as COUNT")
	flags.IntVar(&least, "min", 0, "never fewer")
	flags.IntVar(&most, "max", 0, "never more")
	app.Bounded[api.ScaleRequest](flags, map[string]string{"to": "desired", "min": "min", "max": "max"})
	flags.BoolVar(&wait, "wait", false, "return when there are so many")
	flags.DurationVar(&timeout, "timeout", scaleWait, "how long --wait may take")
	return command
}

func spawnCommand(r *app.Resource[client.Clusters]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use: "spawn NAME", Short: "Start one more agent of a cluster",
		Long: `Start one more agent of a cluster, by its spawner. Scaling keeps one more from then on; where it is off,
nobody does. End an agent that a spawner started with mainstay agent terminate.`,
		Example: "  mainstay cluster spawn builders",
	}, app.ReasonFlag("why, for the record"), client.Clusters.Spawn, func(_ string, s *api.ScalingAccepted) string {
		return fmt.Sprintf("Agent %s is being started. See it with: mainstay scaling get %s", s.AgentID, s.ScalingID)
	})
}

// awaitScaled looks until the cluster has as many agents as it is to have, and none is on its way.
func awaitScaled(
	ctx context.Context, c *client.Client, cluster string, timeout time.Duration,
) (*api.ScalingStatus, error) {
	var status *api.ScalingStatus
	scaled := false
	err := app.Await(ctx, timeout, func() (_ bool, err error) {
		if status, err = c.Clusters.Scaling(ctx, cluster); err != nil {
			return false, err
		}
		running := slices.ContainsFunc(status.Actions,
			func(r api.ScalingRecord) bool { return r.Status == api.ScalingRunning })
		scaled = status.Current == status.Target && !running && status.Blocked == nil
		return scaled, nil
	})
	if err != nil || scaled {
		return status, err
	}
	why := ""
	if status.Blocked != nil {
		why = ": " + status.Blocked.Reason
	}
	return nil, fmt.Errorf("the cluster has %d of %d agents after %s%s", status.Current, status.Target, timeout, why)
}

func printScaling(a *app.App, s *api.ScalingStatus) error {
	err := a.Facts([][2]any{
		{"Cluster", s.Cluster}, {"Scaling", scalingModeText(s)}, {"Agents", scalingCounts(s)},
		{"Waiting", waitingText(s.Queue)}, {"Now", scalingNow(a, s.Decision)},
		{"Rollout", rolloutText(s)}, {"Blocked", evaluationText(a, s.Blocked)},
		{"Stuck", evaluationText(a, s.Stuck)}, {"Last started", s.LastUp}, {"Last stopped", s.LastDown},
		{"Next look", nextLook(a, s)}, {"Rules", rulesText(&s.Settings)}, {"Spawners", spawnersText(a, s)},
	})
	if err != nil || len(s.Actions) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	return printScalings(a, s.Actions)
}

func rolloutText(s *api.ScalingStatus) string {
	r := s.Rollout
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d %s", r.Number, r.Status)
	switch r.Status {
	case api.RolloutRunning:
		text += fmt.Sprintf(": %d healthy, %s of the former settings left", r.Healthy, api.Count(r.Left, "agent"))
	case api.RolloutWaiting:
		text += ": the canaries are healthy: let the others follow with mainstay scaling rollout promote " + s.Cluster
	}
	if r.Reason != "" {
		text += "; " + r.Reason
	}
	return text
}

func scalingModeText(s *api.ScalingStatus) string {
	switch s.Mode {
	case api.ScalingManual:
		return "manual: as many agents as desired are kept"
	case api.ScalingAuto:
		return fmt.Sprintf("auto: between %d and %d agents", s.Min, s.Max)
	}
	return "off; turn it on with: mainstay cluster scale " + s.Cluster +
		" --to N, or mainstay cluster update " + s.Cluster + " --scaling auto"
}

func scalingCounts(s *api.ScalingStatus) string {
	text := fmt.Sprintf("%d, of which %d by spawners", s.Current, s.Spawned)
	if s.Mode != api.ScalingOff {
		text += fmt.Sprintf("; %d wanted", s.Target)
	}
	return text
}

func waitingText(queue *int64) string {
	if queue == nil {
		return ""
	}
	return api.Count(int(*queue), "task")
}

func scalingNow(a *app.App, d *api.ScalingDecision) string {
	if d == nil {
		return ""
	}
	text := d.Reason
	if d.Change != api.ScaleNone {
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
	return fmt.Sprintf("since %s, tried %s: %s; next try %s", clockText(a, e.Since), api.Count(e.Failures, "time"),
		e.Reason, clockText(a, e.NextAt))
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

func rulesText(s *api.ScalingPolicy) string {
	if s.Mode != api.ScalingAuto {
		return ""
	}
	up, down := s.ScaleUp, s.ScaleDown
	each := ""
	if s.QueueMeasure == api.QueuePerAgent {
		each = " for each agent"
	}
	return fmt.Sprintf("%d more when over %d tasks wait%s or the cpu is over %.0f %%, at most every %s; "+
		"%d fewer when under %d wait%s and idle for %s, at most every %s",
		up.Increment, *up.QueueThreshold, each, up.CPUThreshold, up.Cooldown,
		down.Decrement, *down.QueueThreshold, each, down.IdleTimeout, down.Cooldown)
}

func spawnersText(a *app.App, s *api.ScalingStatus) string {
	if s.Mode == api.ScalingOff {
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

// ScalingCommand is the group of what scaling did.
func ScalingCommand(a *app.App) *cobra.Command {
	r, clusters := scalings(a), resource(a)
	rollout := &cobra.Command{Use: "rollout", Short: "Promote or revert new settings of agents"}
	decide := func(
		verb, short string, do func(client.Clusters, context.Context, string, string) (*api.ScalingStatus, error),
	) {
		rollout.AddCommand(app.Do(clusters, &cobra.Command{
			Use: verb + " CLUSTER", Short: short, Example: "  mainstay scaling rollout " + verb + ` default --reason "…"`,
		}, app.ReasonFlag("why, for the event and the rollout"), do, printScaling))
	}
	decide("promote", "Let all agents of a cluster follow its healthy canaries", client.Clusters.PromoteRollout)
	decide("revert", "Put the settings before the newest rollout in force again, without canaries",
		client.Clusters.RevertRollout)
	return a.GroupOf(&cobra.Command{Use: "scaling",
		Short: "See which agents scaling started and stopped; steer it with `mainstay cluster scale`"},
		app.List(r, &cobra.Command{
			Use: "list", Short: "List what scaling has done, newest first",
			Example: "  mainstay scaling list --cluster default",
		}, app.ClusterFlag, client.Scalings.List, printScalings),
		app.Get(r, &cobra.Command{
			Use: "get ID", Short: "Show one action of scaling, agent by agent", Example: "  mainstay scaling get default:7",
		}, client.Scalings.Get, printScalingRecord),
		rollout)
}

// SpawnerCommand is the group of spawners.
func SpawnerCommand(a *app.App) *cobra.Command {
	return a.GroupOf(&cobra.Command{Use: "spawner", Short: "See who starts and stops agents"},
		a.Watched(app.ListAll(scalings(a), &cobra.Command{
			Use: "list", Short: "List spawners with their platform, health and capacity",
			Example: "  mainstay spawner list",
		}, nil, app.All(client.Scalings.Spawners), printSpawners)))
}

func scalings(a *app.App) *app.Resource[client.Scalings] {
	return &app.Resource[client.Scalings]{App: a, Of: func(c *client.Client) client.Scalings { return c.Scalings },
		ID: "an action's id"}
}

func printSpawners(a *app.App, spawners []api.Spawner) error {
	header := []string{"SPAWNER", "PLATFORM", "HEALTH", "AGENTS", "CORES", "MEMORY", "LAST SEEN", "PROBLEM"}
	none := "No spawner is there; start one with: mainstay serve --roles spawner"
	return app.PrintTable(a, spawners, none, header, func(s *api.Spawner) []any {
		agents, cores, memory := "", "", ""
		if s.Health != api.SpawnerUnknown {
			agents = strconv.Itoa(s.Agents)
		}
		if s.MaxAgents > 0 {
			agents += "/" + strconv.Itoa(s.MaxAgents)
		}
		if s.CPUs > 0 {
			cores = strconv.Itoa(s.CPUs)
		}
		if s.MemoryBytes > 0 {
			memory = fmt.Sprintf("%d MiB", s.MemoryBytes>>20)
		}
		return []any{s.Name, s.Platform, s.Health, agents, cores, memory, s.LastSeen, s.Problem}
	})
}

func printScalings(a *app.App, records []api.ScalingRecord) error {
	header := []string{"ACTION", "CHANGE", "STATUS", "AGENTS", "STARTED", "TOOK", "REASON"}
	return app.PrintTable(a, records, "Scaling has done nothing.", header, func(r *api.ScalingRecord) []any {
		return []any{r.ID, fmt.Sprintf("%s %d", r.Change, len(r.Agents)), r.Status,
			fmt.Sprintf("%d → %d", r.From, r.To), r.StartedAt, app.Took(&r.StartedAt, r.CompletedAt), r.Reason}
	})
}

func printScalingRecord(a *app.App, r *api.ScalingRecord) error {
	spawner := r.Spawner
	if r.Platform != "" {
		spawner += " (" + string(r.Platform) + ")"
	}
	err := a.Facts([][2]any{
		{"Action", r.ID}, {"Cluster", r.Cluster},
		{"Change", fmt.Sprintf("%s, from %d to %d agents", r.Change, r.From, r.To)}, {"Status", r.Status},
		{"Error", r.Error}, {"Rule", r.Rule}, {"Reason", r.Reason}, {"Spawner", spawner}, {"Drain", r.Drain},
		{"Started", r.StartedAt}, {"Took", app.Took(&r.StartedAt, r.CompletedAt)},
	})
	if err != nil {
		return err
	}
	header := []string{"AGENT", "STATUS", "SPAWNER", "HANDLE", "HOST", ""}
	return app.PrintBelow(a, r.Agents, header, func(g *api.ScaledAgent) []any {
		return []any{g.AgentID, g.Status, g.Spawner, g.Handle, g.Host, g.Error}
	})
}

// clockText is a time of today, or with its date.
func clockText(a *app.App, at time.Time) string {
	at = at.UTC()
	if now := a.Now().UTC(); at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return app.Clock(at)
	}
	return at.Format("2006-01-02 15:04:05Z")
}
