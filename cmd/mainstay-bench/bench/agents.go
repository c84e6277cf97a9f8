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

	"mainstay.dev/mainstay/internal/cli/agentrun"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/protocol"
)

// giveUpAfter ends an agent whose benchmark is gone.
const giveUpAfter = 5 * time.Minute

// agentCommand is the agent process of the benchmarks.
func agentCommand(a *app.App) *cobra.Command {
	var o agent.Options
	var ledger string
	var types []string
	command := &cobra.Command{
		Use: "agent", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay-bench agent --hub http://127.0.0.1:8080 --id bench-1 --ledger /tmp/ledger",
		Short:   "Run an agent for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Version, o.GiveUpAfter, o.JoinToken = a.Version, giveUpAfter, a.Getenv(app.JoinTokenEnv)
			return runAgent(c.Context(), o, ledger, types)
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
	return command
}

// runAgent runs one agent until ctx ends. types are those that it handles; empty: all.
func runAgent(ctx context.Context, o agent.Options, ledgerFile string, types []string) error {
	ledger, err := openLedger(ledgerFile, o.ID)
	if err != nil {
		return err
	}
	o.OnEvent = ledger.event
	runner, err := agent.New(o)
	if err != nil {
		return app.WithExit(app.ExitUsage, err)
	}
	for taskType, handler := range map[string]agent.Handler{taskType: handle, napType: nap, workType: ledger.handle,
		agent.ExecType: agent.ExecHandler()} {
		if len(types) == 0 || slices.Contains(types, taskType) {
			runner.Handle(taskType, handler)
		}
	}
	return errors.Join(agentrun.Exit(runner.Run(ctx)), ledger.file.Close())
}

// beside runs something n times at the same time in this process, until the installation stops.
func (i *Installation) beside(ctx context.Context, n int, do func(ctx context.Context, k int)) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { do(ctx, k) })
	}
	i.atStop(func() { cancel(); all.Wait() })
}

// joinIdle runs agents in this process that have nothing to do, and returns when the hub has their sessions.
func (i *Installation) joinIdle(ctx context.Context, n int) error {
	agents := make([]*agent.Agent, n)
	for k := range agents {
		var err error
		if agents[k], err = agent.New(agent.Options{HubURLs: []string{i.agentsURL()}, Cluster: dev.Cluster,
			ID: fmt.Sprintf("idle-%d", k+1), GiveUpAfter: giveUpAfter}); err != nil {
			return err
		}
		agents[k].Handle(taskType, handle)
	}
	i.beside(ctx, n, func(ctx context.Context, k int) { _ = agents[k].Run(ctx) }) // who does not come is missed below
	return i.awaitSessions(ctx, n)
}

// joinFake runs fake agents in this process, the same number in each cluster. They share their connections, so that
// the control plane is measured and not the agents.
func (i *Installation) joinFake(ctx context.Context, clusters []string, each int) {
	shared := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100_000}, Timeout: time.Minute}
	i.beside(ctx, len(clusters)*each, func(ctx context.Context, k int) {
		cluster := clusters[k/each]
		id := fmt.Sprintf("%s-%d", cluster, k%each+1)
		f := fakeAgent{hub: i.agentsURL(), client: shared, registration: protocol.Register{AgentID: id,
			Cluster: cluster, InstanceID: "instance-of-" + id, AgentProfile: api.AgentProfile{MaxTasks: 1,
				TaskTypes: []string{taskType}, Host: "bench", StartedAt: time.Now().UTC()}}}
		retry := backoff.Backoff{First: 100 * time.Millisecond, Limit: 2 * time.Second}
		for ctx.Err() == nil {
			if f.turn(ctx) != nil {
				retry.Pause(ctx)
			} else {
				retry.Reset()
			}
		}
	})
}

// awaitSessions returns when the hub has n sessions.
func (i *Installation) awaitSessions(ctx context.Context, n int) error {
	return advancing(ctx, fmt.Sprintf("%d agents", n), n, 100*time.Millisecond,
		func(ctx context.Context) (int, error) {
			sessions, err := metric(ctx, i.agentsURL(), "mainstay_hub_sessions", "")
			return int(sessions), err
		})
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
			EndedAt: began, Outcome: api.AttemptCompleted, Output: fmt.Append(nil, began.UnixNano())},
			&struct{}{}); err != nil {
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
