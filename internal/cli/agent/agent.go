// Package agent has the commands that list agents, move their work and drain them, and those that show failovers and
// drains.
package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// agents are agents as the command line speaks of them.
func agents(a *app.App) *app.Resource[client.Agents] {
	return &app.Resource[client.Agents]{App: a, Of: func(c *client.Client) client.Agents { return c.Agents },
		Arg: "ID", ID: "an agent's id", Title: "Agent", Reason: "why; shown with the agent"}
}

// Command is the group of agents.
func Command(a *app.App) *cobra.Command {
	r := agents(a)
	command := &cobra.Command{Use: "agent", Short: "Run an agent; list and show agents; move their work, drain them"}
	command.AddCommand(
		a.Watched(app.ListAll(r, &cobra.Command{
			Use: "list", Short: "List agents",
			Example: "  mainstay agent list --cluster default --status online\n" +
				"  mainstay agent list --live --zone eu-1 --capability gpu --health healthy,degraded\n" +
				"  mainstay agent list --state busy --full",
		}, listFlags, func(agents client.Agents, q agentQuery) *client.List[api.Agent] {
			q.Health = strings.Join(q.levels, ",")
			return agents.List(q.AgentQuery)
		}, printAgents)),
		app.Get(r, &cobra.Command{
			Use: "get ID", Short: "Show an agent", Example: "  mainstay agent get agent-1",
		}, func(agents client.Agents, ctx context.Context, id string) (*api.Agent, error) {
			return agents.Get(ctx, id, true)
		}, printAgent),
		app.Get(r, &cobra.Command{
			Use: "health ID", Short: "Show how well an agent does its work, and what that is made of",
			Example: "  mainstay agent health agent-1",
		}, client.Agents.Health, printHealth),
		failOverCommand(a), takeOutCommand(a), maintenanceCommand(r), reduceLoadCommand(r),
		app.Get(r, &cobra.Command{
			Use: "restore-load ID", Short: "Give an agent all its slots back, at once",
			Example: "  mainstay agent restore-load agent-1",
		}, client.Agents.RestoreLoad, printLoad),
		app.Tell(r, &cobra.Command{
			Use: "terminate ID", Short: "Drain and stop an agent that a spawner started",
			Long: `Drain and stop an agent that a spawner started. Scaling keeps one fewer from then on, but never fewer
than min_agents, nor none: then another is started in its place.`,
			Example: "  mainstay agent terminate builders-1f2e3d4c",
		}, app.ReasonFlag("why, for the record"), client.Agents.Terminate, func(_ string, s *api.ScalingAccepted) string {
			return fmt.Sprintf("Agent %s is being stopped. See it with: mainstay scaling get %s", s.AgentID, s.ScalingID)
		}),
		app.Delete(r, &cobra.Command{
			Use: "forget ID", Short: "Forget a lost agent that will not come back",
			Example: "  mainstay agent forget agent-1",
		}, "forgotten", "", client.Agents.Forget),
		app.Do(r, &cobra.Command{
			Use: "dead ID", Short: "Declare an agent dead, so that its fenced work moves now",
			Long: `Say that an agent's process, and all that it started, has ended for certain, as when its machine is
switched off. Nothing waits for its leases then: fenced work and roles move at once. The proof is kept in the failover's
record. Should the agent live, an event and a metric tell of it, and its results are refused.`,
			Example: `  mainstay agent dead agent-1 --proof "the rack has no power since 10:31"`,
		}, func(c *cobra.Command, r *api.DeadRequest) {
			c.Flags().StringVar(&r.Proof, "proof", "", "how you know it (required)")
			c.Flags().StringVar(&r.InstanceID, "instance", "", "the process that it is about (default: the newest)")
			_ = c.MarkFlagRequired("proof") // it exists
		}, client.Agents.Dead, printAgent))
	for _, sub := range command.Commands() { // not of the group: `agent run` has a token of another kind
		a.ServerFlag(sub)
	}
	return command
}

// agentQuery is what the flags of a list select.
type agentQuery struct {
	client.AgentQuery
	levels []string
}

func listFlags(c *cobra.Command, q *agentQuery) {
	flags := c.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: online, suspect, warning, stopping, offline, draining or maintenance")
	flags.StringVar((*string)(&q.State), "state", "",
		"only those that are ready (a slot is free), busy, draining, in maintenance, dead or unknown")
	flags.BoolVar(&q.Live, "live", false, "only those that a hub has a session of")
	flags.StringVar(&q.Zone, "zone", "", "only in this zone")
	flags.StringVar(&q.Group, "group", "", "only of this group")
	flags.StringArrayVar(&q.Capabilities, "capability", nil, "only with this capability (repeatable)")
	flags.StringVar(&q.TaskType, "type", "", "only those that handle this type of task")
	flags.StringArrayVar(&q.Metadata, "metadata", nil, "only with this metadata, as name=value (repeatable)")
	flags.StringSliceVar(&q.levels, "health", nil, "only of these levels: healthy, degraded, warning, critical, failed")
	flags.BoolVar(&q.Full, "full", false, "show what they run too; their hubs are asked")
}

