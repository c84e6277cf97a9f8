package app

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/api"
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
		require.EqualError(t, plainFlagError(err), c.want, c.given)
	}
}
