package app

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestNumbersOfFlagsAreHeldToBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want string }{
		{"--timeout=7d", ""},
		{"--timeout=00:01:00", ""},
		{"--timeout=0s", "--timeout must be between 1s and 720h; leave it out for the default"},
		{"--timeout=-5s", "--timeout must be between 1s and 720h; leave it out for the default"},
		{"--timeout=9999999h", "--timeout must be between 1s and 720h"},
		{"--timeout=soon", "--timeout must be a duration such as 30s, 5m, 1h30m or 7d"},
		{"--max-attempts=0", "--max-attempts must be between 1 and 100; leave it out for the default"},
		{"--max-attempts=1.5", "--max-attempts must be a whole number between 1 and 100"},
		{"--max-attempts=three", "--max-attempts must be a whole number between 1 and 100"},
		{"--patience=0s", "--patience must be above 0s; leave it out for the default"},
		{"--slots=0", "--slots must be at least 1; leave it out for the default"},
		{"--pause=0s", ""},
	} {
		r, command := api.TaskRequest{}, &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		flags := command.Flags()
		flags.DurationVar((*time.Duration)(&r.Timeout), "timeout", 0, "")
		flags.IntVar(&r.Retry.MaxAttempts, "max-attempts", 0, "")
		flags.Duration("patience", 0, "")
		flags.Duration("pause", time.Second, "")
		flags.Int("slots", 1, "")
		Bounded[api.TaskRequest](flags, map[string]string{"timeout": "timeout", "max-attempts": "retry.max_attempts"})
		MayBeZero(flags, "pause")
		boundNumbers(command)
		err := flags.Parse([]string{c.given})
		if c.want == "" {
			require.NoError(t, err, c.given)
			continue
		}
		require.EqualError(t, plainFlagError(nil, err), c.want, c.given)
	}
}

func TestDurationsOfFlags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0": 0, "0s": 0,
		"00:30:00": 30 * time.Minute, "7.00:00:00": 7 * 24 * time.Hour, "9999999h": 1<<63 - 1,
		"soon": -1, "24:00:00": -1, "": -1,
	} {
		command := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		command.Flags().Duration("wait", 0, "how long")
		command.Flags().Duration("patience", time.Minute, "how long")
		MayBeZero(command.Flags(), "wait")
		classifyUsage(command)
		require.Contains(t, command.UsageString(), "(default 1m0s)")
		require.NotContains(t, command.UsageString(), "(default 0s)")
		err := command.ParseFlags([]string{"--wait=" + text})
		if want == -1 {
			require.EqualError(t, plainFlagError(nil, err), "--wait must be a duration such as 30s, 5m, 1h30m or 7d", text)
			continue
		}
		require.NoError(t, err, text)
		got, err := command.Flags().GetDuration("wait")
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}
