package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func statusCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show how a process of the control plane stands",
		Long: `Show how the process of the control plane behind --server stands: whether it reaches Temporal and, of a hub, whether
its own lease is fresh. An unhealthy one ends the command with exit code 4.`,
		Example: "  mainstay status --server http://hub-1:8080",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			health, err := client.Health(c.Context())
			if err != nil {
				return err
			}
			if err := a.Print(client.Answer, func() error { return printStatus(a, client.URL(), health) }); err != nil {
				return err
			}
			if health.Status != "healthy" {
				return app.WithExit(app.ExitUnreachable, fmt.Errorf("%s is %s", client.URL(), health.Status))
			}
			return nil
		},
	}
	a.ServerFlag(command)
	a.OutputFlag(command)
	return command
}

func printStatus(a *app.App, base string, h *api.Health) error {
	t := app.NewTable(a.Stdout)
	rows := [][2]string{
		{"Server", base}, {"Status", h.Status}, {"Roles", strings.Join(h.Roles, ", ")}, {"Version", h.Version},
		{"Up for", app.Roughly(time.Duration(h.UptimeSeconds) * time.Second)},
		{"Temporal", yesNo(h.MetadataStoreConnected, "answers", "does not answer")},
		{"Hub", h.HubID},
	}
	if h.LastHeartbeatSuccess != nil {
		rows = append(rows, [2]string{"Own lease", yesNo(*h.LastHeartbeatSuccess, "fresh",
			"not renewed in time: it renews no agent's lease")},
			[2]string{"Renewed", a.Ago(h.LastHeartbeat)})
	}
	rows = append(rows, [2]string{"Agents", app.Number(h.Agents)},
		[2]string{"Active leases", app.Number(h.ActiveLeases)})
	t.Facts(rows)
	return t.Flush()
}

func yesNo(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
