package task

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"mainstay.dev/sdk/api"
)

func TestPriorityReadsNumbersAndNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]api.Priority{
		`1`: api.PriorityCritical, `"critical"`: api.PriorityCritical, `2`: api.PriorityHigh, `"high"`: api.PriorityHigh,
		`3.0`:      api.PriorityNormal,
		`"normal"`: api.PriorityNormal, `"low"`: api.PriorityLow, `5`: api.PriorityBackground, `"background"`: api.PriorityBackground,
		`"4"`: api.PriorityLow,
		`0`:   0, `null`: 0,
	} {
		var fromJSON struct{ P api.Priority }
		require.NoError(t, json.Unmarshal([]byte(`{"P":`+text+`}`), &fromJSON), text)
		require.Equal(t, want, fromJSON.P, text)
		if want == 0 || text == `3.0` {
			continue
		}
		var fromYAML struct {
			P api.Priority `yaml:"p"`
		}
		require.NoError(t, yaml.Unmarshal([]byte("p: "+text), &fromYAML), text)
		require.Equal(t, want, fromYAML.P, text)
	}
	for _, text := range []string{`6`, `-1`, `1.5`, `1e99`, `"urgent"`, `""`, `"0"`, `"High"`, `true`, `[1]`, `{}`,
		`"\u0031"`} {
		var p api.Priority
		require.ErrorIs(t, json.Unmarshal([]byte(text), &p), api.ErrPriority, text)
		require.Zero(t, p)
	}
}

func TestPriorityIsWrittenAsANumber(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(struct {
		P api.Priority `json:"p,omitempty"`
		Q api.Priority `json:"q,omitempty"`
	}{P: api.PriorityHigh})
	require.NoError(t, err)
	require.Equal(t, `{"p":2}`, string(text))
	require.Equal(t, "high", api.PriorityHigh.String())
	require.Equal(t, "0", api.Priority(0).String())
	require.Equal(t, api.PriorityNormal, api.Priority(0).OrDefault())
}

func FuzzPriority(f *testing.F) {
	for _, seed := range []string{`1`, `"high"`, `"`, `-0`, `5.0`, `"background"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p api.Priority
		if json.Unmarshal(data, &p) != nil || p == 0 {
			return
		}
		require.True(t, p.Valid())
		again, err := api.ParsePriority(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