func printAgents(a *app.App, agents []api.Agent) error {
	full := slices.ContainsFunc(agents, func(g api.Agent) bool { return g.CurrentTasks != nil })
	zones := slices.ContainsFunc(agents, func(g api.Agent) bool { return g.Zone != "" })
	header := []string{"AGENT", "CLUSTER", "STATUS", "HEALTH", "ROLE", "TASKS", "EPOCH", "CPU", "HOST", "PID",
		"LAST HEARTBEAT"}
	if zones {
		header = slices.Insert(header, 8, "ZONE")
	}
	if full {
		header = append(header, "STATE", "CURRENT TASKS")
	}
	return app.PrintTable(a, agents, "There are no such agents.", header, func(g *api.Agent) []any {
		cells := []any{g.ID, g.Cluster, statusText(g), g.Health, g.Role, load(g), g.Epoch, app.Percent(g.CPUPercent),
			g.Host, pidText(g.PID), g.LastHeartbeat}
		if zones {
			cells = slices.Insert(cells, 8, any(g.Zone))
		}
		if full {
			cells = append(cells, g.State, currentTasks(g, 3))
		}
		return cells
	})
}

// currentTasks names the tasks that an agent runs, the first most of them.
func currentTasks(g *api.Agent, most int) string {
	var ids []string
	for i, held := range g.CurrentTasks {
		if i == most {
			ids = append(ids, fmt.Sprintf("and %d more", len(g.CurrentTasks)-most))
			break
		}
		ids = append(ids, held.TaskID)
	}
	return strings.Join(ids, ", ")
}

// load is how many of its slots an agent uses.
func load(g *api.Agent) string {
	text := "?"
	if g.Running != nil {
		text = fmt.Sprint(*g.Running)
	}
	if g.LoadReduction != nil && g.EffectiveSlots < g.MaxTasks {
		return text + fmt.Sprintf("/%d of %d", g.EffectiveSlots, g.MaxTasks)
	}
	return text + fmt.Sprintf("/%d", g.MaxTasks)
}

// healthText is an agent's level with its score.
func healthText(g *api.Agent) string {
	if g.HealthScore == nil {
		return ""
	}
	return fmt.Sprintf("%s (%.2f)", g.Health, *g.HealthScore)
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprint(pid)
}

// statusText is an agent's status, and how it stands with its hub where the status does not say it.
func statusText(g *api.Agent) string {
	switch g.Connection {
	case "", api.Connected, api.Connection(g.Status):
		return string(g.Status)
	}
	return fmt.Sprintf("%s (%s)", g.Status, g.Connection)
}

func printAgent(a *app.App, g *api.Agent) error {
	status := statusText(g)
	if since := a.Ago(g.StatusSince); since != "" {
		status += ", since " + since
	}
	return a.Facts([][2]any{
		{"Agent", g.ID}, {"Cluster", g.Cluster}, {"Status", status}, {"Reason", g.StatusReason},
		{"State", g.State}, {"Health", healthText(g)}, {"Role", g.Role}, {"Epoch", g.Epoch},
		{"Instance", g.InstanceID}, {"Join token", g.JoinToken}, {"Tasks", load(g)},
		{"Runs", currentTasks(g, 10)}, {"Load", reductionText(a, g)}, {"Targets", g.Targets},
		{"Completed", g.Completed}, {"Failed", g.Failed}, {"CPU", usedText(g, g.CPUPercent)},
		{"Memory", usedText(g, g.MemoryPercent)}, {"Offers", offersText(g.Resources)},
		{"Task types", g.TaskTypes}, {"Capabilities", g.Capabilities},
		{"Host", g.Host}, {"Address", g.Address}, {"PID", pidText(g.PID)}, {"Zone", g.Zone}, {"Group", g.Group},
		{"Version", g.Version}, {"Hub", g.Hub},
		{"Metadata", app.LabelText(g.Metadata)}, {"Started", g.StartedAt}, {"Joined", g.JoinedAt},
		{"Last heartbeat", g.LastHeartbeat},
	})
}

// usedText is a used part of an agent's machine.
func usedText(g *api.Agent, percent *float64) string {
	if percent == nil && g.Running != nil { // the hub reports the values that it has
		return "unknown"
	}
	return app.Percent(percent)
}

// offersText lists the resources that tasks may ask for.
func offersText(r *api.Inventory) string {
	if r == nil {
		return ""
	}
	var parts []string
	add := func(value string, words ...string) {
		if value != "" {
			parts = append(parts, strings.Join(append(words, value), " "))
		}
	}
	add(r.CPU, "cpu")
	add(r.Memory, "memory")
	add(r.Disk, "disk")
	for _, d := range r.Devices {
		add(d.Memory, strings.Join(strings.Fields(fmt.Sprint(d.Kind, " ", d.Index, " ", d.Model)), " "))
	}
	add(r.Ports, "ports")
	for _, v := range r.Volumes {
		add(v.Name, "volume")
	}
	return strings.Join(parts, ", ")
}

