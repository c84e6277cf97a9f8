package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// limitFlag adds --limit to a command that lists what can be a lot.
func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", 50, "at most this many")
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if *limit < 1 {
			return usageError("--limit must be at least 1")
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
}

// printList reads a list, at most limit items (0: all), and prints it as JSON or by text.
func printList[T any](c *cobra.Command, a *app, path, plural string, query url.Values, limit int, text func([]T) error) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	raw, items, more, err := list[T](c.Context(), client, path, plural, query, limit)
	if err != nil {
		return err
	}
	return a.print(map[string]any{plural: raw}, func() error {
		if err := text(items); err != nil {
			return err
		}
		if more {
			fmt.Fprintln(a.stderr, "There are more: raise --limit.")
		}
		return nil
	})
}

// queryOf makes a query of names and values, leaving out empty values.
func queryOf(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}
