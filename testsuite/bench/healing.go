package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	enumspb "go.temporal.io/api/enums/v1"
	sdkclient "go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// healingCost is what the healing cycle costs while nothing is wrong.
type healingCost struct {
	report
	Seconds  float64 `json:"seconds"` // of each of the two measurements
	Clusters int     `json:"clusters"`
	Agents   int     `json:"agents_each"`
	// Cycles ran within the measurement, with WorkflowTasks and history events of their own; Queries asked clusters.
	Cycles        int   `json:"cycles"`
	WorkflowTasks int64 `json:"workflow_tasks"`
	Events        int64 `json:"history_events_of_cycles"`
	Queries       int64 `json:"queries"`
	// CycleTime is how long a cycle took on average, in milliseconds.
	CycleTime float64 `json:"cycle_ms"`
	// Paused and Active are what the database wrote, and how busy the process was, with the schedule paused and not.
	Paused healingLoad `json:"paused"`
	Active healingLoad `json:"active"`
}

// healingLoad is what the process with Temporal, gateway, hub and worker did.
type healingLoad struct {
	databaseWrites
	CPU float64 `json:"cpu_percent_of_a_core"`
}

func healingBenchmark() benchmark {
	var clusters, agents int
	var d time.Duration
	return benchmark{
		Command: &cobra.Command{
			Use:   "healing",
			Short: "Measure what the healing cycle costs while nothing is wrong",
			Long: `Measure what the healing cycle costs while nothing is wrong: workflow tasks, events and queries of its cycles, and what the
database writes with the schedule paused and with it. It takes twice --for and three minutes more. A cycle begins each
minute, so --for is at least 90 s.`,
			Example: "  mainstay bench healing --clusters 100 --agents 10 --for 3m",
		},
		numbers: []number{
			{"clusters", &clusters, 100, 1, 2000, "clusters"},
			{"agents", &agents, 10, 1, 2000, "agents in each, that have nothing to do"},
		},
		lengths: []length{{"for", &d, 3 * time.Minute, 90 * time.Second,
			"how long to measure, once with the schedule paused and once with it"}},
		check: func(*pflag.FlagSet) error {
			if clusters*agents > 2000 {
				return app.UsageError("--clusters and --agents must be 2000 agents together at most")
			}
			return nil
		},
		measure: func(ctx context.Context, r *run) error { return r.healing(ctx, clusters, agents, d) },
	}
}

func (r *run) healing(ctx context.Context, clusters, agents int, d time.Duration) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	cost := &healingCost{report: r.report, Seconds: d.Seconds(), Clusters: clusters, Agents: agents}
	if err := r.measureHealing(ctx, i, cost, d); err != nil {
		return err
	}
	minute := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)*60/cost.Seconds) }
	return r.facts(cost, fmt.Sprintf("%d clusters of %d agents, a minute", clusters, agents), [][2]string{
		{"cycles", minute(int64(cost.Cycles))},
		{"their workflow tasks", minute(cost.WorkflowTasks)},
		{"their history events", minute(cost.Events)},
		{"queries of clusters, which write nothing", minute(cost.Queries)},
		{"a cycle takes", fmt.Sprintf("%.0f ms", cost.CycleTime)},
		{"database transactions, healing paused", minute(cost.Paused.Transactions)},
		{"database transactions, with healing", minute(cost.Active.Transactions)},
		{"database pages, healing paused", minute(cost.Paused.Pages)},
		{"database pages, with healing", minute(cost.Active.Pages)},
		{"control plane's cpu, healing paused", ofACore(cost.Paused.CPU)},
		{"control plane's cpu, with healing", ofACore(cost.Active.CPU)},
	})
}

// healingSettle is how long a cluster counts as upset after its agents came.
const healingSettle = 130 * time.Second

