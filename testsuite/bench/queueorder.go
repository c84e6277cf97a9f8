package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// priorities are the classes of tasks, 1 (first) to priorities.
const priorities = 5

// Order is in which order tasks of mixed priority began that had queued up while nobody served their lane.
type Order struct {
	Tasks   int     `json:"tasks"`
	Slots   int     `json:"slots"`
	Classes []Class `json:"classes"`
	// Overtaking is how many tasks began before one of a higher class.
	Overtaking int `json:"overtaking"`
	// Inversions is how many of these the slots do not explain: of the tasks that began later, more were of a higher
	// class than can have been on their way to the other slots.
	Inversions int `json:"inversions"`
	// Worst is the most tasks of higher classes that one task began before.
	Worst int `json:"most_overtaken_by_one"`
}

// Class is the tasks of one priority. Positions count from 1 in the order of first instructions.
type Class struct {
	Priority int     `json:"priority"`
	Tasks    int     `json:"tasks"`
	First    int     `json:"first_position"`
	Last     int     `json:"last_position"`
	Mean     float64 `json:"mean_position"`
}

// judgeOrder takes the priorities of tasks in the order in which they began.
func judgeOrder(began []int, slots int) *Order {
	o := &Order{Tasks: len(began), Slots: slots}
	var later [priorities + 1]int
	for _, p := range began {
		later[p]++
	}
	classes := map[int]*Class{}
	for i, p := range began {
		later[p]--
		higher := 0
		for q := 1; q < p; q++ {
			higher += later[q]
		}
		if higher > 0 {
			o.Overtaking++
		}
		if higher > slots-1 {
			o.Inversions++
		}
		o.Worst = max(o.Worst, higher)
		c := classes[p]
		if c == nil {
			c = &Class{Priority: p, First: i + 1}
			classes[p] = c
		}
		c.Tasks++
		c.Last = i + 1
		c.Mean += float64(i + 1)
	}
	for p := 1; p <= priorities; p++ {
		if c := classes[p]; c != nil {
			c.Mean /= float64(c.Tasks)
			o.Classes = append(o.Classes, *c)
		}
	}
	return o
}

// write prints the order as a table.
func (o *Order) write(w io.Writer) {
	t := newTable(
		w,
		fmt.Sprintf("priority, of %d tasks to %d slots", o.Tasks, o.Slots),
		"tasks",
		"began as",
		"mean position",
	)
	for _, c := range o.Classes {
		t.row(c.Priority, c.Tasks, fmt.Sprintf("%d … %d", c.First, c.Last), fmt.Sprintf("%.0f", c.Mean))
	}
	t.row("inversions", o.Inversions, "", "")
	t.row("began before one of a higher class, within the slots", o.Overtaking-o.Inversions, "", "")
	t.row("most of higher classes that one began before", o.Worst, "", "")
	t.flush()
}

// specialCapability is what half of the tasks of two lanes need.
const specialCapability = "special"

// newTasks are n tasks that only note in the ledger that they began; set changes the nth.
func newTasks(cluster string, n int, set func(int, *api.TaskRequest)) []*api.TaskRequest {
	tasks := make([]*api.TaskRequest, n)
	for i := range tasks {
		tasks[i] = &api.TaskRequest{ID: cluster + "-" + strconv.Itoa(i),
			TaskSpec: fleet.TaskSpec{Type: workType, Cluster: cluster, Payload: work(0)}}
		set(i, tasks[i])
	}
	return tasks
}

// measureOrder queues tasks of mixed priority on a lane without agents, then starts an agent.
func measureOrder(ctx context.Context, i *Installation, p *queuePlan, progress io.Writer) (*Order, error) {
	// The same mixture in every run.
	mixture := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	c := newCrew(i, "bench-order", 1)
	return c.order(ctx, p, progress, func(_ int, task *api.TaskRequest) {
		task.Priority = fleet.Priority(1 + mixture.IntN(priorities))
	})
}

// measureLanes queues tasks of the highest priority on the lane of a capability and as many of the lowest on the
// cluster's lane, then starts an agent that serves both. Temporal orders each lane by itself.
func measureLanes(ctx context.Context, i *Installation, p *queuePlan, progress io.Writer) (*Order, error) {
	c := newCrew(i, "bench-lanes", 1)
	c.capability = specialCapability
	return c.order(ctx, p, progress, func(n int, task *api.TaskRequest) {
		if task.Priority = priorities; n%2 == 0 {
			task.Priority, task.RequiredCapabilities = 1, []string{specialCapability}
		}
	})
}

// order has tasks queue up and judges the order in which they began.
func (c *crew) order(
	ctx context.Context, p *queuePlan, progress io.Writer, set func(int, *api.TaskRequest),
) (*Order, error) {
	tasks := newTasks(c.cluster, p.tasks, set)
	priority := make(map[string]int, len(tasks))
	for _, task := range tasks {
		priority[task.ID] = int(task.Priority)
	}
	ids, err := c.drainQueued(ctx, nil, tasks, p.slots, progress)
	if err != nil {
		return nil, err
	}
	began := make([]int, len(ids))
	for n, id := range ids {
		began[n] = priority[id]
	}
	return judgeOrder(began, p.slots), nil
}

