package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
)

func TestLaneQueues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cluster, lane, queue, owner string }{
		{"c", "default", "lane/c", "c"}, {"c", "cap/a+b", "lane/c/cap/a+b", "c"},
		{"c", "shard/3", "lane/c/shard/3", "c"},
		{"c", "agent/a-1", "lane/c/agent/a-1", "c"}, {"agent", "agent/agent", "lane/agent/agent/agent", "agent"},
		// A cluster may be called as the lanes of agents begin.
		{"agent", "default", "lane/agent", "agent"}, {"agent", "cap/a", "lane/agent/cap/a", "agent"},
		{"agent", "shard/3", "lane/agent/shard/3", "agent"},
	} {
		require.Equal(t, c.queue, contract.LaneQueue(c.cluster, c.lane))
		cluster, lane, ok := contract.LaneOfQueue(c.queue)
		require.True(t, ok)
		require.Equal(t, c.owner, cluster, c.queue)
		require.Equal(t, c.lane, lane, c.queue)
	}
	for _, other := range []string{"", "mainstay", "hub/h", "lane/"} {
		_, _, ok := contract.LaneOfQueue(other)
		require.False(t, ok, other)
	}
	require.Equal(t, task.CapabilityLane([]string{"b", "a"}), task.CapabilityLane([]string{"a", "b", "a"}))
}

func TestLabelTerms(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "n=", "film": "n=film", "a=b": "n=a=b", "two words": "n=two words", "Grüße, 日本": "n=Grüße, 日本",
		"50%":  "n=50%25",
		"it's": "n=it%27s", `say "x"`: "n=say %22x%22", `c:\d`: `n=c:%5Cd`, "a\nb": "n=a%0Ab", "I♡NY": "n=I%E2%99%A1NY",
		"%27": "n=%2527",
	} {
		term := contract.LabelTerm("n", value)
		require.Equal(t, want, term)
		name, back := contract.ParseLabelTerm(term)
		require.Equal(t, "n", name)
		require.Equal(t, value, back)
	}
	_, raw := contract.ParseLabelTerm("n=50% off")
	require.Equal(t, "50% off", raw, "what another program wrote is shown as it is")
}

func TestDirectives(t *testing.T) {
	t.Parallel()
	first := time.Unix(1_800_000_000, 0)
	known := contract.Directive{CreatedAt: first, Version: 7}
	for name, c := range map[string]struct {
		next contract.Directive
		want bool
	}{
		"the next":            {contract.Directive{CreatedAt: first, Version: 8}, true},
		"the same":            {contract.Directive{CreatedAt: first, Version: 7}, false},
		"an older":            {contract.Directive{CreatedAt: first, Version: 6}, false},
		"of a later cluster":  {contract.Directive{CreatedAt: first.Add(time.Second), Version: 0}, true},
		"of an earlier one":   {contract.Directive{CreatedAt: first.Add(-time.Second), Version: 99}, false},
		"in another timezone": {contract.Directive{CreatedAt: first.In(time.FixedZone("x", 3600)), Version: 8}, true},
	} {
		require.Equal(t, c.want, c.next.Replaces(&known), name)
	}
	lanes := contract.Directive{PausedLanes: []string{"cap/gpu"}}
	require.True(t, lanes.Holds("cap/gpu"))
	require.False(t, lanes.Holds("default"))
	all := contract.Directive{Paused: true}
	require.True(t, all.Holds("agent/a"))
}
