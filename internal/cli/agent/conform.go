package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent/conform"
	"mainstay.dev/sdk/api"
)

// ConformCommand is `agent conform`.
func ConformCommand(a *app.App) *cobra.Command {
	var p conform.Program
	var quick, long string
	var only []string
	command := &cobra.Command{
		Use: "conform -- COMMAND…", Short: "Check an agent of your own against the agent protocol",
		Long: `Start an agent with a fake hub for each check, and tell which musts of docs/AGENT-PROTOCOL.md it keeps.

The command gets the hub's URL as HUB, the agent's id as ID and its cluster as CLUSTER. Checks of work that goes on
until it is stopped are left out where the agent does not handle the type of --long-type.`,
		Example: `  mainstay agent conform -- python3 examples/python/agent.py
  mainstay agent conform --type resize --payload '{"path": "a.png"}' --check result --check goodbye -- ./my-agent`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p.Command, p.Quick.Payload, p.Long.Payload = args, json.RawMessage(quick), json.RawMessage(long)
			if !json.Valid(p.Quick.Payload) || !json.Valid(p.Long.Payload) {
				return app.UsageError("--payload and --long-payload must be JSON")
			}
			for _, name := range only {
				if !slices.Contains(conform.Names(), name) {
					return app.UsageError("--check %s: there are %s", name, strings.Join(conform.Names(), ", "))
				}
			}
			results, failed := []conform.Result{}, 0
			conform.Run(c.Context(), p, only, func(r conform.Result) {
				results = append(results, r)
				if r.Outcome == conform.Failed {
					failed++
				}
				fmt.Fprintln(a.Storyteller(), checkText(&r))
			})
			err := c.Context().Err()
			if failed > 0 {
				err = errors.Join(err, fmt.Errorf("%d of %s failed", failed, api.Count(len(results), "check")))
			}
			return errors.Join(a.Print(results, func() error { return nil }), err)
		},
	}
	flags := command.Flags()
	flags.StringVar(&p.Quick.Type, "type", "echo", "type of a task that ends by itself at once")
	flags.StringVar(&quick, "payload", `{"a": 1}`, "its payload, as JSON")
	flags.StringVar(&p.Long.Type, "long-type", "sleep", "type of a task that goes on until it is stopped")
	flags.StringVar(&long, "long-payload", `{"seconds": 600}`, "its payload, as JSON")
	flags.StringArrayVar(&only, "check", nil, "make only this check (repeatable)")
	flags.DurationVar(&p.Patience, "patience", 15*time.Second, "how long to wait for the agent before a check fails")
	a.OutputFlag(command)
	return command
}

// checkText is one result as text.
func checkText(r *conform.Result) string {
	text := fmt.Sprintf("%s  %-15s  %s", r.Outcome, r.Check, r.Must)
	for _, problem := range r.Problems {
		text += "\n      " + problem
	}
	if r.Outcome == conform.Failed {
		text += "\n      see docs/AGENT-PROTOCOL.md" + r.Section
		if output := strings.TrimSpace(r.Output); output != "" {
			text += "\n      it printed:\n        " + strings.ReplaceAll(output, "\n", "\n        ")
		}
	}
	return text
}
