// Package cli is the command line of the program: its root command, in which the groups are put together, and
// completion.
package cli

import (
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/agent"
	"mainstay.dev/mainstay/internal/cli/agentrun"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/array"
	"mainstay.dev/mainstay/internal/cli/cluster"
	"mainstay.dev/mainstay/internal/cli/event"
	"mainstay.dev/mainstay/internal/cli/healing"
	"mainstay.dev/mainstay/internal/cli/inbound"
	"mainstay.dev/mainstay/internal/cli/job"
	"mainstay.dev/mainstay/internal/cli/mcp"
	"mainstay.dev/mainstay/internal/cli/run"
	"mainstay.dev/mainstay/internal/cli/schedule"
	"mainstay.dev/mainstay/internal/cli/service"
	"mainstay.dev/mainstay/internal/cli/task"
	"mainstay.dev/mainstay/internal/cli/token"
	library "mainstay.dev/sdk/agent"
)

// Main runs this process's command line and returns its exit code. version is the program's.
func Main(version string) int {
	library.HideEnvironment()
	a := app.New(version)
	ctx, stop := a.Signals()
	defer stop()
	return a.Execute(ctx, rootCommand(a), os.Args[1:])
}

func rootCommand(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "mainstay",
		Short: "Durable control plane for fleets of remote agents",
		Long: `Mainstay keeps a fleet of remote agents doing its work: tasks are delivered durably, the loss of an agent is
noticed in about a second, and its work moves to another.

Begin with "mainstay dev", which runs everything on this machine, or "mainstay demo", which shows it at work.

Of a flag that takes one value and is given twice, the last counts.

` + app.ExitCodeHelp(),
	}
	agents, clusters := agent.Command(a), cluster.Command(a)
	agents.AddCommand(agentrun.Command(a), agent.ConformCommand(a))
	clusters.AddCommand(agent.ClusterCommands(a)...)
	root.AddCommand(serverCommands(a)...)
	root.AddCommand(
		agents, agent.FailoverCommand(a), agent.DrainCommand(a),
		clusters, cluster.QueueCommand(a), cluster.ScalingCommand(a), cluster.SpawnerCommand(a),
		healing.Command(a),
		task.Command(a), array.Command(a), job.Command(a), service.Command(a), run.Command(a), schedule.Command(a),
		event.Command(a),
		token.Command(a), mcp.Command(a), overviewCommand(a), searchCommand(a), statusCommand(a),
		versionCommand(a))
	root.AddCommand(inbound.Commands(a)...)
	addCompletion(a, root)
	return root
}

func versionCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mainstay version -o json",
		Args:    app.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return a.Print(map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform},
				func() error {
					return a.Sayf("mainstay %s (%s, %s)\n", a.Version, runtime.Version(), platform)
				})
		},
	}
	a.OutputFlag(command)
	return command
}
