package controlplane

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
)

// ConfigCommand is `config`.
func ConfigCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "config", Short: "Check a configuration file, and show what holds and why"}
	command.AddCommand(configCheckCommand(a), configPrintCommand(a))
	return command
}

func configCheckCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check configuration files",
		Long: `Check configuration files. What is wrong is said with its line, and what to write instead; the exit code is then 2.
Nothing is contacted: a file that is read well may still name a Temporal that is not there.`,
		Example: "  mainstay config check mainstay.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.UsageError("needs a configuration file")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			type checked struct {
				File     string   `json:"file"`
				Valid    bool     `json:"valid"`
				Clusters []string `json:"clusters"`
				Problems []string `json:"problems,omitempty"`
			}
			var all []checked
			wrong := 0
			for _, path := range args {
				done := checked{File: path, Valid: true, Clusters: []string{}}
				settings, err := config.Load(path)
				if err != nil {
					wrong++
					done.Valid, done.Problems = false, strings.Split(err.Error(), "\n")
				} else {
					for _, cluster := range settings.ClusterConfigs() {
						done.Clusters = append(done.Clusters, cluster.Name)
					}
				}
				all = append(all, done)
			}
			err := a.Print(map[string]any{"files": all}, func() error {
				for _, done := range all {
					for _, problem := range done.Problems {
						fmt.Fprintln(a.Stderr, problem)
					}
					if !done.Valid {
						continue
					}
					clusters := "it describes no clusters"
					if len(done.Clusters) > 0 {
						clusters = "it describes the clusters " + strings.Join(done.Clusters, ", ")
					}
					if _, err := fmt.Fprintf(a.Stdout, "%s is good; %s.\n", done.File, clusters); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil && wrong > 0 {
				err = app.WithExit(app.ExitUsage, fmt.Errorf("%d of %d files cannot be used", wrong, len(args)))
			}
			return err
		},
	}
	a.OutputFlag(command)
	return command
}

func configPrintCommand(a *app.App) *cobra.Command {
	var file, listen, hubID string
	var changed bool
	command := &cobra.Command{
		Use:   "print",
		Short: "Show every setting that holds, and where it comes from",
		Long: `Show every setting as it would hold for "mainstay serve" with this file, these flags and this environment, and where
each comes from: the default, a line of the file, a variable or a flag. Secrets are not shown.`,
		Example: "  mainstay config print --config mainstay.yaml\n  mainstay config print --config mainstay.yaml --changed",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			flags := map[string]config.Override{}
			for name, key := range map[string]string{"http": "http.listen", "hub-id": "hub.id"} {
				if f := c.Flags().Lookup(name); f.Changed && f.Value.String() != "" { // as serve has it
					flags[key] = config.Override{Flag: name, Value: f.Value.String()}
				}
			}
			settings, err := config.Describe(file, func(section config.Temporal) (config.Temporal, error) {
				options, err := clientOptions(section, lookup(a.Getenv))
				section.Address, section.Namespace = options.HostPort, options.Namespace
				return section, err
			}, lookup(a.Getenv).LookupEnv, flags)
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			if changed {
				settings = slices.DeleteFunc(settings,
					func(s config.Setting) bool { return s.Source == config.FromDefault })
			}
			return a.Print(map[string]any{"settings": settings}, func() error { return printSettings(a, settings) })
		},
	}
	flags := command.Flags()
	flags.StringVar(&file, "config", "", "configuration file (default: none, so the defaults)")
	flags.StringVar(&listen, "http", "", "as of serve")
	flags.StringVar(&hubID, "hub-id", "", "as of serve")
	flags.BoolVar(&changed, "changed", false, "only what was set, without the defaults")
	a.OutputFlag(command)
	return command
}

func printSettings(a *app.App, settings []config.Setting) error {
	if len(settings) == 0 {
		return a.Say("Every setting has its default.")
	}
	t := app.NewTable(a.Stdout, "SETTING", "VALUE", "SOURCE", "FROM")
	for _, s := range settings {
		t.Row(s.Key, s.Text(), s.Source, s.From)
	}
	return t.Flush()
}

// lookup is the environment as commands have it.
type lookup func(string) string

// Environ implements envconfig.EnvLookup.
func (l lookup) Environ() []string {
	var all []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if value := l(name); value != "" {
			all = append(all, name+"="+value)
		}
	}
	return all
}

// LookupEnv implements envconfig.EnvLookup.
func (l lookup) LookupEnv(name string) (string, bool) {
	value := l(name)
	return value, value != ""
}
