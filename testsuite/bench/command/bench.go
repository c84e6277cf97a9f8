// Package command is `mainstay bench`: the benchmarks, and the hidden processes that they start.
package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/cli/agentrun"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/testsuite/bench"
)

// New is `bench`.
func New(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure this installation's program on this machine",
		Long: `Measure Mainstay on this machine. Each benchmark starts a control plane with an embedded Temporal of its own, on free
ports and in a temporary folder, and leaves nothing behind. What is measured, and how, is in docs/BENCHMARKS.md.`,
	}
	command.PersistentPreRunE = a.StopUnread
	command.AddCommand(throughputCommand(a), failoverCommand(a), idleCommand(a), healingCommand(a), drainCommand(a),
		queueCommand(a), gatewayCommand(a), bareGatewayCommand(a), agentCommand(a), temporalCommand(a))
	return command
}

// agentCommand is the agent process of the benchmarks.
func agentCommand(a *app.App) *cobra.Command {
	var o agent.Options
	var ledger string
	var count, clusters int
	command := &cobra.Command{
		Use: "agent", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay bench agent --hub http://127.0.0.1:8080 --id bench-1 --ledger /tmp/ledger",
		Short:   "Run an agent for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Version, o.GiveUpAfter = a.Version, 5*time.Minute
			if clusters > 0 {
				return eachCluster(o, clusters, count, func(o agent.Options) error {
					return runBenchAgent(c.Context(),
						o, ledger)
				})
			}
			return eachAgent(o, count, func(o agent.Options) error { return runBenchAgent(c.Context(), o, ledger) })
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&o.HubURLs, "hub", []string{app.DefaultServer}, "URLs of the hubs")
	flags.StringVar(&o.Cluster, "cluster", dev.Cluster, "cluster to join")
	flags.StringVar(&o.ID, "id", "bench", "the agent's id")
	flags.IntVar(&o.Slots, "slots", 1, "tasks that it runs at a time")
	flags.StringArrayVar(&o.Capabilities, "capability", nil, "what tasks may ask for (repeatable)")
	flags.DurationVar(&o.StopTimeout, "stop-timeout", agent.DefaultStopTimeout,
		"how long a stop waits for running tasks")
	flags.StringVar(&ledger, "ledger", "", "file for what its tasks do")
	flags.IntVar(&clusters, "clusters", 0,
		"spread them over this many clusters, so many in each: the cluster's name is numbered then")
	flags.IntVar(&count, "count", 1, "agents in this process; with more than one the ids are numbered")
	return command
}

// eachAgent runs several agents in this process and returns when all have ended.
func eachAgent(o agent.Options, count int, run func(agent.Options) error) error {
	if count == 1 {
		return run(o)
	}
	var agents sync.WaitGroup
	errs := make([]error, count)
	for n := range count {
		numbered := o
		numbered.ID = fmt.Sprintf("%s-%d", o.ID, n+1)
		agents.Go(func() { errs[n] = run(numbered) })
	}
	agents.Wait()
	return errors.Join(errs...)
}

// eachCluster runs as many agents in each of several clusters.
func eachCluster(o agent.Options, clusters, count int, run func(agent.Options) error) error {
	var all sync.WaitGroup
	errs := make([]error, clusters)
	for n := range clusters {
		numbered := o
		numbered.Cluster, numbered.ID = fmt.Sprintf("%s-%d", o.Cluster, n+1), fmt.Sprintf("%s-%d", o.ID, n+1)
		all.Go(func() { errs[n] = eachAgent(numbered, count, run) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runBenchAgent runs one agent until ctx ends.
func runBenchAgent(ctx context.Context, o agent.Options, ledgerFile string) (err error) {
	handlers := map[string]agent.Handler{bench.TaskType: bench.Handler}
	if ledgerFile != "" {
		ledger, err := bench.OpenLedger(ledgerFile, o.ID)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ledger.Close()) }()
		o.OnEvent = ledger.Event
		handlers[bench.WorkType] = ledger.Handler
	}
	runner, err := agent.New(o)
	if err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	for taskType, handler := range handlers {
		runner.Handle(taskType, handler)
	}
	return agentrun.Exit(runner.Run(ctx))
}
