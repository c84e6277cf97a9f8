package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mainstay version -o json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return a.print(map[string]string{"version": version, "go": runtime.Version(), "platform": platform}, func() error {
				_, err := fmt.Fprintf(a.stdout, "mainstay %s (%s, %s)\n", version, runtime.Version(), platform)
				return err
			})
		},
	}
	a.outputFlag(command)
	return command
}
