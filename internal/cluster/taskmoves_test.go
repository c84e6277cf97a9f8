package cluster

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

// holder is an agent with so many tasks that may move, the first ones the oldest.
func holder(id string, slots, tasks int) *TaskHolder {
	h := &TaskHolder{Member: &Member{AgentID: id}, Slots: slots}
	for i := range tasks {
		h.Tasks = append(h.Tasks, api.HeldTask{TaskID: fmt.Sprintf("%s-%d", id, i), Attempt: 1, Movable: true})
	}
	return h
}

func TestSpreadTasks(t *testing.T) {
	t.Parallel()
	pinned := holder("a", 4, 4)
	for i := range pinned.Tasks {
		pinned.Tasks[i].Movable = i == 1
	}
	moving := holder("a", 4, 4)
	moving.Tasks[3].Movable, moving.Tasks[3].MovingTo = false, "b"
	needs := holder("a", 4, 4)
	for i := range needs.Tasks {
		needs.Tasks[i].RequiredCapabilities = []string{"gpu"}
	}
	able := holder("c", 4, 3)
	able.Capabilities = []string{"gpu"}
	for name, c := range map[string]struct {
		holders []*TaskHolder
		moves   []string
	}{
		"even":       {[]*TaskHolder{holder("a", 4, 2), holder("b", 4, 1)}, nil},
		"all on one": {[]*TaskHolder{holder("a", 4, 4), holder("b", 4, 0)}, []string{"a-3 a→b", "a-2 a→b"}},
		"to several": {[]*TaskHolder{holder("a", 4, 4), holder("b", 4, 0), holder("c", 4, 0)},
			[]string{"a-3 a→b", "a-2 a→c"}},
		"shares, not tasks": {[]*TaskHolder{holder("a", 10, 6), holder("b", 2, 0)}, []string{"a-5 a→b"}},
		"full":              {[]*TaskHolder{holder("a", 9, 9), holder("b", 1, 1)}, nil},
		"others stay":       {[]*TaskHolder{pinned, holder("b", 4, 0)}, []string{"a-1 a→b"}},
		"on its way":        {[]*TaskHolder{moving, holder("b", 4, 0)}, []string{"a-2 a→b"}},
		"who can run it": {[]*TaskHolder{needs, holder("b", 4, 0), able},
			[]string{"c-2 c→b", "a-3 a→c", "c-1 c→b"}},
		"alone": {[]*TaskHolder{holder("a", 4, 4)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := api.Rebalance{Mode: api.ActiveActive}
			SpreadTasks(&r, c.holders)
			var moves []string
			for _, m := range r.Moves {
				moves = append(moves, m.Task+" "+m.From+"→"+m.To)
			}
			require.Equal(t, c.moves, moves)
		})
	}
	r := api.Rebalance{Mode: api.Sharded, Why: "x"}
	SpreadTasks(&r, []*TaskHolder{holder("a", 4, 4), holder("b", 4, 0)})
	require.Empty(t, r.Moves)
	require.Equal(t, "x; tasks stay where roles have them", r.Why)
}

// TestOnlyMovesThatWereMadeAreTold has a hub make one of two moves, and another hub none.
func TestOnlyMovesThatWereMadeAreTold(t *testing.T) {
	t.Parallel()
	r := api.Rebalance{Mode: api.ActiveActive, Why: "even", Moves: []api.RebalanceMove{{Target: "t", To: "c"}},
		Agents: []api.AgentShare{{AgentID: "a"}, {AgentID: "b"}, {AgentID: "c"}}}
	SpreadTasks(&r, []*TaskHolder{holder("a", 4, 3), holder("b", 4, 3), holder("c", 4, 0)})
	require.Equal(t, "even", r.Why, "nothing was made yet")
	require.Len(t, r.Moves, 3)
	require.Equal(t, []int{2, 2, 2}, []int{r.Agents[0].Tasks, r.Agents[1].Tasks, r.Agents[2].Tasks})
	kept := r.Moves[1]
	other := map[string]string{"a": "b", "b": "a"}[kept.From]
	KeepMadeMoves(&r, map[HeldAttempt]bool{{TaskID: kept.Task, Attempt: 1}: true}, map[string]string{other: "it did not answer"})
	require.Equal(t, []api.RebalanceMove{{Target: "t", To: "c"}, kept}, r.Moves)
	require.Equal(t, "even; 1 of 2 tasks move; none from agent "+other+": it did not answer", r.Why)
	for _, g := range r.Agents {
		require.Equal(t, map[string]int{kept.From: 2, other: 3, "c": 1}[g.AgentID], g.Tasks, g.AgentID)
	}
}

func TestSpreadTasksProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var holders []*TaskHolder
		fullest := 0.0
		for i := range rapid.IntRange(1, 8).Draw(t, "agents") {
			slots := rapid.IntRange(1, 8).Draw(t, "slots")
			h := holder(fmt.Sprint("a", i), slots, rapid.IntRange(0, slots).Draw(t, "tasks"))
			for n := range h.Tasks {
				h.Tasks[n].Movable = rapid.Bool().Draw(t, "movable")
			}
			fullest = max(fullest, float64(len(h.Tasks))/float64(slots))
			holders = append(holders, h)
		}
		r := api.Rebalance{Mode: api.ActiveActive}
		SpreadTasks(&r, holders)
		seen := map[string]bool{}
		for _, m := range r.Moves {
			require.False(t, seen[m.Task], "no task moves twice")
			seen[m.Task] = true
		}
		for _, h := range holders {
			require.LessOrEqual(t, h.count, h.Slots)
			require.LessOrEqual(t, float64(h.count)/float64(h.Slots), fullest)
		}
		require.False(t, moveTask(&r, holders), "asked again, nothing moves")
	})
}
