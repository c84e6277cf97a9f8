package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/client"
)

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
	a *App, command *cobra.Command, ask func(ctx context.Context, s *client.Client, args []string) (*T, error),
	text func(*App, *T) error,
) *cobra.Command {
	return a.Call(command, func(ctx context.Context, s *Client, args []string) error {
		thing, err := ask(ctx, s.Client, args)
		if err != nil {
			return err
		}
		return a.Print(s.Answer, func() error { return text(a, thing) })
	})
}

// List makes a command that prints all items of a list, as JSON or by text.
func List[T any](
	a *App, command *cobra.Command, list func(s *client.Client, args []string) *client.List[T],
	text func(*App, []T) error,
) *cobra.Command {
	return a.Call(command, func(ctx context.Context, s *Client, args []string) error {
		return PrintList(ctx, a, s, list(s.Client, args), 0, text)
	})
}

// LimitedList is List with --limit.
func LimitedList[T any](
	a *App, command *cobra.Command, list func(s *client.Client) *client.List[T], text func(*App, []T) error,
) *cobra.Command {
	limit := limitFlag(command)
	return a.Call(command, func(ctx context.Context, s *Client, _ []string) error {
		return PrintList(ctx, a, s, list(s.Client), *limit, text)
	})
}

// PrintList prints the first items of a list, at most limit (0: all), as JSON or by text.
func PrintList[T any](
	ctx context.Context, a *App, s *Client, list *client.List[T], limit int, text func(*App, []T) error,
) error {
	items, err := list.Take(ctx, limit)
	if err != nil {
		return err
	}
	return a.Print(s.Answer, func() error {
		if err := text(a, items); err != nil {
			return err
		}
		if list.More() {
			fmt.Fprintln(a.Stderr, "There are more: raise --limit.")
		}
		if missing := list.Missing(); len(missing) > 0 {
			fmt.Fprintf(a.Stderr, "Not all is listed: no answer from cluster %s.\n", strings.Join(missing, ", "))
		}
		return nil
	})
}

// awaitPause is the time between two looks of Await.
const awaitPause = 200 * time.Millisecond

// Await calls look until it reports true or an error, or until wait is over. Without an error, the caller tells by what
// it has seen last which of the two it was.
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
