package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
	"mainstay.dev/sdk/protocol"
)

func overviewCommand(a *app.App) *cobra.Command {
	command := app.Show(a, &cobra.Command{
		Use:   "overview",
		Short: "Show whether anything is wrong, where, and since when",
		Long: `Show whether anything is wrong with the fleet: what, where, since when, why, and what can be done. It ends
with 0 whatever is wrong; a script looks at "problems" of -o json.

The fleet page, at the address of the REST API, shows the same and more in a browser.`,
		Example: "  mainstay overview\n  mainstay overview -o json",
		Args:    app.Exactly(),
	}, func(ctx context.Context, s *client.Client, _ []string) (*api.Overview, error) {
		return s.Overview(ctx)
	}, printOverview)
	a.ServerFlag(command)
	return a.Watched(command)
}

func printOverview(a *app.App, o *api.Overview) error {
	if len(o.Problems) == 0 {
		fmt.Fprintln(a.Stdout, "Nothing is wrong.")
	}
	for i := range o.Problems {
		printProblem(a, &o.Problems[i])
	}
	fmt.Fprintf(a.Stdout, "\n%s online, %d suspect, %d lost; %d of %d slots busy; %s, %d in review, %s\n\n",
		api.Count(o.Agents.Online, "agent"), o.Agents.Suspect, o.Agents.Offline, o.Agents.Running, o.Agents.Slots,
		api.Count(o.Tasks.Open, "open task"), o.Tasks.Review, api.Count(o.Tasks.DeadLetter, "dead letter"))
	if j := o.Jobs; j.Lacking+j.FailedDeployments+j.WaitingDeployments > 0 {
		fmt.Fprintf(a.Stdout, "%s lacking healthy instances, %s, %d waiting to be promoted\n\n",
			api.Count(j.Lacking, "job"), api.Count(j.FailedDeployments, "failed deployment"), j.WaitingDeployments)
	}
	waiting := map[string]int64{}
	for i := range o.Lanes {
		waiting[o.Lanes[i].Cluster] += o.Lanes[i].Depth
	}
	t := app.NewTable(a.Stdout, "CLUSTER", "STATUS", "AGENTS", "MODE", "LEADER", "WAITING")
	for i := range o.Clusters {
		c := &o.Clusters[i]
		agents := fmt.Sprintf("%d of %d", c.HealthyAgentCount, c.AgentCount)
		if c.Status == api.ClusterUnknown { // nobody could be asked
			agents = "?"
		}
		t.Row(c.Name, string(c.Status), agents, string(c.ReplicationMode), c.Leader, fmt.Sprint(waiting[c.Name]))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range o.Missing {
		fmt.Fprintf(a.Stdout, "Could not be read this time: %s\n", app.OneLine(part))
	}
	return nil
}

func printProblem(a *app.App, p *api.Problem) {
	line := fmt.Sprintf("%-8s  %s", p.Severity, app.OneLine(p.What))
	if p.Since != nil {
		line += ", since " + a.Ago(p.Since)
	}
	fmt.Fprintln(a.Stdout, line)
	for _, more := range []string{p.Why, p.Do} {
		if more != "" {
			fmt.Fprintf(a.Stdout, "          %s\n", app.OneLine(more))
		}
	}
}

func statusCommand(a *app.App) *cobra.Command {
	command := a.Call(&cobra.Command{
		Use:   "status",
		Short: "Show how a process of the control plane stands",
		Long: `Show how the process of the control plane behind --server stands: whether it reaches Temporal and, of a hub,
whether its own lease is fresh. An unhealthy one ends the command with exit code 4.`,
		Example: "  mainstay status --server http://hub-1:8080",
		Args:    app.Exactly(),
	}, func(ctx context.Context, s *app.Client, _ []string) error {
		health, err := s.Health(ctx)
		if err == nil {
			err = s.Print(func() error { return printStatus(a, protocol.ShownURL(s.URL()), health) })
		}
		if err != nil || health.Status == "healthy" {
			return err
		}
		return app.WithExit(app.ExitUnreachable, fmt.Errorf("%s is %s", protocol.ShownURL(s.URL()), health.Status))
	})
	a.ServerFlag(command)
	return command
}

func printStatus(a *app.App, base string, h *api.Health) error {
	rows := [][2]any{
		{"Server", base}, {"Status", h.Status}, {"Roles", strings.Join(h.Roles, ", ")}, {"Version", h.Version},
		{"Up for", app.Roughly(time.Duration(h.UptimeSeconds) * time.Second)},
		{"Temporal", yesNo(h.MetadataStoreConnected, "answers", "does not answer")},
		{"Hub", h.HubID},
	}
	if h.LastHeartbeatSuccess != nil {
		fresh := yesNo(*h.LastHeartbeatSuccess, "fresh", "not renewed in time: it renews no agent's lease")
		rows = append(rows, [][2]any{{"Own lease", fresh}, {"Renewed", h.LastHeartbeat}}...)
	}
	rows = append(rows, [][2]any{{"Agents", h.Agents}, {"Active leases", h.ActiveLeases}}...)
	return a.Facts(rows)
}

func yesNo(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
