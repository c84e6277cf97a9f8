package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/sdk/client"
)

// GroupOf makes a group of commands that call the API.
func (a *App) GroupOf(group *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	a.ServerFlag(group)
	group.AddCommand(commands...)
	return group
}

// Call makes a command of what it does with the API.
func (a *App) Call(
	command *cobra.Command, do func(ctx context.Context, s *Client, args []string) error,
) *cobra.Command {
	command.RunE = func(c *cobra.Command, args []string) error {
		server, err := a.Client()
		if err != nil {
			return err
		}
		return do(c.Context(), server, args)
	}
	a.OutputFlag(command)
	return command
}

// Show makes a command that asks the API for one thing and prints it, as JSON or by text.
func Show[T any](
	a *App, command *cobra.Command, ask func(ctx context.Context, s *client.Client, args []string) (T, error),
	text func(*App, T) error,
) *cobra.Command {
	return a.Call(command, func(ctx context.Context, s *Client, args []string) error {
		thing, err := ask(ctx, s.Client, args)
		if err != nil {
			return err
		}
		return s.Print(func() error { return text(a, thing) })
	})
}

// PrintList prints the first items of a list, at most limit (0: all), as JSON or by text.
func PrintList[T any](
	ctx context.Context, c *Client, list *client.List[T], limit int, text func(*App, []T) error,
) error {
	items, err := list.Take(ctx, limit)
	if err != nil {
		return err
	}
	return c.Print(func() error {
		if err := text(c.app, items); err != nil {
			return err
		}
		if list.More() {
			fmt.Fprintln(c.app.Stderr, "There are more: raise --limit.")
		}
		if missing := list.Missing(); len(missing) > 0 {
			fmt.Fprintf(c.app.Stderr, "Not all is listed: no answer from cluster %s.\n", strings.Join(missing, ", "))
		}
		return nil
	})
}

// Forever is how long Await waits where only an end or a person ends it.
const Forever = 365 * 24 * time.Hour

// awaitPause is the time between two looks of Await.
const awaitPause = 200 * time.Millisecond

// Await calls look until it reports true or an error, or until wait is over. Without an error, the caller knows from
// its last look which of the two it was.
func Await(ctx context.Context, wait time.Duration, look func() (done bool, err error)) error {
	deadline := time.Now().Add(wait)
	for {
		done, err := look()
		if err != nil || done || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(awaitPause, time.Until(deadline))):
		}
	}
}
