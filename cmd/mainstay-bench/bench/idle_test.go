package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSumMetric(t *testing.T) {
	t.Parallel()
	const text = `# HELP hub_sessions Sessions.
# TYPE hub_sessions gauge
hub_sessions 3
hub_sessions_opened_total 9
requests_count{method="GET",route="/a",status="200"} 1
requests_count{method="POST",route="/poll",status="200"} 40
requests_count{method="POST",route="/poll",status="409"} 2
`
	for name, test := range map[string]struct {
		metric, label string
		want          float64
	}{
		"no label, and not the longer name": {"hub_sessions", "", 3},
		"several samples":                   {"requests_count", `route="/poll"`, 42},
		"all":                               {"requests_count", "", 43},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sumMetric(strings.NewReader(text), test.metric, test.label)
			require.NoError(t, err)
			require.InDelta(t, test.want, got, 0)
		})
	}
	_, err := sumMetric(strings.NewReader(text), "hub", "")
	require.ErrorContains(t, err, "has no metric hub")
}

func TestGrown(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(7), grown(map[string]int64{"a 1": 3, "gone 1": 9}, map[string]int64{"a 1": 5, "new 1": 5}))
	require.Zero(t, grown(map[string]int64{"a 1": 3}, map[string]int64{"a 1": 3}))
}