// ClusterCommands are what the group of clusters shows of their agents.
func ClusterCommands(a *app.App) []*cobra.Command {
	r := &app.Resource[client.Clusters]{App: a, Of: func(c *client.Client) client.Clusters { return c.Clusters },
		ID: "a cluster's name"}
	return []*cobra.Command{
		a.Call(&cobra.Command{
			Use: "members NAME", Short: "List a cluster's members", Args: app.Exactly("a cluster's name"),
			Example: "  mainstay cluster members default",
		}, func(ctx context.Context, c *app.Client, args []string) error {
			return app.PrintList(ctx, c, c.Clusters.Members(args[0]), 0, printAgents)
		}),
		app.Get(r, &cobra.Command{
			Use: "health NAME", Short: "Show how well the agents of a cluster do their work",
			Example: "  mainstay cluster health default",
		}, client.Clusters.Health, printClusterHealth),
	}
}

func printClusterHealth(a *app.App, h *api.ClusterHealth) error {
	fmt.Fprintf(a.Stdout, "Cluster %s is %s; score %s\n\n", h.Cluster, h.Status, score(h.Score))
	t := app.NewTable(a.Stdout, "AGENT", "STATUS", "HEALTH", "SCORE", "WHY")
	for i := range h.Agents {
		g := &h.Agents[i]
		t.Row(g.AgentID, string(g.Status), string(g.Level), score(g.Score), worst(g))
	}
	return t.Flush()
}

func printHealth(a *app.App, h *api.AgentHealth) error {
	err := a.Facts([][2]any{{"Agent", h.AgentID}, {"Cluster", h.Cluster}, {"Status", h.Status},
		{"Health", h.Level}, {"Score", score(h.Score)}, {"Why", h.Why}})
	if err != nil || len(h.Factors) == 0 {
		return err
	}
	err = app.PrintBelow(a, h.Factors, []string{"FACTOR", "SCORE", "WEIGHT", "WHY"}, func(f *api.HealthFactor) []any {
		return []any{f.Name, score(&f.Score), f.Weight, f.Why}
	})
	if err != nil {
		return err
	}
	return app.PrintBelow(a, h.Checks, []string{"CHECK", "STATUS", "WHY"}, func(c *api.HealthCheck) []any {
		return []any{c.Name, c.Status, c.Why}
	})
}

// worst is the factor that costs an agent most.
func worst(g *api.AgentHealth) string {
	why, most := g.Why, 0.0
	for _, f := range g.Factors {
		if cost := (1 - f.Score) * f.Weight; cost > most {
			why, most = f.Why, cost
		}
	}
	return why
}

func score(s *float64) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *s)
}

func reduceLoadCommand(r *app.Resource[client.Agents]) *cobra.Command {
	return app.Do(r, &cobra.Command{
		Use:   "reduce-load ID",
		Short: "Let an agent run fewer tasks at a time",
		Long: `Let an agent run fewer tasks at a time than it has slots: half of them, unless --slots or --factor says how
many. What it runs goes on. It gets its slots back by itself, step by step, when the time is over; it stays so when
anything restarts.`,
		Example: `  mainstay agent reduce-load agent-1 --reason "the disk is slow"
  mainstay agent reduce-load agent-1 --slots 2 --for 1h
  mainstay agent reduce-load agent-1 --factor 0.25 --until-healthy`,
	}, func(c *cobra.Command, in *api.ReduceLoadRequest) {
		flags := c.Flags()
		app.CheckFirst(c, func() error {
			switch slots, factor := flags.Changed("slots"), flags.Changed("factor"); {
			case slots && factor:
				return app.UsageError("give --slots or --factor, not both")
			case factor && in.Factor == 1:
				return app.UsageError("--factor must be below 1, such as 0.5")
			}
			return nil
		})
		flags.IntVar(&in.Slots, "slots", 0, "how many tasks it may run at a time")
		flags.Float64Var(&in.Factor, "factor", 0, "this share of its slots, between 0 and 1 (default: 0.5)")
		app.Bounded[api.ReduceLoadRequest](flags, map[string]string{"slots": "slots", "factor": "factor"})
		flags.StringVar(&in.For, "for", "", "after how long it gets its slots back, for example 1h (default: 10m)")
		flags.BoolVar(&in.UntilHealthy, "until-healthy", false, "give them back earlier, once its health is good again")
		r.ReasonFlag(c, &in.Reason)
	}, client.Agents.ReduceLoad, printLoad)
}

func printLoad(a *app.App, g *api.Agent) error {
	text := reductionText(a, g)
	if text == "" {
		text = fmt.Sprintf("may use all its %d slots", g.MaxTasks)
	}
	return a.Sayf("Agent %s %s.\n", g.ID, text)
}

// reductionText says how an agent's load is reduced; empty: it is not.
func reductionText(a *app.App, g *api.Agent) string {
	r := g.LoadReduction
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("may use %d of its %d slots until %s", g.EffectiveSlots, g.MaxTasks,
		app.Clock(r.Until))
	if r.UntilHealthy {
		text += ", or until its health is good again"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}
