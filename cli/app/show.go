package app

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/client"
)

// Show makes a command that gets one thing by its id, its one argument, and prints it.
func Show[T any](
	a *App, command *cobra.Command, get func(*client.Client, context.Context, string) (*T, error),
	show func(*App, json.RawMessage, *T) error,
) *cobra.Command {
	command.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.Client()
		if err != nil {
			return err
		}
		thing, err := get(client.Client, c.Context(), args[0])
		if err != nil {
			return err
		}
		return show(a, client.Answer, thing)
	}
	a.OutputFlag(command)
	return command
}
