package fleet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestPriorityReadsNumbersAndNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Priority{
		`1`: PriorityCritical, `"critical"`: PriorityCritical, `2`: PriorityHigh, `"high"`: PriorityHigh,
		`3.0`:      PriorityNormal,
		`"normal"`: PriorityNormal, `"low"`: PriorityLow, `5`: PriorityBackground, `"background"`: PriorityBackground,
		`"4"`: PriorityLow,
		`0`:   0, `null`: 0,
	} {
		var fromJSON struct{ P Priority }
		require.NoError(t, json.Unmarshal([]byte(`{"P":`+text+`}`), &fromJSON), text)
		require.Equal(t, want, fromJSON.P, text)
		if want == 0 || text == `3.0` {
			continue
		}
		var fromYAML struct {
			P Priority `yaml:"p"`
		}
		require.NoError(t, yaml.Unmarshal([]byte("p: "+text), &fromYAML), text)
		require.Equal(t, want, fromYAML.P, text)
	}
	for _, text := range []string{`6`, `-1`, `1.5`, `1e99`, `"urgent"`, `""`, `"0"`, `"High"`, `true`, `[1]`, `{}`,
		`"\u0031"`} {
		var p Priority
		require.ErrorIs(t, json.Unmarshal([]byte(text), &p), ErrPriority, text)
		require.Zero(t, p)
	}
}

func TestPriorityIsWrittenAsANumber(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(struct {
		P Priority `json:"p,omitempty"`
		Q Priority `json:"q,omitempty"`
	}{P: PriorityHigh})
	require.NoError(t, err)
	require.Equal(t, `{"p":2}`, string(text))
	require.Equal(t, "high", PriorityHigh.String())
	require.Equal(t, "0", Priority(0).String())
	require.Equal(t, PriorityNormal, Priority(0).OrDefault())
}

func FuzzPriority(f *testing.F) {
	for _, seed := range []string{`1`, `"high"`, `"`, `-0`, `5.0`, `"background"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Priority
		if json.Unmarshal(data, &p) != nil || p == 0 {
			return
		}
		require.True(t, p.Valid())
		again, err := ParsePriority(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
