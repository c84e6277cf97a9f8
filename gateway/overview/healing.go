package overview

import (
	"context"
	"sync"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

// selfCareRuns is whether healing, and the rules of scaling, run by themselves.
type selfCareRuns struct{ healing, scaling diagnosis.ScheduleRun }

// loops reads both side by side; one that cannot be read counts as running, and is told as missing.
func (b *overviewBuilder) loops(ctx context.Context, h *Handlers) (runs selfCareRuns) {
	var both sync.WaitGroup
	read := func(id, part string, into *diagnosis.ScheduleRun) {
		run, err := h.ScheduleRun(ctx, id)
		if *into = run; err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.missing(part)
		}
	}
	both.Go(func() { read(contract.HealingScheduleID, "whether healing runs", &runs.healing) })
	both.Go(func() { read(contract.ScalingScheduleID, "whether the rules of scaling run", &runs.scaling) })
	both.Wait()
	return runs
}

// selfCare tells what is wrong with healing and scaling, from what was read for the rest of the overview.
func (b *overviewBuilder) selfCare(views []contract.ClusterView, live store.Live, runs selfCareRuns) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byCluster := map[string][]*api.Lane{}
	for i := range b.Lanes {
		byCluster[b.Lanes[i].Cluster] = append(byCluster[b.Lanes[i].Cluster], &b.Lanes[i])
	}
	facts := make([]fleet.ClusterFacts, len(views))
	ruled := 0
	for i := range views {
		c := &views[i].Cluster
		facts[i] = fleet.ClusterFacts{Cluster: *c, CreatedAt: views[i].CreatedAt}
		if !c.Config.Scaling.On() {
			continue
		}
		if c.Config.Scaling.Mode == fleet.ScalingAuto {
			ruled++
		}
		backlog, oldest := fleet.ScalingFacts{Agents: live.Activities(c)}, fleet.Duration(0)
		counts := map[string]bool{}
		for _, lane := range c.ScalingLanes() {
			counts[lane] = true
		}
		for _, lane := range byCluster[c.Config.Name] {
			if counts[lane.Lane] && lane.Depth > 0 {
				backlog.Queue += lane.Depth
				oldest = max(oldest, lane.OldestAge)
			}
		}
		b.Problems = append(b.Problems, diagnosis.OfScaling(c, &backlog, oldest.Std(), b.At)...)
	}
	b.Problems = append(b.Problems, diagnosis.OfHealing(facts, runs.healing, b.At)...)
	if p, there := diagnosis.OfScalingRun(runs.scaling, ruled); there {
		b.Problems = append(b.Problems, p)
	}
}
