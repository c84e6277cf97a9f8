package bench

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
)

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
			o.Version, o.GiveUpAfter, o.JoinToken = a.Version, 5*time.Minute, a.Getenv(app.JoinTokenEnv)
			return eachAgent(
				o,
				clusters,
				count,
				func(o agent.Options) error { return runAgent(c.Context(), o, ledger) },
			)
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

// eachAgent runs count agents in each of several clusters, 0: in the one, and returns when all have ended.
func eachAgent(o agent.Options, clusters, count int, run func(agent.Options) error) error {
	var agents sync.WaitGroup
	errs := make([]error, max(clusters, 1)*count)
	for k := range errs {
		one := o
		if clusters > 0 {
			one.Cluster, one.ID = fmt.Sprintf("%s-%d", o.Cluster, k/count+1), fmt.Sprintf("%s-%d", o.ID, k/count+1)
		}
		if count > 1 {
			one.ID = fmt.Sprintf("%s-%d", one.ID, k%count+1)
		}
		agents.Go(func() { errs[k] = run(one) })
	}
	agents.Wait()
	return errors.Join(errs...)
}

// runAgent runs one agent until ctx ends.
func runAgent(ctx context.Context, o agent.Options, ledgerFile string) (err error) {
	handlers := map[string]agent.Handler{taskType: handle, napType: nap}
	if ledgerFile != "" {
		ledger, failed := openLedger(ledgerFile, o.ID)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, ledger.file.Close()) }()
		o.OnEvent = ledger.event
		handlers[workType] = ledger.handle
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
