package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func TestParseLane(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"default": "default", "cap/gpu": "cap/gpu", "cap/gpu+arm": "cap/arm+gpu", "cap/gpu+gpu": "cap/gpu",
		"shard/0":  "shard/0",
		"shard/15": "shard/15", "agent/a-1": "agent/a-1",
		"": "", "Default": "", "cap/": "", "cap/a+": "", "cap/A": "", "cap/a/b": "", "shard/": "", "shard/-1": "",
		"shard/01": "", "shard/x": "",
		"agent/": "", "agent/a/b": "", "lane/default": "", "other/x": "", "cap": "",
	} {
		got, err := task.ParseLane(name)
		require.Equal(t, want == "", err != nil, name)
		require.Equal(t, want, got, name)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0).UTC() }
	type step struct {
		resume       bool
		lane, reason string
		changed      bool
	}
	for name, c := range map[string]struct {
		steps  []step
		pauses []Pause
		held   map[string]string // lane → the reason of the pause that holds it; absent: none
	}{
		"nothing": {nil, nil, map[string]string{}},
		"a lane": {[]step{{lane: "cap/gpu", reason: "r", changed: true}}, []Pause{{"cap/gpu", at(0), "r"}},
			map[string]string{"cap/gpu": "r"}},
		"the cluster": {[]step{{reason: "r", changed: true}}, []Pause{{"", at(0), "r"}},
			map[string]string{"default": "r", "cap/gpu": "r", "agent/a": "r"}},
		"again": {[]step{{reason: "r", changed: true}, {reason: "s"}, {}}, []Pause{{"", at(0), "s"}},
			map[string]string{"default": "s", "cap/gpu": "s", "agent/a": "s"}},
		"both": {[]step{{lane: "default", reason: "l", changed: true}, {reason: "c", changed: true}},
			[]Pause{{"", at(1), "c"}, {"default", at(0), "l"}},
			map[string]string{"default": "c", "cap/gpu": "c", "agent/a": "c"}},
		"cluster resumed": {[]step{{lane: "default", reason: "l", changed: true}, {reason: "c", changed: true},
			{resume: true, changed: true}}, []Pause{{"default", at(0), "l"}}, map[string]string{"default": "l"}},
		"lane resumed": {[]step{{lane: "default", changed: true}, {reason: "c", changed: true},
			{resume: true, lane: "default", changed: true}}, []Pause{{"", at(1),
			"c"}}, map[string]string{"default": "c", "cap/gpu": "c", "agent/a": "c"}},
		"resumed, not there": {[]step{{lane: "agent/a", reason: "r", changed: true}, {resume: true},
			{resume: true, lane: "default"}}, []Pause{{"agent/a", at(0), "r"}}, map[string]string{"agent/a": "r"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cluster Cluster
			for i, s := range c.steps {
				var changed bool
				if s.resume {
					changed = cluster.Pauses.Resume(s.lane)
				} else {
					var err error
					changed, err = cluster.Pause(s.lane, s.reason, at(i))
					require.NoError(t, err)
				}
				require.Equal(t, s.changed, changed, "step %d", i)
			}
			require.ElementsMatch(t, c.pauses, cluster.Pauses)
			require.True(t, slices.IsSortedFunc(cluster.Pauses,
				func(a, b Pause) int { return strings.Compare(a.Lane, b.Lane) }))
			held := map[string]string{}
			for _, lane := range []string{"default", "cap/gpu", "agent/a"} {
				if p := cluster.Pauses.Of(lane); p != nil {
					held[lane] = p.Reason
				}
			}
			require.Equal(t, c.held, held)
			all, lanes := cluster.Pauses.Lanes()
			require.Equal(t, len(cluster.Pauses), len(lanes)+map[bool]int{true: 1}[all])
		})
	}
}

func TestPauseRefusesLanesThatClusterHasNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode api.ReplicationMode
		lane string
		want string
	}{
		{api.ActiveActive, "default", ""}, {api.ActivePassive, "cap/gpu", ""}, {api.ActiveActive, "agent/a", ""},
		{api.ActiveActive, "shard/0", "only a sharded cluster"},
		{api.Sharded, "shard/3", ""}, {api.Sharded, "agent/a", ""}, {api.Sharded, "", ""},
		{api.Sharded, "shard/4", "shard/0 to shard/3"}, {api.Sharded, "default", "shard/0 to shard/3"},
		{api.Sharded, "cap/gpu", "shard/0 to shard/3"},
	} {
		cluster := Cluster{Config: api.ClusterConfig{ReplicationMode: c.mode, Shards: 4}}
		_, err := cluster.Pause(c.lane, "", time.Time{})
		if c.want == "" {
			require.NoError(t, err, c)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.Empty(t, cluster.Pauses)
	}
}

func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	var cluster Cluster
	for i := range MaxPauses {
		_, err := cluster.Pause(task.AgentLane(fmt.Sprint("a-", i)), "", time.Time{})
		require.NoError(t, err)
	}
	_, err := cluster.Pause("default", "", time.Time{})
	require.ErrorContains(t, err, "pause the whole cluster")
	for _, lane := range []string{"", "agent/a-7"} {
		_, err = cluster.Pause(lane, "again", time.Time{})
		require.NoError(t, err)
	}
	require.Len(t, cluster.Pauses, MaxPauses+1)
}