// measureHealing runs idle agents in many clusters, first with the healing schedule paused and then with it.
func (r *run) measureHealing(ctx context.Context, i *Installation, cost *healingCost, d time.Duration) error {
	for n := range cost.Clusters {
		if _, err := i.Clusters.Create(ctx, client.Settings{"name": fmt.Sprintf("bench-%d", n+1)}); err != nil {
			return err
		}
	}
	all := cost.Clusters * cost.Agents
	if err := i.startIdle(ctx, all, "--cluster", "bench", "--clusters", strconv.Itoa(cost.Clusters),
		"--count", strconv.Itoa(cost.Agents)); err != nil {
		return err
	}
	// What the joins upset is looked at for two minutes; the cost of nothing being wrong begins after that.
	fmt.Fprintf(r.story,
		"%d agents in %d clusters are online; measuring for %s without healing and %s with it, after they have settled\n",
		all, cost.Clusters, d, d)
	if err := pause(ctx, healingSettle); err != nil {
		return err
	}
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var began time.Time
	for _, phase := range []struct {
		set  func(context.Context, string) (*api.HealingStatus, error)
		load *healingLoad
	}{{i.Healing.Pause, &cost.Paused}, {i.Healing.Resume, &cost.Active}} {
		if _, err := phase.set(ctx, ""); err != nil {
			return err
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		began = time.Now()
		if *phase.load, err = i.load(ctx, d); err != nil {
			return err
		}
	}
	return cost.countCycles(ctx, c, i.namespace, began)
}

// load watches the database and the processor for a while.
func (i *Installation) load(ctx context.Context, d time.Duration) (load healingLoad, err error) {
	before := cpuTimes(i.plane.PID())
	watch, done := context.WithTimeout(ctx, d)
	defer done()
	if load.databaseWrites, err = watchWAL(watch, filepath.Join(i.dir, "data", "temporal.db-wal")); err != nil {
		return load, err
	}
	load.CPU = 100 * (cpuTimes(i.plane.PID()) - before).Seconds() / d.Seconds()
	return load, ctx.Err()
}

// countCycles adds up the cycles that began since a time.
func (h *healingCost) countCycles(ctx context.Context, c sdkclient.Client, namespace string, since time.Time) error {
	query := fmt.Sprintf("%s AND StartTime >= '%s'", contract.Equals("WorkflowType", contract.HealingCycleWorkflow),
		since.UTC().Format(time.RFC3339Nano))
	var took time.Duration
	for info, err := range (store.Store{Client: c, Namespace: namespace}).Workflows(ctx, query) {
		if err != nil {
			return fmt.Errorf("list the cycles: %w", err)
		}
		if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			continue
		}
		h.Cycles++
		took += info.GetExecutionDuration().AsDuration()
		events := c.GetWorkflowHistory(ctx, info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId(), false,
			enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			if err != nil {
				return fmt.Errorf("read a cycle: %w", err)
			}
			h.Events++
			if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
				h.WorkflowTasks++
			}
		}
	}
	if h.Cycles == 0 {
		return fmt.Errorf("no healing cycle ran: measure for longer than a minute")
	}
	h.CycleTime = milliseconds(took / time.Duration(h.Cycles))
	h.Queries = int64(h.Cycles * (h.Clusters + 1)) // and the cluster that every control plane has
	return nil
}

const (
	walHeader      = 32 // bytes of the file's header, and of each frame's below
	walFrame       = 24
	walLook        = 50 * time.Millisecond
	walFrameCommit = 4 // where a frame has the database's size after a commit; 0: no commit
	walFrameSalt   = 8
)

// databaseWrites is what SQLite has written to its write-ahead log.
type databaseWrites struct {
	Transactions int64 `json:"transactions"`
	Pages        int64 `json:"pages"`
}

// watchWAL counts the transactions and pages that reach a write-ahead log until ctx ends. Frames that a checkpoint
// makes SQLite write over are counted before, as long as it does not fill the log within walLook.
func watchWAL(ctx context.Context, path string) (databaseWrites, error) {
	var writes databaseWrites
	var at walPosition
	if _, err := at.read(path); err != nil {
		return writes, err
	}
	tick := time.NewTicker(walLook)
	defer tick.Stop()
	for {
		grown, err := at.read(path)
		if err != nil {
			return writes, err
		}
		writes.Transactions += grown.Transactions
		writes.Pages += grown.Pages
		select {
		case <-tick.C:
		case <-ctx.Done():
			return writes, nil
		}
	}
}

// walPosition is how far a log was read: the salt of its present round, and the frames of that.
type walPosition struct {
	salt   [8]byte
	frames int64
}

// read counts what is new since the last time.
func (p *walPosition) read(path string) (grown databaseWrites, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return grown, nil
	}
	if err != nil {
		return grown, fmt.Errorf("read the database's log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var header [walHeader]byte
	if _, err := io.ReadFull(file, header[:]); err != nil {
		return grown, nil // it is empty still
	}
	page := int64(binary.BigEndian.Uint32(header[8:]))
	if salt := [8]byte(header[16:24]); salt != p.salt {
		p.salt, p.frames = salt, 0 // begun anew after a checkpoint
	}
	for {
		var frame [walFrame]byte
		if _, err := file.ReadAt(frame[:], walHeader+p.frames*(walFrame+page)); err != nil {
			return grown, nil // the end
		}
		if [8]byte(frame[walFrameSalt:walFrameSalt+8]) != p.salt {
			return grown, nil // of an earlier round
		}
		p.frames++
		grown.Pages++
		if binary.BigEndian.Uint32(frame[walFrameCommit:]) != 0 {
			grown.Transactions++
		}
	}
}
