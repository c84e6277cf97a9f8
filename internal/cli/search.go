package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func searchCommand(a *app.App) *cobra.Command {
	command := app.Show(a, &cobra.Command{
		Use:   "search TEXT",
		Short: "Find agents, jobs, tasks, runs and all else by a name or the beginning of an id",
		Long: `Find clusters, agents, jobs, services and schedules by a part of their name, and tasks, runs, arrays, bulk
operations, failovers and drains by the beginning of their id. If there is none, what is spelt nearly so is named.
By labels, causes and the like: mainstay task list --text TEXT`,
		Example: "  mainstay search nightly",
		Args:    app.Exactly("a text"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.SearchResult, error) {
		return s.Search(ctx, args[0])
	}, printFound)
	a.ServerFlag(command)
	return command
}

func printFound(a *app.App, r *api.SearchResult) error {
	found := r.Found
	if len(found) == 0 && len(r.Near) > 0 {
		fmt.Fprintln(a.Stderr, "There is nothing of this name. Nearly so are:")
		found = r.Near
	}
	header := []string{"KIND", "NAME OR ID", "TYPE", "CLUSTER", "SEE"}
	return app.PrintTable(a, found, "There is nothing of this name.", header,
		func(f *api.Found) []any { return []any{f.Kind, f.ID, f.Type, f.Cluster, seeWith(f)} })
}

// seeWith is the command that shows what was found.
func seeWith(f *api.Found) string {
	group := f.Kind
	if group == "bulk" {
		group = "task bulk"
	}
	return "mainstay " + group + " get " + f.ID
}
