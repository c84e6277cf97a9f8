package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// GatewayPath is where both sides of the gateway's benchmark take a task.
const GatewayPath = "/api/v1/agents/tasks"

// BareGateway is the least that a gateway could be: a gin handler that decodes a task and starts the same workflow,
// with the same attributes, memo and input as Mainstay's. It checks nothing.
func BareGateway(c client.Client) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST(GatewayPath, func(g *gin.Context) {
		var spec fleet.TaskSpec
		if err := g.BindJSON(&spec); err != nil {
			return
		}
		id := "t-" + uuid.NewString()
		digest, err := spec.Digest()
		if err != nil {
			g.AbortWithStatus(http.StatusBadRequest)
			return
		}
		start := contract.StartOf(id, &spec, 0)
		start.Memo[contract.MemoDigest] = digest
		run, err := c.ExecuteWorkflow(g.Request.Context(), client.StartWorkflowOptions{
			ID:                                       start.WorkflowID,
			TaskQueue:                                contract.WorkerQueue,
			WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
			WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
			WorkflowExecutionErrorWhenAlreadyStarted: true,
			EnableEagerStart:                         true,
			TypedSearchAttributes:                    start.Attributes,
			Memo:                                     start.Memo,
			StaticSummary:                            start.Summary,
			Priority:                                 start.Priority,
		}, contract.TaskWorkflow, contract.TaskInput{TaskID: id, Spec: spec, Lane: contract.Lane(&spec, 0)})
		if err != nil {
			g.AbortWithStatus(http.StatusServiceUnavailable)
			return
		}
		g.JSON(http.StatusAccepted, gin.H{"id": id, "type": spec.Type, "cluster": spec.Cluster,
			"status": fleet.TaskQueued, "workflow_id": start.WorkflowID, "run_id": run.GetRunID()})
	})
	return engine
}

// GatewayPlan is how to load both sides.
type GatewayPlan struct {
	Rounds  int // of each side, in turns
	Clients int // that submit one task after the other
	For     time.Duration
}

// GatewayMeasured is what one side answered, over all rounds.
type GatewayMeasured struct {
	Name      string
	PerSecond []float64 // by round
	P99       []time.Duration
	Answers   []time.Duration
}

// CompareGateways loads the sides in turns, after a round that does not count.
func CompareGateways(
	ctx context.Context, p GatewayPlan, names, urls [2]string, progress io.Writer,
) ([2]GatewayMeasured, error) {
	var measured [2]GatewayMeasured
	for i := range urls {
		measured[i].Name = names[i]
		if _, err := load(ctx, urls[i], p.Clients, p.For/4); err != nil {
			return measured, err
		}
	}
	for round := range p.Rounds {
		for turn := range urls {
			i := (turn + round) % 2 // neither side always goes first
			began := time.Now()
			answers, err := load(ctx, urls[i], p.Clients, p.For)
			if err != nil {
				return measured, err
			}
			perSecond, l := float64(len(answers))/time.Since(began).Seconds(), Summarize(answers)
			m := &measured[i]
			m.PerSecond, m.P99, m.Answers = append(m.PerSecond, perSecond), append(m.P99, l.P99), append(m.Answers,
				answers...)
			fmt.Fprintf(progress, "round %d/%d  %-12s %6.1f tasks/s  p50 %5.1f ms  p99 %5.1f ms\n", round+1, p.Rounds,
				m.Name, perSecond, milliseconds(l.P50), milliseconds(l.P99))
		}
	}
	return measured, nil
}

// load submits with a number of clients for a time and returns how long each answer took.
func load(ctx context.Context, url string, clients int, d time.Duration) ([]time.Duration, error) {
	via := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: 30 * time.Second}
	defer via.CloseIdleConnections()
	body := []byte(`{"type":"` + TaskType + `","cluster":"default","payload":{"n":1}}`)
	var over atomic.Bool
	stop := time.AfterFunc(d, func() { over.Store(true) })
	defer stop.Stop()
	times, errs := make([][]time.Duration, clients), make([]error, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for !over.Load() && errs[i] == nil && ctx.Err() == nil {
				began := time.Now()
				if errs[i] = submitOnce(ctx, via, url+GatewayPath, body); errs[i] == nil {
					times[i] = append(times[i], time.Since(began))
				}
			}
		})
	}
	running.Wait()
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	return all, errors.Join(append(errs, ctx.Err())...)
}

func submitOnce(ctx context.Context, via *http.Client, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := via.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("HTTP %d: %s", response.StatusCode, text)
	}
	return err
}

// WriteGatewayTable prints both sides and their ratio, ready for docs/BENCHMARKS.md.
func WriteGatewayTable(w io.Writer, m [2]GatewayMeasured) {
	bare, ours := Summarize(m[0].Answers), Summarize(m[1].Answers)
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "|\t| %s\t| %s\t| ratio\t|\n|---\t|---\t|---\t|---\t|\n", m[0].Name, m[1].Name)
	row := func(name string, x, y time.Duration) {
		fmt.Fprintf(t, "| %s\t| %.2f ms\t| %.2f ms\t| %.2f\t|\n", name, milliseconds(x), milliseconds(y),
			float64(y)/float64(x))
	}
	row("answer, p50", bare.P50, ours.P50)
	row("answer, p99", bare.P99, ours.P99)
	row("answer, p99, median of the rounds", medianOf(m[0].P99), medianOf(m[1].P99))
	a, b := Median(m[0].PerSecond), Median(m[1].PerSecond)
	fmt.Fprintf(t, "| accepted, median of %d rounds\t| %.0f/s\t| %.0f/s\t| %.2f\t|\n", len(m[0].PerSecond), a, b, b/a)
	_ = t.Flush()
}

func medianOf(all []time.Duration) time.Duration {
	values := make([]float64, len(all))
	for i, d := range all {
		values[i] = float64(d)
	}
	return time.Duration(Median(values))
}

// StartGateway runs a gateway alone in a process, for an installation with TemporalOnly, with the cluster that the
// benchmark submits to. No worker runs, and none is needed to accept a task.
func (i *Installation) StartGateway(ctx context.Context) error {
	if err := i.startServe(ctx, "gateway"); err != nil {
		return err
	}
	i.URL = i.hubURL
	return i.call(ctx, http.MethodPost, "/clusters", map[string]string{"name": "default"}, nil)
}

// StartBareGateway runs the bare handler in a process and returns its URL.
func (i *Installation) StartBareGateway(ctx context.Context) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // to find a free port
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	_ = listener.Close()
	if _, err := i.Start("bare-gateway", "bench", "bare-gateway", "--http", address, "--temporal", i.Temporal,
		"--namespace", i.Namespace); err != nil {
		return "", err
	}
	return "http://" + address, eventually(ctx, "the bare handler", startLimit, 50*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return false, nil //nolint:nilerr // not there yet
			}
			return true, connection.Close()
		})
}
