package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func statusCommand(a *app.App) *cobra.Command {
	command := a.Call(&cobra.Command{
		Use:   "status",
		Short: "Show how a process of the control plane stands",
		Long: `Show how the process of the control plane behind --server stands: whether it reaches Temporal and, of a hub, whether
its own lease is fresh. An unhealthy one ends the command with exit code 4.`,
		Example: "  mainstay status --server http://hub-1:8080",
		Args:    app.Exactly(),
	}, func(ctx context.Context, s *app.Client, _ []string) error {
		health, err := s.Health(ctx)
		if err == nil {
			err = a.Print(s.Answer, func() error { return printStatus(a, s.URL(), health) })
		}
		if err != nil || health.Status == "healthy" {
			return err
		}
		return app.WithExit(app.ExitUnreachable, fmt.Errorf("%s is %s", s.URL(), health.Status))
	})
	a.ServerFlag(command)
	return command
}

func printStatus(a *app.App, base string, h *api.Health) error {
	rows := [][2]string{
		{"Server", base}, {"Status", h.Status}, {"Roles", strings.Join(h.Roles, ", ")}, {"Version", h.Version},
		{"Up for", app.Roughly(time.Duration(h.UptimeSeconds) * time.Second)},
		{"Temporal", yesNo(h.MetadataStoreConnected, "answers", "does not answer")},
		{"Hub", h.HubID},
	}
	if h.LastHeartbeatSuccess != nil {
		fresh := yesNo(*h.LastHeartbeatSuccess, "fresh", "not renewed in time: it renews no agent's lease")
		rows = append(rows, [][2]string{{"Own lease", fresh}, {"Renewed", a.Ago(h.LastHeartbeat)}}...)
	}
	rows = append(rows, [][2]string{{"Agents", app.Number(h.Agents)}, {"Active leases", app.Number(h.ActiveLeases)}}...)
	return a.Facts(rows)
}

func yesNo(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
