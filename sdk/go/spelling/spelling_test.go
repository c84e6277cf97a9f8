package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"max_agents", "minimum_agents", "name", "http", "shards", "drain_timeout"}
	for word, want := range map[string]string{
		"htp": "http", "maxAgents": "max_agents", "max_agent": "max_agents", "minimum-agents": "minimum_agents",
		"minimumagnets": "minimum_agents",
		"neme":          "name", "drain": "drain_timeout", "shard": "shards", "colour": "", "x": "",
	} {
		require.Equal(t, want, Nearest(word, names), word)
	}
}

func TestLongWordsAreNotCompared(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	require.Empty(t, Nearest(long, []string{"a"}))
	require.Empty(t, Nearest("a", []string{long}))
}
