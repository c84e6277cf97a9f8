package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func releaseBrakeCommand(a *app.App) *cobra.Command {
	var request api.ReasonRequest
	command := &cobra.Command{
		Use:   "release-brake NAME",
		Short: "Say that agents that vanished at once are really gone",
		Long: `Say that agents that vanished at once are really gone. When a large share of a cluster's agents vanishes within
seconds, the network is to be suspected and not the agents; so their failovers wait until the agents are back, or until
you are sure that they are not and release the brake.`,
		Example: `  mainstay cluster release-brake default --reason "the rack has no power"`,
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			if err := client.ReleaseBrake(c.Context(), args[0], request.Reason); err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "The brake of cluster %s is released.\n", args[0])
				return err
			})
		},
	}
	command.Flags().StringVar(&request.Reason, "reason", "", "why; kept in the history")
	a.OutputFlag(command)
	return command
}
