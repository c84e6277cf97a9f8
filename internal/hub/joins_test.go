package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Many joins of agents that tell much of themselves must not make an update that Temporal refuses.
func TestJoinsOfOneUpdateHaveABound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ waiting, bytes, first int }{
		"one":        {1, 100, 1},
		"few":        {7, 100, 7},
		"many":       {joinBatch + 1, 100, joinBatch},
		"large ones": {joinBatch, joinBytes/10 - 100, 10},
		"a huge one": {2, joinBytes + 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			join := cluster.Join{AgentProfile: api.AgentProfile{Version: strings.Repeat("v", c.bytes)}}
			require.Equal(t, c.first, firstJoins(slices.Repeat([]*pendingJoin{{join: join}}, c.waiting)))
		})
	}
}

// TestTasksThatNobodyHandledAreOfferedToNewAgents looks at all of them, at a pace, and begins anew for those that join
// meanwhile.
func TestTasksThatNobodyHandledAreOfferedToNewAgents(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.temporal.unhandled = 2*wakeMost + 50
		woken := func() []string {
			b.temporal.mu.Lock()
			defer b.temporal.mu.Unlock()
			return slices.Clone(b.temporal.woken)
		}
		rest := wakeMost * time.Second / time.Duration(offersPerSecond())
		b.register("a", 1)
		b.pass(wakeAfter)
		require.Len(t, woken(), wakeMost)
		b.pass(rest)
		require.Len(t, woken(), 2*wakeMost)
		b.register("b", 1)
		b.register("c", 1)
		b.pass(rest + wakeAfter)
		require.Len(t, woken(), 3*wakeMost, "others have joined: it begins anew")
		require.Equal(t, woken()[0], woken()[2*wakeMost])
		b.pass(10 * rest)
		all := woken()
		require.Len(t, all, 4*wakeMost+50)
		require.Equal(t, fmt.Sprint("task/", b.temporal.unhandled-1), all[len(all)-1])
		b.register("d", 1)
		b.pass(wakeAfter)
		require.Len(t, woken(), 5*wakeMost+50)
	})
}
