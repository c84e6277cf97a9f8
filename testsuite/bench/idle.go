package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// Idle is what a fleet without work costs.
type Idle struct {
	Agents int           `json:"agents"`
	For    time.Duration `json:"-"`
	// HubCPU and PlaneCPU are shares of one core: of the hub's process, and of the process with Temporal, gateway and
	// worker.
	HubCPU   float64 `json:"hub_cpu_percent"`
	PlaneCPU float64 `json:"temporal_gateway_worker_cpu_percent"`
	Polls    float64 `json:"polls_per_second"`
	// Workflows is how many are open, and Events how much their histories have grown in all.
	Workflows int   `json:"workflows"`
	Events    int64 `json:"history_events_written"`
}

// MeasureIdle runs agents without work, all in one process, on a hub in a process of its own.
func MeasureIdle(ctx context.Context, i *Installation, agents int, d time.Duration, progress io.Writer) (*Idle, error) {
	if err := i.StartHub(ctx); err != nil {
		return nil, err
	}
	if _, err := i.Start("agents", "bench", "agent", "--hub", i.HubURL(), "--id", "idle", "--count",
		strconv.Itoa(agents)); err != nil {
		return nil, err
	}
	if err := awaitSessions(ctx, i.HubURL(), agents); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%d agents are online; measuring for %s after they have settled\n", agents, d)
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	c, err := i.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	before, err := takeIdle(ctx, i, c)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	after, err := takeIdle(ctx, i, c)
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	return &Idle{
		Agents: agents, For: took, HubCPU: share(after.hub - before.hub), PlaneCPU: share(after.plane - before.plane),
		Polls:     (after.polls - before.polls) / took.Seconds(),
		Workflows: len(after.events),
		Events:    grown(before.events, after.events),
	}, nil
}

// settle lets joins, first heartbeats and visibility come to rest.
const settle = 10 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleReading is one look at everything.
type idleReading struct {
	at         time.Time
	hub, plane time.Duration
	polls      float64
	events     map[string]int64 // by workflow and run
}

func takeIdle(ctx context.Context, i *Installation, c client.Client) (*idleReading, error) {
	events, err := histories(ctx, c)
	if err != nil {
		return nil, err
	}
	polls, err := metric(ctx, i.HubURL(), requestsMetric, pollsLabel)
	if err != nil {
		return nil, err
	}
	hub, err := CPUTime(i.HubPID())
	if err != nil {
		return nil, err
	}
	plane, err := CPUTime(i.PID())
	return &idleReading{time.Now(), hub, plane, polls, events}, err
}

// histories are the lengths of the histories of all open workflows.
func histories(ctx context.Context, c client.Client) (map[string]int64, error) {
	events := map[string]int64{}
	for w, err := range (store.Store{Client: c}).Workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return nil, fmt.Errorf("list workflows: %w", err)
		}
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		d, err := c.DescribeWorkflowExecution(ctx, id, run)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", id, err)
		}
		events[id+" "+run] = d.GetWorkflowExecutionInfo().GetHistoryLength()
	}
	return events, nil
}

// grown adds up by how much histories grew. A workflow that is new counts whole.
func grown(before, after map[string]int64) int64 {
	var sum int64
	for workflow, n := range after {
		sum += n - before[workflow]
	}
	return sum
}

const (
	sessionsMetric = "mainstay_hub_sessions"
	requestsMetric = "mainstay_http_request_duration_seconds_count"
	pollsLabel     = `route="` + protocol.PollPath + `"`
)

// awaitSessions returns when the hub has that many sessions.
func awaitSessions(ctx context.Context, url string, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("the agents did not come online in time"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if sessions, err := metric(ctx, url, sessionsMetric, ""); err == nil && int(sessions) == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// metric reads /metrics and adds up the samples of a metric that have a label.
func metric(ctx context.Context, url, name, label string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read the hub's metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	return sumMetric(response.Body, name, label)
}

func sumMetric(text io.Reader, name, label string) (float64, error) {
	sum, found := 0.0, false
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		sample, value := line[:strings.LastIndexByte(line, ' ')+1], line[strings.LastIndexByte(line, ' ')+1:]
		if base, _, _ := strings.Cut(strings.TrimSpace(sample), "{"); base != name || !strings.Contains(sample, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+n, true
	}
	if !found {
		return 0, errors.Join(lines.Err(), fmt.Errorf("the hub has no metric %s", name))
	}
	return sum, lines.Err()
}
