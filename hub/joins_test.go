package hub

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
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
			join := fleet.Join{AgentProfile: fleet.AgentProfile{Version: strings.Repeat("v", c.bytes)}}
			require.Equal(t, c.first, firstJoins(slices.Repeat([]*pendingJoin{{join: join}}, c.waiting)))
		})
	}
}