// drainQueued submits tasks while their cluster has no agent, starts one when all of them wait, and returns their ids
// in the order of their first instructions. settings are added to the cluster's.
func (c *crew) drainQueued(ctx context.Context, settings client.Settings, tasks []*api.TaskRequest, slots int,
	progress io.Writer) ([]string, error) {
	temporal, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer temporal.Close()
	if err := c.create(ctx, fleet.ActiveActive, settings); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := c.submitBatches(ctx, tasks, progress); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	lanes, ids := map[string]int{}, make([]string, len(tasks))
	for n, task := range tasks {
		lanes[contract.Lane(&task.TaskSpec, 0, false)]++
		ids[n] = task.ID
	}
	for lane, n := range lanes {
		if err := awaitBacklog(ctx, temporal, c.namespace, lane, n); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(progress, "%s: %d tasks are queued, submitted in %s; now an agent with %d slots comes\n", c.cluster,
		len(tasks), took.Round(10*time.Millisecond), slots)
	c.slots = slots
	if err := c.startAgents(ctx, c.ids...); err != nil {
		return nil, err
	}
	if err := c.awaitBegun(ctx, ids); err != nil {
		return nil, err
	}
	if err := c.awaitIdle(ctx, settleLimit); err != nil {
		return nil, err
	}
	c.leave()
	return beginOrder(c.ledger.entries), nil
}

// beginOrder are the tasks in the order of their first begins.
func beginOrder(entries []ledgerEntry) []string {
	first := map[string]int64{}
	for _, e := range entries {
		if at, seen := first[e.Task]; e.Event == ledgerBegin && (!seen || e.At < at) {
			first[e.Task] = e.At
		}
	}
	return slices.SortedFunc(maps.Keys(first), func(a, b string) int { return cmp.Compare(first[a], first[b]) })
}

// Tenants of the fairness benchmark. The big one submits nine times as much, all of it before the small one.
const (
	bigTenant   = "big"
	smallTenant = "small"
)

// Fairness is how two tenants shared a lane. Positions count from 1 in the order of first instructions.
type Fairness struct {
	BigWeight   int `json:"big_weight"`
	SmallWeight int `json:"small_weight"`
	Big         int `json:"big_tasks"`
	Small       int `json:"small_tasks"`
	Slots       int `json:"slots"`
	// Share is the small tenant's part of the first Window tasks; Fair is what its weight would give it.
	Window int     `json:"window"`
	Share  float64 `json:"small_share"`
	Fair   float64 `json:"fair_share"`
	First  int     `json:"small_first_position"`
	Last   int     `json:"small_last_position"`
	// Run is the most tasks of the big tenant between two of the small one.
	Run int `json:"longest_run_of_big"`
}

// judge takes the tenants of tasks in the order in which they began.
func (f *Fairness) judge(began []string) {
	f.Window = min(2*f.Small, len(began))
	f.Fair = float64(f.SmallWeight) / float64(f.SmallWeight+f.BigWeight)
	run, early := 0, 0
	for i, tenant := range began {
		if tenant != smallTenant {
			run++
			continue
		}
		if f.First == 0 {
			f.First = i + 1
		} else {
			f.Run = max(f.Run, run)
		}
		run, f.Last = 0, i+1
		if i < f.Window {
			early++
		}
	}
	if f.Window > 0 {
		f.Share = float64(early) / float64(f.Window)
	}
}

// writeFairness prints a table.
func writeFairness(w io.Writer, all []Fairness) {
	t := newTable(
		w,
		"weights, big : small",
		"tasks",
		"share of the small one in the first",
		"by its weight",
		"its first",
		"its last",
		"longest run of the big one",
	)
	for _, f := range all {
		t.row(
			fmt.Sprintf("%d : %d", f.BigWeight, f.SmallWeight),
			fmt.Sprintf("%d : %d", f.Big, f.Small),
			fmt.Sprintf(
				"%.1f %% of %d",
				100*f.Share,
				f.Window,
			),
			fmt.Sprintf("%.1f %%", 100*f.Fair),
			f.First,
			f.Last,
			f.Run,
		)
	}
	t.flush()
}

// measureFairness has two tenants queue up on a lane without agents, then starts an agent.
func measureFairness(
	ctx context.Context, i *Installation, p *queuePlan, bigWeight, smallWeight int, progress io.Writer,
) (*Fairness, error) {
	f := &Fairness{BigWeight: bigWeight, SmallWeight: smallWeight, Slots: p.slots, Small: max(1, p.tasks/10)}
	f.Big = p.tasks - f.Small
	c := newCrew(i, fmt.Sprintf("bench-fair-%d-%d", bigWeight, smallWeight), 1)
	tasks := newTasks(c.cluster, p.tasks, func(n int, task *api.TaskRequest) {
		if task.Tenant = bigTenant; n >= f.Big {
			task.Tenant = smallTenant
		}
		task.ID = fleet.Qualify(task.Tenant, task.ID) // as the agent has it
	})
	settings := client.Settings{"tenant_weights": map[string]int{bigTenant: bigWeight, smallTenant: smallWeight}}
	ids, err := c.drainQueued(ctx, settings, tasks, p.slots, progress)
	if err != nil {
		return nil, err
	}
	began := make([]string, len(ids))
	for n, id := range ids {
		began[n], _ = fleet.CutTenant(id)
	}
	f.judge(began)
	return f, nil
}
