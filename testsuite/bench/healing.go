package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
)

// HealingCost is what the healing cycle costs while nothing is wrong.
type HealingCost struct {
	Clusters int           `json:"clusters"`
	Agents   int           `json:"agents_each"`
	For      time.Duration `json:"-"` // of each of the two measurements
	// Cycles ran within the measurement, with WorkflowTasks and history events of their own; Queries asked clusters.
	Cycles        int   `json:"cycles"`
	WorkflowTasks int64 `json:"workflow_tasks"`
	Events        int64 `json:"history_events_of_cycles"`
	Queries       int64 `json:"queries"`
	// CycleTime is how long a cycle took on average.
	CycleTime time.Duration `json:"-"`
	// Paused and Active are what the database wrote, and how busy the process was, with the schedule paused and not.
	Paused HealingLoad `json:"paused"`
	Active HealingLoad `json:"active"`
}

// HealingLoad is what the process with Temporal, gateway, hub and worker did.
type HealingLoad struct {
	DatabaseWrites
	CPU float64 `json:"cpu_percent_of_a_core"`
}

// PerMinute is a count of the whole measurement as one of a minute.
func (h *HealingCost) PerMinute(n int64) float64 {
	return float64(n) * time.Minute.Seconds() / h.For.Seconds()
}

// MeasureHealing runs idle agents in many clusters, first with the healing schedule paused and then with it.
func MeasureHealing(
	ctx context.Context, i *Installation, clusters, agents int, d time.Duration, progress io.Writer,
) (*HealingCost, error) {
	for n := range clusters {
		if err := i.call(ctx, http.MethodPost, "/clusters", map[string]any{"name": fmt.Sprintf("bench-%d", n+1)},
			nil); err != nil {
			return nil, err
		}
	}
	if _,
		err := i.Start("agents", "bench", "agent", "--hub", i.HubURL(), "--cluster", "bench", "--clusters",
		strconv.Itoa(clusters),
		"--id", "idle", "--count", strconv.Itoa(agents)); err != nil {
		return nil, err
	}
	if err := awaitSessions(ctx, i.HubURL(), clusters*agents); err != nil {
		return nil, err
	}
	// What the joins upset is looked at for two minutes; the cost of nothing being wrong begins after that.
	fmt.Fprintf(progress,
		"%d agents in %d clusters are online; measuring for %s without healing and %s with it, after they have settled\n", clusters*agents, clusters, d, d)
	if err := pause(ctx, healingSettle); err != nil {
		return nil, err
	}
	c, err := i.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	cost := &HealingCost{Clusters: clusters, Agents: agents, For: d}
	for _, phase := range []struct {
		action string
		load   *HealingLoad
	}{{"pause", &cost.Paused}, {"resume", &cost.Active}} {
		if err := i.call(ctx, http.MethodPost, "/healing/"+phase.action, map[string]any{}, nil); err != nil {
			return nil, err
		}
		if err := pause(ctx, settle); err != nil {
			return nil, err
		}
		began := time.Now()
		if *phase.load, err = i.load(ctx, d); err != nil {
			return nil, err
		}
		if phase.load == &cost.Active {
			err = cost.countCycles(ctx, c, i.Namespace, began)
		}
		if err != nil {
			return nil, err
		}
	}
	return cost, nil
}

// healingSettle is how long a cluster counts as upset after its agents came.
const healingSettle = 130 * time.Second

// load watches the database and the processor for a while.
func (i *Installation) load(ctx context.Context, d time.Duration) (HealingLoad, error) {
	before, err := CPUTime(i.PID())
	if err != nil {
		return HealingLoad{}, err
	}
	watch, done := context.WithTimeout(ctx, d)
	defer done()
	writes, err := watchWAL(watch, filepath.Join(i.dir, "data", "temporal.db-wal"))
	if err != nil || ctx.Err() != nil {
		return HealingLoad{}, cmpErr(ctx, err)
	}
	after, err := CPUTime(i.PID())
	return HealingLoad{DatabaseWrites: writes, CPU: 100 * (after - before).Seconds() / d.Seconds()}, err
}

func cmpErr(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}

// countCycles adds up the cycles that began since a time.
func (h *HealingCost) countCycles(ctx context.Context, c client.Client, namespace string, since time.Time) error {
	query := fmt.Sprintf("%s AND StartTime >= '%s'", contract.Equals("WorkflowType", contract.HealingCycleWorkflow),
		since.UTC().Format(time.RFC3339Nano))
	for info, err := range (store.Store{Client: c, Namespace: namespace}).Workflows(ctx, query) {
		if err != nil {
			return fmt.Errorf("list the cycles: %w", err)
		}
		if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			continue
		}
		h.Cycles++
		h.CycleTime += info.GetExecutionDuration().AsDuration()
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
	h.CycleTime /= time.Duration(h.Cycles)
	h.Queries = int64(h.Cycles * (h.Clusters + 1)) // and the cluster that every control plane has
	return nil
}
