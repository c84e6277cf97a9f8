package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

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

// measureOrder queues tasks of mixed priority on a lane without agents, then starts an agent.
func measureOrder(ctx context.Context, i *Installation, p *QueuePlan, progress io.Writer) (*Order, error) {
	const cluster = "bench-order"
	// The same mixture in every run.
	mixture := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	tasks := make([]queuedTask, p.Tasks)
	for n := range tasks {
		tasks[n] = queuedTask{ID: cluster + "-" + strconv.Itoa(n), Type: WorkType, Cluster: cluster,
			Priority: 1 + mixture.IntN(priorities), Payload: trivialWork}
	}
	return orderOf(ctx, i, newCrew(i, cluster, 1, fleet.Idempotent), tasks, p.Slots, progress)
}

// specialCapability is what half of the tasks of two lanes need.
const specialCapability = "special"

// measureLanes queues tasks of the highest priority on the lane of a capability and as many of the lowest on the
// cluster's lane, then starts an agent that serves both. Temporal orders each lane by itself.
func measureLanes(ctx context.Context, i *Installation, p *QueuePlan, progress io.Writer) (*Order, error) {
	const cluster = "bench-lanes"
	tasks := make([]queuedTask, p.Tasks)
	for n := range tasks {
		tasks[n] = queuedTask{ID: cluster + "-" + strconv.Itoa(n), Type: WorkType, Cluster: cluster,
			Priority: priorities, Payload: trivialWork}
		if n%2 == 0 {
			tasks[n].Priority, tasks[n].Required = 1, []string{specialCapability}
		}
	}
	c := newCrew(i, cluster, 1, fleet.Idempotent)
	c.capability = specialCapability
	return orderOf(ctx, i, c, tasks, p.Slots, progress)
}

// orderOf has tasks queue up and judges the order in which they began.
func orderOf(
	ctx context.Context, i *Installation, c *crew, tasks []queuedTask, slots int, progress io.Writer,
) (*Order, error) {
	priority := make(map[string]int, len(tasks))
	for n := range tasks {
		priority[tasks[n].ID] = tasks[n].Priority
	}
	ids, err := drainQueued(ctx, i, c, nil, tasks, slots, progress)
	if err != nil {
		return nil, err
	}
	began := make([]int, len(ids))
	for n, id := range ids {
		began[n] = priority[id]
	}
	return judgeOrder(began, slots), nil
}

// drainQueued submits tasks while their cluster has no agent, starts one when all of them wait, and returns their ids
// in the order of their first instructions. settings are added to the cluster's.
func drainQueued(ctx context.Context, i *Installation, c *crew, settings map[string]any, tasks []queuedTask, slots int,
	progress io.Writer) ([]string, error) {
	client, err := i.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := c.createWith(ctx, fleet.ActiveActive, settings); err != nil {
		return nil, err
	}
	took, err := i.submitBatches(ctx, tasks, progress)
	if err != nil {
		return nil, err
	}
	lanes := map[string]int{}
	for n := range tasks {
		spec := fleet.TaskSpec{Cluster: tasks[n].Cluster, RequiredCapabilities: tasks[n].Required}
		lanes[contract.Lane(&spec, 0)]++
	}
	for lane, n := range lanes {
		if err := awaitBacklog(ctx, client, i.Namespace, lane, n); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(progress, "%s: %d tasks are queued, submitted in %s; now an agent with %d slots comes\n", c.cluster,
		len(tasks), took.Round(10*time.Millisecond), slots)
	c.slots = slots
	if err := c.start(ctx, c.ids...); err != nil {
		return nil, err
	}
	if err := c.awaitBegun(ctx, tasks); err != nil {
		return nil, err
	}
	if err := c.awaitIdle(ctx, settleLimit); err != nil {
		return nil, err
	}
	c.stop()
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
	ids := make([]string, 0, len(first))
	for id := range first {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(first[a], first[b]) })
	return ids
}
