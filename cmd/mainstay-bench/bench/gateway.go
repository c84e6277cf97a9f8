package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	sdkclient "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/client"
)

// gatewayPlan is how to load both sides: with clients that submit one task after the other, for a time.
type gatewayPlan struct {
	rounds, clients int
	length          time.Duration
}

type gatewayReport struct {
	report
	Bare     Side    `json:"bare"`
	Mainstay Side    `json:"mainstay"`
	P99Ratio float64 `json:"p99_ratio"`
}

func gatewayBenchmark() benchmark {
	p := gatewayPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "gateway",
			Short: "Measure how long the gateway takes to accept a task, beside a bare handler",
			Long: `Measure how long submissions take to be answered under load: by the gateway, and by a bare gin handler that
starts the same workflow, in turns on one embedded Temporal. No worker runs, so that the start of workflows is all there
is to do.`,
			Example: "  mainstay-bench gateway\n  mainstay-bench gateway --clients 32 --for 20s",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&p.rounds, "rounds", 5, "rounds of each side")
			flags.IntVar(&p.clients, "clients", 8, "clients that submit at a time")
			flags.DurationVar(&p.length, "for", 10*time.Second, "length of a round")
		},
		measure: func(ctx context.Context, r *run) error { return r.gateway(ctx, &p) },
	}
}

func (r *run) gateway(ctx context.Context, p *gatewayPlan) error {
	i, err := r.install(ctx, Setting{temporalOnly: true, roles: "gateway"})
	if err != nil {
		return err
	}
	defer i.Stop()
	fmt.Fprintf(r.story, "%d rounds of each side, each of %s from %d clients.\n\n", p.rounds, p.length, p.clients)
	if _, err := i.Clusters.Create(ctx, client.Settings{"name": dev.Cluster}); err != nil {
		return err
	}
	bareAPI, err := i.startBareGateway()
	if err != nil {
		return err
	}
	sides, err := r.compare(ctx, p.rounds, "tasks/s", func() CPU { return i.used() },
		p.contender("bare gin", bareAPI), p.contender("Mainstay", i.Client))
	if err != nil {
		return err
	}
	bare, mainstay := &sides[0], &sides[1]
	return r.print(gatewayReport{r.report, *bare, *mainstay, mainstay.P99 / bare.P99}, func(w io.Writer) {
		t := newTable(w, "", bare.Name, mainstay.Name, "ratio")
		t.sides("accepted", "%.0f/s", "answer", bare, mainstay)
		t.compare("answer, p99, median of the rounds", "%.1f ms", median(bare.P99s), median(mainstay.P99s))
		t.flush()
	})
}

// contender loads one of the two APIs.
func (p *gatewayPlan) contender(name string, c *client.Client) contender {
	task := api.TaskRequest{TaskSpec: api.TaskSpec{Type: taskType, Cluster: dev.Cluster,
		Payload: json.RawMessage(`{"n":1}`)}}
	return contender{name: name,
		work: func(ctx context.Context, part float64) (float64, []time.Duration, error) {
			began := time.Now()
			loaded, stop := context.WithTimeout(ctx, time.Duration(part*float64(p.length)))
			defer stop()
			times, err := submitting(loaded, c, p.clients, 0, &task)
			return float64(len(times)) / time.Since(began).Seconds(), times, cmp.Or(err, ctx.Err())
		}}
}

// submitting has clients submit a task again and again until ctx ends, with a pause after each, and returns how long
// each answer took.
func submitting(ctx context.Context, c *client.Client, clients int, pause time.Duration, task *api.TaskRequest) (
	[]time.Duration, error,
) {
	times := make([][]time.Duration, clients)
	var all errgroup.Group
	for n := range times {
		all.Go(func() error {
			for ctx.Err() == nil {
				began := time.Now()
				if _, err := c.Tasks.Submit(context.WithoutCancel(ctx), task); err != nil {
					return err
				}
				times[n] = append(times[n], time.Since(began))
				backoff.Pause(ctx, pause)
			}
			return nil
		})
	}
	err := all.Wait()
	return slices.Concat(times...), err
}

// bareGateway is the least that a gateway could be: a gin handler that decodes a task and starts the same workflow,
// with the same attributes, memo and input as Mainstay's. It checks nothing.
func bareGateway(c sdkclient.Client) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/v1/agents/tasks", func(g *gin.Context) {
		var spec api.TaskSpec
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
			"status": api.TaskQueued, "workflow_id": start.WorkflowID, "run_id": run.GetRunID()})
	})
	return engine
}

// startBareGateway runs the bare handler in this process, until the installation stops, and returns a client of it.
func (i *Installation) startBareGateway() (*client.Client, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: bareGateway(i.sdk), ReadHeaderTimeout: 5 * time.Second}
	i.atStop(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return newClient("http://"+listener.Addr().String(), "")
}
