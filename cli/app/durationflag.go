package app

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/fleet"
)

// duration is a flag's value that is read as durations are everywhere: also 7d and 00:00:30.
type duration struct{ pflag.Value }

// Set implements pflag.Value.
func (d duration) Set(text string) error {
	parsed, err := fleet.ParseDuration(text)
	if err != nil {
		return err
	}
	return d.Value.Set(parsed.String())
}

// readDurations lets the flags of a command that are durations be given in each form.
func readDurations(c *cobra.Command) {
	read := func(flag *pflag.Flag) {
		if _, done := flag.Value.(duration); done || flag.Value.Type() != "duration" {
			return
		}
		flag.Value = duration{flag.Value}
		if flag.DefValue == "0s" {
			flag.DefValue = "" // help would show it of a type that pflag does not know
		}
	}
	c.Flags().VisitAll(read)
	c.PersistentFlags().VisitAll(read)
}
