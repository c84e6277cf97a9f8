package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/fleet"
)

// plainFlagError says of a flag's value what it must be, instead of what a parser made of it.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	switch flag.Value.Type() {
	case "duration":
		return fmt.Errorf("--%s must be a duration such as 30s, 5m or 1h30m", flag.Name)
	case "int", "int64":
		return fmt.Errorf("--%s must be a whole number", flag.Name)
	case "float64":
		return fmt.Errorf("--%s must be a number", flag.Name)
	case "bool":
		return fmt.Errorf("--%s must be true or false", flag.Name)
	}
	return err
}

// strayWait finds the duration of --wait standing apart from it: the flag alone means 30 s, so it would be taken for an
// argument.
func strayWait(c *cobra.Command, args []string) error {
	flag := c.Flags().Lookup("wait")
	if flag == nil || flag.NoOptDefVal == "" || flag.Value.String() != flag.NoOptDefVal {
		return nil
	}
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	for _, arg := range args {
		if _, err := time.ParseDuration(arg); err == nil {
			return fmt.Errorf("write --wait=%s, with an equals sign", arg)
		}
	}
	return nil
}

// classifyUsage makes wrong arguments of every command usage errors, and unknown words below a group too.
func classifyUsage(c *cobra.Command) {
	if !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return UsageError("there is no command %q%s", c.CommandPath()+" "+args[0], didYouMean(c, args[0]))
			}
			return c.Help()
		}
	} else {
		check := c.Args
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		c.Args = func(c *cobra.Command, args []string) error {
			if err := strayWait(c, args); err != nil {
				return WithExit(ExitUsage, err)
			}
			return WithExit(ExitUsage, check(c, args))
		}
	}
	for _, sub := range c.Commands() {
		classifyUsage(sub)
	}
}

// didYouMean names the command of a group that is spelt much like a word; empty: none is.
func didYouMean(group *cobra.Command, word string) string {
	group.SuggestionsMinimumDistance = 2
	if near := group.SuggestionsFor(word); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", group.CommandPath()+" "+near[0])
	}
	return ""
}

// Exactly wants n arguments and says what they are.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("takes no arguments, got %d", len(args))
		}
		return fmt.Errorf("needs %s, got %s", strings.Join(names, " and "), fleet.Count(len(args), "argument"))
	}
}
