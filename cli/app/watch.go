package app

import (
	"bytes"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is the time between two looks of --watch without a value.
const watchEvery = 2 * time.Second

// clearScreen moves a terminal's cursor to the top and clears what is below.
const clearScreen = "\x1b[H\x1b[J"

// Watched adds --watch to a command that prints how something stands: it prints it again and again, until Ctrl-C.
func (a *App) Watched(command *cobra.Command) *cobra.Command {
	var every time.Duration
	command.Flags().DurationVarP(
		&every,
		"watch",
		"w",
		0,
		"print again and again, with this time between (--watch alone: 2s)",
	)
	command.Flags().Lookup("watch").NoOptDefVal = watchEvery.String()
	CheckFirst(command, func() error {
		if every < 0 {
			return UsageError("--watch must not be negative")
		}
		return nil
	})
	once := command.RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		if every == 0 {
			return once(c, args)
		}
		out := a.Stdout
		defer func() { a.Stdout = out }()
		for {
			var page bytes.Buffer
			a.Stdout = &page
			err := once(c, args)
			if c.Context().Err() != nil {
				return nil
			}
			if err != nil && ExitCode(err) != ExitUnreachable {
				return err
			}
			if err != nil {
				page.WriteString(OneLine(err.Error()) + "\n")
			}
			if a.StdoutTTY {
				_, _ = out.Write([]byte(clearScreen))
			}
			if _, err := out.Write(page.Bytes()); err != nil {
				return err
			}
			select {
			case <-time.After(every):
			case <-c.Context().Done():
				return nil
			}
		}
	}
	return command
}
