package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/backoff"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

const (
	// fakeCallers bounds the registrations and results that a process of fake agents has under way.
	fakeCallers = 256
	// fakeDial and fakeMargin bound connecting, and how much longer than the heartbeat interval a poll may take.
	fakeDial, fakeMargin = 3 * time.Second, 10 * time.Second
)

// fakeAgentsCommand is a process with many fake agents: each is one goroutine with one connection, so that what is
// measured is the control plane and not the agents.
func fakeAgentsCommand() *cobra.Command {
	var o agent.Options
	var hub string
	var count, clusters int
	command := &cobra.Command{
		Use: "fake-agents", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay bench fake-agents --hub http://127.0.0.1:8080 --cluster many --clusters 10 --count 1000",
		Short:   "Run fake agents for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o.ID = o.Cluster
			calls := &http.Client{Transport: &http.Transport{MaxConnsPerHost: fakeCallers,
				MaxIdleConnsPerHost: fakeCallers}}
			return eachAgent(o, clusters, count, func(o agent.Options) error {
				f := fakeAgent{hub: hub, calls: calls, registration: protocol.Register{AgentID: o.ID, Cluster: o.Cluster,
					InstanceID: "instance-of-" + o.ID, AgentProfile: fleet.AgentProfile{MaxTasks: 1,
						TaskTypes: []string{taskType}, Host: "bench", StartedAt: time.Now().UTC()}}}
				f.run(c.Context())
				return nil
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&hub, "hub", app.DefaultServer, "URL of the hub")
	flags.StringVar(&o.Cluster, "cluster", "", "cluster to join")
	flags.IntVar(&clusters, "clusters", 0, "as of `mainstay bench agent`")
	flags.IntVar(&count, "count", 1, "as of `mainstay bench agent`")
	return command
}

// fakeAgent is one agent. It answers each task at once with the time, and never hands anything back.
type fakeAgent struct {
	hub          string
	calls        *http.Client // shared by all
	registration protocol.Register
	session      protocol.Registered
	sequence     int64
	conn         net.Conn // for polls; nil: none
	answers      *bufio.Reader
}

// run registers and polls until ctx ends.
func (f *fakeAgent) run(ctx context.Context) {
	defer f.hangUp()
	retry := backoff.Backoff{First: 100 * time.Millisecond, Limit: 2 * time.Second}
	for ctx.Err() == nil {
		if f.turn(ctx) == nil {
			retry.Reset()
			continue
		}
		f.hangUp()
		retry.Pause(ctx)
	}
}

func (f *fakeAgent) hangUp() {
	if f.conn != nil {
		_ = f.conn.Close()
	}
	f.conn = nil
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
	if err := f.poll(ctx, &polled); err != nil {
		return err
	}
	for i := range polled.Assignments {
		a, began := &polled.Assignments[i], time.Now()
		path := strings.Replace(protocol.ResultPath, "{task_id}", a.TaskID, 1)
		if err := f.call(ctx, path, &protocol.Result{Token: a.Token, Attempt: a.Attempt, StartedAt: began, EndedAt: began,
			Outcome: fleet.AttemptCompleted, Output: fmt.Append(nil, began.UnixNano())}, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a request over one of the shared connections.
func (f *fakeAgent) call(ctx context.Context, path string, body, answer any) error {
	request, err := f.request(ctx, path, body)
	if err != nil {
		return err
	}
	response, err := f.calls.Do(request)
	if err != nil {
		return err
	}
	return f.read(response, answer)
}

// poll sends a poll over the agent's own connection, and waits for the answer.
func (f *fakeAgent) poll(ctx context.Context, answer *protocol.Polled) (err error) {
	f.sequence++
	request, err := f.request(ctx, protocol.PollPath, &protocol.Poll{Sequence: f.sequence})
	if err != nil {
		return err
	}
	if f.conn == nil {
		dialer := net.Dialer{Timeout: fakeDial}
		if f.conn, err = dialer.DialContext(ctx, "tcp", request.URL.Host); err != nil {
			f.conn = nil
			return err
		}
		f.answers = bufio.NewReader(f.conn)
	}
	if err := f.conn.SetDeadline(time.Now().Add(f.session.HeartbeatInterval.Std() + fakeMargin)); err != nil {
		return err
	}
	if err := request.Write(f.conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(f.answers, request)
	if err != nil {
		return err
	}
	return f.read(response, answer)
}

func (f *fakeAgent) request(ctx context.Context, path string, body any) (*http.Request, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	url := f.hub + strings.Replace(path, "{id}", f.registration.AgentID, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+f.session.SessionToken)
	return request, nil
}

// read reads an answer. After a refusal the agent registers again.
func (f *fakeAgent) read(response *http.Response, answer any) error {
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError:
		f.session = protocol.Registered{}
		fallthrough
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", response.Request.URL.Path, response.Status)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(data, answer)
}
