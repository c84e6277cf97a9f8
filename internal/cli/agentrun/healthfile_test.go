package agentrun

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseHealth(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		health float64
		note   string
		bad    bool
	}{
		"":                       {1, "", false},
		"1":                      {1, "", false},
		"0.4 disk errors":        {0.4, "disk errors", false},
		"  degraded  no licence": {0.75, "no licence", false},
		"failed":                 {0, "", false},
		"2":                      {0, "", true},
		"NaN":                    {0, "", true},
		"poorly":                 {0, "", true},
	} {
		health, note, err := parseHealth(line)
		require.Equal(t, want.bad, err != nil, "%q", line)
		require.InDelta(t, want.health, health, 1e-9, "%q", line)
		require.Equal(t, want.note, note, "%q", line)
	}
}
