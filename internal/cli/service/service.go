// Package service has the commands of services.
package service

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of services.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "service", Short: "Find the instances of services", Long: `Find the instances of
services. Jobs of type service or system offer them; see mainstay job`}
	return a.GroupOf(command, listCommand(a), getCommand(a))
}

func listCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use: "list", Short: "List the services, with how many instances they have", Args: app.Exactly(),
		Example: "  mainstay service list",
	}, func(ctx context.Context, c *client.Client, _ []string) ([]api.Service, error) {
		return c.Services.List(ctx)
	}, func(a *app.App, services []api.Service) error {
		header := []string{"SERVICE", "INSTANCES", "PASSING"}
		return app.PrintTable(a, services, "There are no services.", header, func(s *api.Service) []any {
			return []any{s.Name, s.Instances, s.Passing}
		})
	})
}

func getCommand(a *app.App) *cobra.Command {
	var q client.ServiceQuery
	command := app.Show(a, &cobra.Command{
		Use: "get NAME", Short: "Find the healthy instances of a service", Args: app.Exactly("a service's name"),
		Example: "  mainstay service get ranker\n  mainstay service get ranker --any --tag v2",
	}, func(ctx context.Context, s *client.Client, args []string) (*api.ServiceInstances, error) {
		return s.Services.Get(ctx, args[0], q)
	}, func(a *app.App, found *api.ServiceInstances) error {
		header := []string{"ADDRESS", "HEALTH", "JOB", "INSTANCE", "AGENT", "ZONE", "VERSION", "ROLE", "TAGS", "BEGAN"}
		none := "No instance is found. See what is offered: mainstay service list"
		if !q.Any {
			none = "No healthy instance is found. See all that run: mainstay service get " + found.Name + " --any"
		}
		return app.PrintTable(a, found.Instances, none, header, func(i *api.ServiceInstance) []any {
			return []any{i.Address, i.Health, i.Job, i.Instance, i.Agent, i.Zone, i.Version, i.Role,
				strings.Join(i.Tags, ","), i.Since}
		})
	})
	command.Flags().BoolVar(&q.Any, "any", false, "also those that are starting or failing")
	command.Flags().StringVar(&q.Tag, "tag", "", "only those with this tag")
	command.Flags().StringVar((*string)(&q.Role), "role", "", "only stable ones, or canaries: stable or canary")
	command.Flags().StringVar(&q.Zone, "zone", "", "only those of this zone")
	return command
}
