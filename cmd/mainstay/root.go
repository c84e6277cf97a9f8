package main

import (
	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
)

func rootCommand(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "mainstay",
		Short: "Durable control plane for fleets of remote agents",
		Long: `Mainstay keeps a fleet of remote agents doing its work: tasks are delivered durably, the loss of an agent is noticed
in about a second, and its work moves to another.

Begin with "mainstay dev", which runs everything on this machine, or "mainstay demo", which shows it at work.

` + app.ExitCodeHelp(),
	}
	root.AddCommand(devCommand(a), demoCommand(a), serveCommand(a), agentCommand(a), taskCommand(a), scheduleCommand(a), overviewCommand(a), clusterCommand(a), queueCommand(a), eventsCommand(a), failoverCommand(a), drainCommand(a), tokenCommand(a), scalingCommand(a), healingCommand(a), benchCommand(a), statusCommand(a), configCommand(a), openapiCommand(a), versionCommand(a))
	addCompletion(a, root)
	return root
}
