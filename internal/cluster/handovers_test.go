package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestHandoversOfTheLeadership(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActivePassive, "a", "b")
	for _, step := range []struct {
		name   string
		leader string
		want   int64
	}{
		{"the first leader", "a", 0},
		{"another", "b", 1},
		{"the same again", "b", 1},
		{"back", "a", 2},
	} {
		c.VacateLeader(0, noon)
		_, elected := c.Promote(step.leader, noon)
		require.True(t, elected, step.name)
		require.Equal(t, step.want, c.Handovers, step.name)
	}
}
