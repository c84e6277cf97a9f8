package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/httpapi"
)

func (a *app) statusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show how a process of the control plane stands",
		Long: `Show how the process of the control plane behind --server stands: whether it reaches Temporal and, of a hub, whether
its own lease is fresh. An unhealthy one ends the command with exit code 4.`,
		Example: "  mainstay status --server http://hub-1:8080",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			health, raw, err := client.health(c)
			if err != nil {
				return err
			}
			if err := a.print(raw, func() error { return a.printStatus(client.base, health) }); err != nil {
				return err
			}
			if health.Status != "healthy" {
				return withExit(exitUnreachable, fmt.Errorf("%s is %s", client.base, health.Status))
			}
			return nil
		},
	}
	a.serverFlag(command)
	a.outputFlag(command)
	return command
}

// health asks /health, which answers an unhealthy process with 503 and the same body.
func (c *apiClient) health(command *cobra.Command) (*httpapi.Health, json.RawMessage, error) {
	request, err := c.request(command.Context(), http.MethodGet, "/health", nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, c.unreachable(command.Context(), err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, nil, c.unreachable(command.Context(), err)
	}
	health := &httpapi.Health{}
	if json.Unmarshal(data, health) != nil || health.Status != "healthy" && health.Status != "unhealthy" {
		return nil, nil, c.refused(response.StatusCode, data)
	}
	return health, data, nil
}

func (a *app) printStatus(base string, h *httpapi.Health) error {
	t := newTable(a.stdout)
	rows := [][2]string{
		{"Server", base}, {"Status", h.Status}, {"Roles", strings.Join(h.Roles, ", ")}, {"Version", h.Version},
		{"Up for", roughly(time.Duration(h.UptimeSeconds) * time.Second)}, {"Temporal", yesNo(h.MetadataStoreConnected, "answers", "does not answer")},
		{"Hub", h.HubID},
	}
	if h.LastHeartbeatSuccess != nil {
		rows = append(rows, [2]string{"Own lease", yesNo(*h.LastHeartbeatSuccess, "fresh", "not renewed in time: it renews no agent's lease")},
			[2]string{"Renewed", a.ago(h.LastHeartbeat)})
	}
	rows = append(rows, [2]string{"Agents", number(h.Agents)}, [2]string{"Active leases", number(h.ActiveLeases)})
	t.facts(rows)
	return t.flush()
}

func yesNo(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
