package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	sdkclient "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/testsuite/freeport"
)

// gatewayPlan is how to load both sides.
type gatewayPlan struct {
	rounds  int // of each side, in turns
	clients int // that submit one task after the other
	length  time.Duration
}

// gatewaySide is what one side answered, over all rounds.
type gatewaySide struct {
	Name      string    `json:"name"`
	Answers   int       `json:"answers"`
	P50       float64   `json:"p50_ms"`
	P99       float64   `json:"p99_ms"`
	PerSecond []float64 `json:"tasks_per_second"` // by round

	p99s    []float64 // by round
	answers []time.Duration
}

type gatewayReport struct {
	report
	Bare     gatewaySide `json:"bare"`
	Mainstay gatewaySide `json:"mainstay"`
	P99Ratio float64     `json:"p99_ratio"`
}

func gatewayBenchmark() benchmark {
	p := gatewayPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "gateway",
			Short: "Measure how long the gateway takes to accept a task, beside a bare handler",
			Long: `Measure how long submissions take to be answered under load: by the gateway, and by a bare gin
handler that starts the same workflow. Each is a process of its own; both use one embedded Temporal, in turns. No
worker runs, so that the start of workflows is all there is to do.`,
			Example: "  mainstay-bench gateway\n  mainstay-bench gateway --clients 32 --for 20s",
		},
		numbers: []number{
			{"rounds", &p.rounds, 5, 1, 1000, "rounds of each side"},
			{"clients", &p.clients, 8, 1, 1000, "clients that submit at a time"},
		},
		lengths: []length{{"for", &p.length, 10 * time.Second, time.Second, "length of a round"}},
		measure: func(ctx context.Context, r *run) error { return r.gateway(ctx, p) },
	}
}

func (r *run) gateway(ctx context.Context, p gatewayPlan) error {
	i, err := r.install(ctx, Setting{temporalOnly: true})
	if err != nil {
		return err
	}
	defer i.Stop()
	fmt.Fprintf(r.story, "%d rounds of each side, each of %s from %d clients.\n\n", p.rounds, p.length, p.clients)
	if err := i.startServe(ctx, "gateway"); err != nil {
		return err
	}
	if _, err := i.Clusters.Create(ctx, client.Settings{"name": "default"}); err != nil {
		return err
	}
	bare, err := i.startBareGateway(ctx)
	if err != nil {
		return err
	}
	sides := [2]gatewaySide{{Name: "bare gin"}, {Name: "Mainstay"}}
	if err := p.compare(ctx, &sides, [2]*client.Client{bare, i.Client}, r.story); err != nil {
		return err
	}
	result := gatewayReport{r.report, sides[0], sides[1], sides[1].P99 / sides[0].P99}
	return r.print(result, func(w io.Writer) { writeGateways(w, &sides[0], &sides[1]) })
}

// compare loads the sides in turns, after a round that does not count.
func (p *gatewayPlan) compare(
	ctx context.Context, sides *[2]gatewaySide, apis [2]*client.Client, progress io.Writer,
) error {
	for _, c := range apis {
		if _, err := load(ctx, c, p.clients, p.length/4); err != nil {
			return err
		}
	}
	return inTurns(p.rounds, 2, func(round, n int) error {
		side, began := &sides[n], time.Now()
		answers, err := load(ctx, apis[n], p.clients, p.length)
		if err != nil {
			return err
		}
		perSecond, times := float64(len(answers))/time.Since(began).Seconds(), timesOf(answers)
		side.PerSecond, side.p99s = append(side.PerSecond, perSecond), append(side.p99s, times.P99)
		side.answers = append(side.answers, answers...)
		all := timesOf(side.answers)
		side.Answers, side.P50, side.P99 = all.Count, all.P50, all.P99
		fmt.Fprintf(progress, "round %d/%d  %-12s %6.1f tasks/s  p50 %5.1f ms  p99 %5.1f ms\n", round, p.rounds,
			side.Name, perSecond, times.P50, times.P99)
		return nil
	})
}

