package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/controlplane"
	"mainstay.dev/mainstay/testsuite/bench"
)

// gatewaySide is what one side answered, for -o json.
type gatewaySide struct {
	Name           string    `json:"name"`
	Answers        int       `json:"answers"`
	P50            float64   `json:"p50_ms"`
	P99            float64   `json:"p99_ms"`
	TasksPerSecond []float64 `json:"tasks_per_second"`
}

type gatewayReport struct {
	Machine  bench.Machine `json:"machine"`
	Bare     gatewaySide   `json:"bare"`
	Mainstay gatewaySide   `json:"mainstay"`
	P99Ratio float64       `json:"p99_ratio"`
}

func gatewayCommand(a *app.App) *cobra.Command {
	plan := bench.GatewayPlan{}
	command := &cobra.Command{
		Use:   "gateway",
		Short: "Measure how long the gateway takes to accept a task, beside a bare handler",
		Long: `Measure how long submissions take to be answered under load: by the gateway, and by a bare gin handler that starts the
same workflow. Each is a process of its own; both use one embedded Temporal, in turns. No worker runs, so that the start
of workflows is all there is to do.`,
		Example: "  mainstay bench gateway\n  mainstay bench gateway --clients 32 --for 20s",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if plan.Rounds < 1 || plan.Clients < 1 || plan.Clients > 1000 || plan.For < time.Second {
				return app.UsageError(
					"--rounds and --clients must be at least 1, --clients at most 1000, --for at least 1s")
			}
			return runBench(a, func(b *run) error { return b.gateway(c.Context(), plan) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&plan.Rounds, "rounds", 5, "rounds of each side")
	flags.IntVar(&plan.Clients, "clients", 8, "clients that submit at a time")
	flags.DurationVar(&plan.For, "for", 10*time.Second, "length of a round")
	a.OutputFlag(command)
	return command
}

func (b *run) gateway(ctx context.Context, plan bench.GatewayPlan) error {
	installation, err := b.install(ctx, bench.Setting{TemporalOnly: true})
	if err != nil {
		return err
	}
	defer installation.Stop()
	fmt.Fprintf(b.story, "%d rounds of each side, each of %s from %d clients.\n\n", plan.Rounds, plan.For, plan.Clients)
	if err := installation.StartGateway(ctx); err != nil {
		return err
	}
	bare, err := installation.StartBareGateway(ctx)
	if err != nil {
		return err
	}
	m, err := bench.CompareGateways(ctx, plan, [2]string{"bare gin", "Mainstay"}, [2]string{bare, installation.URL},
		b.story)
	if err != nil {
		return err
	}
	report := gatewayReport{Machine: b.machine, Bare: gatewaySideOf(m[0]), Mainstay: gatewaySideOf(m[1])}
	report.P99Ratio = report.Mainstay.P99 / report.Bare.P99
	return b.Print(report, func() error {
		fmt.Fprintln(b.Stdout)
		bench.WriteGatewayTable(b.Stdout, m)
		return nil
	})
}

func gatewaySideOf(m bench.GatewayMeasured) gatewaySide {
	l := bench.Summarize(m.Answers)
	return gatewaySide{Name: m.Name, Answers: l.Count, P50: milliseconds(l.P50), P99: milliseconds(l.P99),
		TasksPerSecond: m.PerSecond}
}

// bareGatewayCommand is the bare handler of the benchmark, in a process of its own.
func bareGatewayCommand(a *app.App) *cobra.Command {
	var listen, temporal, namespace string
	command := &cobra.Command{
		Use: "bare-gateway", Hidden: true, Args: app.Exactly(), Short: "Run a bare handler for a benchmark",
		Example: "  mainstay bench bare-gateway --http 127.0.0.1:8081 --temporal 127.0.0.1:7233",
		RunE: func(c *cobra.Command, _ []string) error {
			temporalClient, err := controlplane.Connect(c.Context(),
				client.Options{HostPort: temporal, Namespace: namespace, Logger: controlplane.ForSDK(zap.NewNop())})
			if err != nil {
				return err
			}
			defer temporalClient.Close()
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			server := &http.Server{Handler: bench.BareGateway(temporalClient), ReadHeaderTimeout: 5 * time.Second}
			stop := context.AfterFunc(c.Context(), func() { _ = server.Close() })
			defer stop()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&listen, "http", "127.0.0.1:0", "host:port to listen on")
	flags.StringVar(&temporal, "temporal", "127.0.0.1:7233", "host:port of Temporal")
	flags.StringVar(&namespace, "namespace", "default", "namespace")
	return command
}
