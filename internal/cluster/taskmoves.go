package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

const (
	// maxTaskMoves bounds the tasks that one rebalance moves.
	maxTaskMoves = 100
	// takersTried bounds the agents that are tried for the tasks of one other.
	takersTried = 20
)

// TaskHolder is a member that gets work, with its slots and what it runs.
type TaskHolder struct {
	*Member
	Slots int
	Tasks []api.HeldTask // the oldest first
	count int
}

// SpreadTasks adds moves of tasks until the agents use their slots as evenly as whole tasks allow. Each move takes the
// task that began last, from the fullest agent whose tasks may move to the emptiest that can run one. Tasks on their
// way count for the agent that gets them.
func SpreadTasks(r *api.Rebalance, holders []*TaskHolder) {
	if r.Mode != api.ActiveActive {
		r.Why += "; tasks stay where roles have them"
		return
	}
	on := map[string]*TaskHolder{}
	for _, h := range holders {
		on[h.AgentID], h.count = h, len(h.Tasks)
	}
	for _, h := range holders {
		for _, t := range h.Tasks {
			if to := on[t.MovingTo]; to != nil {
				h.count, to.count = h.count-1, to.count+1
			}
		}
	}
	before := map[string]int{}
	for id, h := range on {
		before[id] = h.count
	}
	moved := 0
	for moved < maxTaskMoves && moveTask(r, holders) {
		moved++
	}
	for i := range r.Agents {
		if h := on[r.Agents[i].AgentID]; h != nil {
			r.Agents[i].TasksBefore, r.Agents[i].Tasks = before[h.AgentID], h.count
		}
	}
	switch {
	case moved == 0:
		r.Why += "; no task can move to an agent with a smaller share of its slots in use"
	case r.DryRun:
		r.Why += fmt.Sprintf("; %s would move", api.Count(moved, "task"))
	}
}

// KeepMadeMoves drops the moves of tasks that hubs did not make, from the counts and the words too. unmoved says for
// each agent why none of its tasks moved.
func KeepMadeMoves(r *api.Rebalance, made map[HeldAttempt]bool, unmoved map[string]string) {
	planned, moved := 0, 0
	r.Moves = slices.DeleteFunc(r.Moves, func(m api.RebalanceMove) bool {
		if m.Task == "" {
			return false
		}
		planned++
		if made[HeldAttempt{TaskID: m.Task, Attempt: m.Attempt}] {
			moved++
			return false
		}
		for i := range r.Agents {
			switch g := &r.Agents[i]; g.AgentID {
			case m.From:
				g.Tasks++
			case m.To:
				g.Tasks--
			}
		}
		return true
	})
	r.Why += "; "
	if moved < planned {
		r.Why += fmt.Sprintf("%d of ", moved)
	}
	r.Why += api.Count(planned, "task") + api.Plural(planned, " moves", " move")
	for _, agent := range slices.Sorted(maps.Keys(unmoved)) {
		r.Why += "; none from agent " + agent + ": " + unmoved[agent]
	}
}

// moveTask finds the next move and makes it in the holders; false: there is none.
func moveTask(r *api.Rebalance, holders []*TaskHolder) bool {
	// fuller compares the shares of their slots that agents use, with some tasks more, without rounding.
	fuller := func(a, b *TaskHolder, more int) int { return cmp.Compare((a.count+more)*b.Slots, b.count*a.Slots) }
	slices.SortFunc(holders, func(a, b *TaskHolder) int {
		return cmp.Or(fuller(a, b, 0), strings.Compare(a.AgentID, b.AgentID))
	})
	for i := len(holders) - 1; i > 0; i-- {
		from := holders[i]
		for k := range min(i, takersTried) {
			to := holders[k]
			if to.count >= to.Slots || fuller(to, from, 1) >= 0 {
				continue
			}
			for n := len(from.Tasks) - 1; n >= 0; n-- {
				if t := from.Tasks[n]; t.Movable && to.CanRun(t) {
					from.Tasks = slices.Delete(slices.Clone(from.Tasks), n, n+1)
					from.count, to.count = from.count-1, to.count+1
					r.Moves = append(r.Moves,
						api.RebalanceMove{Task: t.TaskID, Attempt: t.Attempt, From: from.AgentID, To: to.AgentID})
					return true
				}
			}
		}
	}
	return false
}
