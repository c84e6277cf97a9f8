package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/cli/agentrun"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// agentCommand is the agent process of the benchmarks.
func agentCommand(a *app.App) *cobra.Command {
	var o agent.Options
	var ledger string
	var types []string
	var count, clusters int
	command := &cobra.Command{
		Use: "agent", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay-bench agent --hub http://127.0.0.1:8080 --id bench-1 --ledger /tmp/ledger",
		Short:   "Run an agent for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Version, o.GiveUpAfter, o.JoinToken = a.Version, 5*time.Minute, a.Getenv(app.JoinTokenEnv)
			return eachAgent(
				o,
				clusters,
				count,
				func(o agent.Options) error { return runAgent(c.Context(), o, ledger, types) },
			)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&o.HubURLs, "hub", []string{app.DefaultServer}, "URLs of the hubs")
	flags.StringVar(&o.Cluster, "cluster", dev.Cluster, "cluster to join")
	flags.StringVar(&o.ID, "id", "bench", "the agent's id")
	flags.IntVar(&o.Slots, "slots", 1, "tasks that it runs at a time")
	flags.StringArrayVar(&types, "type", nil, "type of tasks that it handles (repeatable; default: all of the benchmarks)")
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

// runAgent runs one agent until ctx ends. types are those that it handles; empty: all.
func runAgent(ctx context.Context, o agent.Options, ledgerFile string, types []string) (err error) {
	handlers := map[string]agent.Handler{taskType: handle, napType: nap, agent.ExecType: agent.ExecHandler()}
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
		if len(types) == 0 || slices.Contains(types, taskType) {
			runner.Handle(taskType, handler)
		}
	}
	return agentrun.Exit(runner.Run(ctx))
}

// fakeAgentsCommand is a process with many fake agents, which share their connections, so that what is measured is the
// control plane and not the agents.
func fakeAgentsCommand() *cobra.Command {
	var o agent.Options
	var hub string
	var count, clusters int
	command := &cobra.Command{
		Use: "fake-agents", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay-bench fake-agents --hub http://127.0.0.1:8080 --cluster many --clusters 10 --count 1000",
		Short:   "Run fake agents for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o.ID = o.Cluster
			shared := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100_000}, Timeout: time.Minute}
			return eachAgent(o, clusters, count, func(o agent.Options) error {
				f := fakeAgent{hub: hub, client: shared, registration: protocol.Register{AgentID: o.ID,
					Cluster:    o.Cluster,
					InstanceID: "instance-of-" + o.ID, AgentProfile: fleet.AgentProfile{MaxTasks: 1,
						TaskTypes: []string{taskType}, Host: "bench", StartedAt: time.Now().UTC()}}}
				retry := backoff.Backoff{First: 100 * time.Millisecond, Limit: 2 * time.Second}
				for c.Context().Err() == nil {
					if f.turn(c.Context()) != nil {
						retry.Pause(c.Context())
					} else {
						retry.Reset()
					}
				}
				return nil
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&hub, "hub", app.DefaultServer, "URL of the hub")
	flags.StringVar(&o.Cluster, "cluster", "", "cluster to join")
	flags.IntVar(&clusters, "clusters", 0, "as of `mainstay-bench agent`")
	flags.IntVar(&count, "count", 1, "as of `mainstay-bench agent`")
	return command
}

// fakeAgent is one agent. It answers each task at once with the time.
type fakeAgent struct {
	hub          string
	client       *http.Client
	registration protocol.Register
	session      protocol.Registered
	sequence     int64
}

// turn sends one poll, after a registration if there is no session, and does what the answer brings.
func (f *fakeAgent) turn(ctx context.Context) error {
	if f.session.SessionToken == "" {
		f.registration.Registration++
		if err := f.call(ctx, protocol.RegisterPath, &f.registration, &f.session); err != nil {
			return err
		}
	}
	var polled protocol.Polled
	f.sequence++
	if err := f.call(ctx, protocol.PollPath, &protocol.Poll{Sequence: f.sequence}, &polled); err != nil {
		return err
	}
	for i := range polled.Assignments {
		a, began := &polled.Assignments[i], time.Now()
		path := strings.Replace(protocol.ResultPath, "{task_id}", a.TaskID, 1)
		if err := f.call(ctx, path, &protocol.Result{Token: a.Token, Attempt: a.Attempt, StartedAt: began,
			EndedAt: began,
			Outcome: fleet.AttemptCompleted, Output: fmt.Append(nil, began.UnixNano())}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// call sends a request and reads the answer. After a refusal the agent registers again.
func (f *fakeAgent) call(ctx context.Context, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := f.hub + strings.Replace(path, "{id}", f.registration.AgentID, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+f.session.SessionToken)
	response, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if data, err = io.ReadAll(response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		if response.StatusCode < http.StatusInternalServerError {
			f.session = protocol.Registered{}
		}
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.Unmarshal(data, answer)
}
