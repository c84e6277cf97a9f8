package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
)

func TestFenced(t *testing.T) {
	t.Parallel()
	d := contract.Directive{Fences: []contract.Fence{{AgentID: "a", MinEpoch: 3}, {AgentID: "c", MinEpoch: 7}}}
	for name, c := range map[string]struct {
		agent string
		epoch int64
		wants bool
	}{
		"older": {"c", 6, true}, "the newest": {"c", 7, false}, "the first": {"a", 2, true},
		"never replaced": {"b", 1, false},
	} {
		require.Equal(t, c.wants, d.Fenced(c.agent, c.epoch), name)
	}
}
