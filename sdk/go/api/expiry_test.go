package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExpiresAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	in := now.Add
	for name, c := range map[string]struct {
		spec TaskSpec
		want string
	}{
		"later":                {TaskSpec{ExpiresAt: in(time.Second)}, ""},
		"past":                 {TaskSpec{ExpiresAt: in(-time.Second)}, "it is 2026-11-21T12:00:00Z now; give a later time"},
		"now":                  {TaskSpec{ExpiresAt: now}, "is past"},
		"before it starts":     {TaskSpec{ExpiresAt: in(time.Hour), StartAt: in(2 * time.Hour)}, "must be after start_at"},
		"long after now":       {TaskSpec{ExpiresAt: in(721 * time.Hour)}, "at most 30 days"},
		"soon after its start": {TaskSpec{ExpiresAt: in(721 * time.Hour), StartAt: in(2 * time.Hour)}, ""},
		"two ways":             {TaskSpec{ExpiresAt: in(time.Hour), ExpiresIn: Duration(time.Hour)}, "give one of them"},
		"work without end":     {TaskSpec{ExpiresAt: in(time.Hour), KeepRunning: true}, "give one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Type, c.spec.Cluster = "echo", "c"
			err := c.spec.Validate()
			if err == nil {
				err = c.spec.ValidateExpiresAt(now)
			}
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
