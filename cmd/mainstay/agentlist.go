package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/gateway"
)

func (a *app) agentCommand() *cobra.Command {
	command := &cobra.Command{Use: "agent", Short: "Run an agent; list and show agents; move their work, drain them"}
	command.AddCommand(a.agentRunCommand(), a.agentListCommand(), a.agentGetCommand(), a.agentFailoverCommand(), a.agentHealthCommand(), a.agentDrainCommand(), a.agentMaintenanceCommand(),
		a.agentReduceLoadCommand(), a.agentRestoreLoadCommand())
	return command
}

func (a *app) agentListCommand() *cobra.Command {
	var cluster, status, zone, group, capability string
	command := &cobra.Command{
		Use: "list", Short: "List agents", Example: "  mainstay agent list --cluster default --status online", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			query := queryOf("cluster", cluster, "status", status, "zone", zone, "group", group, "capability", capability)
			return printList(c, a, agentsPath, "agents", query, 0, a.printAgents)
		},
	}
	a.serverFlag(command)
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&status, "status", "", "only with this status: online, suspect, offline, draining or maintenance")
	flags.StringVar(&zone, "zone", "", "only in this zone")
	flags.StringVar(&group, "group", "", "only of this group")
	flags.StringVar(&capability, "capability", "", "only with this capability")
	a.outputFlag(command)
	return command
}

func (a *app) printAgents(agents []gateway.Agent) error {
	if len(agents) == 0 {
		_, err := fmt.Fprintln(a.stdout, "There are no such agents.")
		return err
	}
	t := newTable(a.stdout, "AGENT", "CLUSTER", "STATUS", "HEALTH", "ROLE", "TASKS", "EPOCH", "CPU", "HOST", "PID", "LAST HEARTBEAT")
	for i := range agents {
		g := &agents[i]
		t.row(g.ID, g.Cluster, string(g.Status), string(g.Health), string(g.Role), load(g), fmt.Sprint(g.Epoch), percent(g.CPUPercent), g.Host, pidText(g.PID), a.ago(g.LastHeartbeat))
	}
	return t.flush()
}

// load is how many of its slots an agent uses.
func load(g *gateway.Agent) string {
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
func healthText(g *gateway.Agent) string {
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

func (a *app) agentGetCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "get ID", Short: "Show an agent", Example: "  mainstay agent get agent-1", Args: exactly("an agent's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var g gateway.Agent
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(agentsPath, args[0]), 0, nil, &g)
			if err != nil {
				return err
			}
			return a.print(raw, func() error { return a.printAgent(&g) })
		},
	}
	a.serverFlag(command)
	a.outputFlag(command)
	return command
}

func (a *app) printAgent(g *gateway.Agent) error {
	t := newTable(a.stdout)
	status := string(g.Status)
	if since := a.ago(g.StatusSince); since != "" {
		status += ", since " + since
	}
	for _, line := range [][2]string{
		{"Agent", g.ID}, {"Cluster", g.Cluster}, {"Status", status}, {"Reason", g.StatusReason}, {"Health", healthText(g)}, {"Role", string(g.Role)},
		{"Epoch", fmt.Sprint(g.Epoch)}, {"Instance", g.InstanceID}, {"Tasks", load(g)}, {"Load", a.reductionText(g)}, {"Targets", strings.Join(g.Targets, ", ")},
		{"Completed", number(g.Completed)}, {"Failed", number(g.Failed)}, {"CPU", percent(g.CPUPercent)}, {"Memory", percent(g.MemoryPercent)},
		{"Task types", strings.Join(g.TaskTypes, ", ")}, {"Capabilities", strings.Join(g.Capabilities, ", ")},
		{"Host", g.Host}, {"PID", pidText(g.PID)}, {"Zone", g.Zone}, {"Group", g.Group}, {"Version", g.Version}, {"Hub", g.Hub},
		{"Metadata", labelText(g.Metadata)}, {"Joined", a.ago(g.JoinedAt)}, {"Last heartbeat", a.ago(g.LastHeartbeat)},
	} {
		if line[1] != "" {
			t.row(line[0], line[1])
		}
	}
	return t.flush()
}
