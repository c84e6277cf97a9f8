package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestProfileBounds(t *testing.T) {
	t.Parallel()
	entries := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = ""
		}
		return m
	}
	ids := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("%063d", i)
		}
		return list
	}
	for name, tt := range map[string]struct {
		profile api.AgentProfile
		field   string // of the mistake; empty: there is none
	}{
		"nothing":           {api.AgentProfile{}, ""},
		"all it may":        {api.AgentProfile{Metadata: entries(64), TaskTypes: ids(256), Capabilities: ids(64)}, ""},
		"entries":           {api.AgentProfile{Metadata: entries(65)}, "metadata"},
		"long value":        {api.AgentProfile{Metadata: map[string]string{"a": strings.Repeat("x", 4096)}}, "metadata"},
		"long name":         {api.AgentProfile{Metadata: map[string]string{strings.Repeat("x", 4096): ""}}, "metadata"},
		"escaped as JSON":   {api.AgentProfile{Metadata: map[string]string{"a": strings.Repeat("\x01", 700)}}, "metadata"},
		"task types":        {api.AgentProfile{TaskTypes: ids(257)}, "task_types"},
		"a task type":       {api.AgentProfile{TaskTypes: []string{"ok", strings.Repeat("x", 64)}}, "task_types[1]"},
		"capabilities":      {api.AgentProfile{Capabilities: ids(65)}, "capabilities"},
		"a capability":      {api.AgentProfile{Capabilities: []string{"A"}}, "capabilities[0]"},
		"the rest together": {api.AgentProfile{Host: strings.Repeat("x", 40<<10)}, "host"},
	} {
		err := tt.profile.Validate()
		if tt.field == "" {
			require.NoError(t, err, name)
			continue
		}
		var wrong *api.FieldError
		require.ErrorAs(t, err, &wrong, name)
		require.Equal(t, tt.field, wrong.Field, name)
	}
}

// TestProfilesOfACluster fills a cluster with agents that tell much of themselves: they are refused, ordinary ones not,
// and the state fits into one message of Temporal.
func TestProfilesOfACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	c.Config.MaxAgents = api.MaxMembers
	total := 0
	greedy := api.AgentProfile{Metadata: map[string]string{"a": strings.Repeat("x", 4000)}}
	admitted := 0
	for i := range 500 {
		j := Join{AgentID: fmt.Sprintf("greedy-%d", i), Instance: "i", AgentProfile: greedy}
		if c.RefuseProfile(&j, &total) == "" {
			require.Empty(t, c.Join(j, "h", noon).Refused)
			admitted++
		}
	}
	require.InDelta(t, 130, admitted, 5)
	again := Join{AgentID: "greedy-0", Instance: "other", AgentProfile: greedy}
	require.Empty(t, c.RefuseProfile(&again, &total), "its own does not count twice")
	for i := range api.DefaultMaxAgents - admitted {
		j := Join{AgentID: fmt.Sprintf("plain-%d", i), Instance: "i", AgentProfile: api.AgentProfile{Host: "a-host",
			Zone: "here", TaskTypes: []string{"exec", "echo"}, Metadata: map[string]string{"rack": "7"}}}
		require.Empty(t, c.RefuseProfile(&j, &total))
		require.Empty(t, c.Join(j, "h", noon).Refused)
	}
	require.Equal(t, total, c.ProfilesSize())
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.Less(t, len(text), 3<<19, "half a MiB is left for the rest")
	tooMuch := Join{AgentProfile: api.AgentProfile{Metadata: map[string]string{"a": strings.Repeat("x", 5000)}}}
	require.Equal(t, RefusedProfile, c.RefuseProfile(&tooMuch, &total))
}

// What others tell of themselves keeps no member out that has no more to tell than before.
func TestMembersThatDoNotGrowStay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for name, profile := range map[string]int{"large profiles": 500, "long ids": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Cluster{Config: api.ClusterConfig{Name: "c", MaxAgents: api.MaxMembers}.WithDefaults()}
			honest := Join{AgentID: "honest", Instance: "instance-1", AgentProfile: api.AgentProfile{Host: "h", MaxTasks: 1}}
			require.Empty(t, c.Join(honest, "hub-1", now).Refused)
			texts := c.TextsSize()
			for n := 0; ; n++ {
				j := Join{AgentID: fmt.Sprintf("%063d", n), Instance: fmt.Sprintf("%064d", n),
					Token: JoinToken{ID: "t", MaxUses: api.MaxMembers}, AgentProfile: api.AgentProfile{Host: strings.Repeat("x", profile)}}
				if c.Crowded(&j, &texts) {
					break
				}
				require.Empty(t, c.Join(j, "hub-1", now).Refused)
				require.Equal(t, c.TextsSize(), texts)
			}
			require.LessOrEqual(t, c.TextsSize(), maxTexts)
			for _, instance := range []string{"instance-1", "instance-2"} {
				honest.Instance = instance
				require.False(t, c.Crowded(&honest, &texts))
				require.False(t, c.Grows(&honest))
				require.Empty(t, c.Join(honest, "hub-1", now).Refused)
			}
			honest.Host = strings.Repeat("h", 3*smallProfile)
			require.True(t, c.Grows(&honest))
			require.True(t, c.Crowded(&honest, &texts), "it has more to tell than before")
		})
	}
}
