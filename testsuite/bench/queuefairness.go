package bench

import (
	"context"
	"fmt"
	"io"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

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
