package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
