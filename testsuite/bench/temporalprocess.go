package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.uber.org/zap/zapcore"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/controlplane"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/devserver"
)

// temporalCommand is the embedded Temporal in a process of its own, for benchmarks that measure what is beside it. Its
// first line of output says where it is.
func temporalCommand(a *app.App) *cobra.Command {
	var address, durability, dataDir string
	var memory, stock bool
	command := &cobra.Command{
		Use: "temporal", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay bench temporal --temporal 127.0.0.1:0 --ephemeral",
		Short:   "Run nothing but the embedded Temporal, for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o := devserver.Options{DataDir: dataDir, Durability: devserver.Durability(durability), StockDatabase: stock,
				Logger: controlplane.NewLogger(a.Stderr, zapcore.WarnLevel, false)}
			if memory {
				o.DataDir = ""
			}
			var err error
			if o.Host, o.Port, err = dev.SplitIP("--temporal", address); err != nil {
				return err
			}
			starting, cancel := context.WithTimeout(c.Context(), controlplane.StartLimit)
			defer cancel()
			server, err := devserver.Start(starting, o)
			if err != nil {
				return err
			}
			defer dev.Within(dev.TemporalLimit, server.Stop)
			if err := json.NewEncoder(a.Stdout).Encode(map[string]string{"temporal_address": server.Address(),
				"namespace": server.Namespace()}); err != nil {
				return err
			}
			<-c.Context().Done()
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&address, "temporal", "127.0.0.1:0", "host:port of Temporal; port 0 takes a free one")
	flags.StringVar(&dataDir, "data-dir", "", "where its data is kept")
	flags.BoolVar(&memory, "ephemeral", false, "keep its data in memory")
	flags.StringVar(&durability, "durability", "", "as of `mainstay dev`")
	flags.BoolVar(&stock, "stock", false, "use the database as Temporal ships it")
	return command
}

// dial opens a client of Temporal that logs nothing.
func dial(ctx context.Context, address, namespace string) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Namespace: namespace,
		Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal: %w", err)
	}
	return c, nil
}
