package app

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestDurationsOfFlags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0": 0, "0s": 0, "-5s": -5 * time.Second,
		"00:30:00": 30 * time.Minute, "7.00:00:00": 7 * 24 * time.Hour, "9999999h": 1<<63 - 1,
		"soon": -1, "24:00:00": -1, "": -1,
	} {
		command := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		command.Flags().Duration("wait", 0, "how long")
		command.Flags().Duration("patience", time.Minute, "how long")
		classifyUsage(command)
		require.Contains(t, command.UsageString(), "(default 1m0s)")
		require.NotContains(t, command.UsageString(), "(default 0s)")
		err := command.ParseFlags([]string{"--wait=" + text})
		if want == -1 {
			require.EqualError(t, plainFlagError(err), "--wait must be a duration such as 30s, 5m, 1h30m or 7d", text)
			continue
		}
		require.NoError(t, err, text)
		got, err := command.Flags().GetDuration("wait")
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}