// load submits with a number of clients for a time and returns how long each answer took.
func load(ctx context.Context, c *client.Client, clients int, d time.Duration) ([]time.Duration, error) {
	task := api.TaskRequest{TaskSpec: fleet.TaskSpec{Type: taskType, Cluster: "default",
		Payload: json.RawMessage(`{"n":1}`)}}
	var over atomic.Bool
	stop := time.AfterFunc(d, func() { over.Store(true) })
	defer stop.Stop()
	times := make([][]time.Duration, clients)
	running, ctx := errgroup.WithContext(ctx)
	for i := range clients {
		running.Go(func() error {
			for !over.Load() {
				began := time.Now()
				if _, err := c.Tasks.Submit(ctx, &task); err != nil {
					return err
				}
				times[i] = append(times[i], time.Since(began))
			}
			return nil
		})
	}
	err := running.Wait()
	return slices.Concat(times...), err
}

// writeGateways prints both sides and their ratio.
func writeGateways(w io.Writer, bare, mainstay *gatewaySide) {
	t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
	t.compare("answer, p50", "%.2f ms", bare.P50, mainstay.P50)
	t.compare("answer, p99", "%.2f ms", bare.P99, mainstay.P99)
	t.compare("answer, p99, median of the rounds", "%.2f ms", median(bare.p99s), median(mainstay.p99s))
	t.compare(fmt.Sprintf("accepted, median of %d rounds", len(bare.PerSecond)), "%.0f/s", median(bare.PerSecond),
		median(mainstay.PerSecond))
	t.flush()
}

// bareGateway is the least that a gateway could be: a gin handler that decodes a task and starts the same workflow,
// with the same attributes, memo and input as Mainstay's. It checks nothing.
func bareGateway(c sdkclient.Client) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/v1/agents/tasks", func(g *gin.Context) {
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
		run, err := c.ExecuteWorkflow(g.Request.Context(), start.Options(), contract.TaskWorkflow,
			contract.TaskInput{TaskID: id, Spec: spec, Lane: contract.Lane(&spec, 0, false)})
		if err != nil {
			g.AbortWithStatus(http.StatusServiceUnavailable)
			return
		}
		g.JSON(http.StatusAccepted, gin.H{"id": id, "type": spec.Type, "cluster": spec.Cluster,
			"status": fleet.TaskQueued, "workflow_id": start.WorkflowID, "run_id": run.GetRunID()})
	})
	return engine
}

// bareGatewayCommand is the bare handler of the benchmark, in a process of its own.
func bareGatewayCommand() *cobra.Command {
	var listen, temporal, namespace string
	command := &cobra.Command{
		Use: "bare-gateway", Hidden: true, Args: app.Exactly(), Short: "Run a bare handler for a benchmark",
		Example: "  mainstay-bench bare-gateway --http 127.0.0.1:8081 --temporal 127.0.0.1:7233",
		RunE: func(c *cobra.Command, _ []string) error {
			temporalClient, err := dial(c.Context(), temporal, namespace)
			if err != nil {
				return err
			}
			defer temporalClient.Close()
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			server := &http.Server{Handler: bareGateway(temporalClient), ReadHeaderTimeout: 5 * time.Second}
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

// startBareGateway runs the bare handler in a process and returns a client of it.
func (i *Installation) startBareGateway(ctx context.Context) (*client.Client, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	if _, err := i.Start("bare-gateway", "bare-gateway", "--http", address, "--temporal", i.temporal,
		"--namespace", i.namespace); err != nil {
		return nil, err
	}
	if err := eventually(ctx, "the bare handler", startLimit, 50*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return false, nil //nolint:nilerr // not there yet
			}
			return true, connection.Close()
		}); err != nil {
		return nil, err
	}
	return newClient("http://" + address)
}
