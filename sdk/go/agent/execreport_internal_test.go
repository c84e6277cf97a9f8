package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestReadReport(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"progress=40":                      api.Progress{Percent: 40},
		"progress=40% step=load":           api.Progress{Percent: 40, Step: "load"},
		` progress=100  step="load rows" `: api.Progress{Percent: 100, Step: "load rows"},
		`step="a \"b\" ü=1" message=x=y`:   api.Progress{Step: `a "b" ü=1`, Message: "x=y"},
		"progress=0 estimate=1h30m":        api.Progress{EstimatedDuration: api.Duration(90 * time.Minute)},
		"step=":                            api.Progress{},
		"":                                 api.Progress{},
		"progress=101":                     `progress must be a whole number from 0 to 100, not "101"`,
		"progress=4.5":                     `progress must be a whole number from 0 to 100, not "4.5"`,
		"progress=":                        `progress must be a whole number from 0 to 100, not ""`,
		"progres=4":                        `there is no "progres", only progress, step, message, estimate`,
		"colour=blue":                      `there is no "colour", only progress, step, message, estimate`,
		"step=load rows":                   `"rows" is not NAME=VALUE: write a value with blanks in double quotes`,
		"estimate=soon":                    `estimate must be a duration like 90s or 10m, not "soon"`,
	} {
		p, err := readReport(text)
		if message, wrong := want.(string); wrong {
			require.EqualError(t, err, message, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, p, text)
	}
}
