package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
)

func versionCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mainstay version -o json",
		Args:    app.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return a.Print(map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform},
				func() error {
					return a.Sayf("mainstay %s (%s, %s)\n", a.Version, runtime.Version(), platform)
				})
		},
	}
	a.OutputFlag(command)
	return command
}
