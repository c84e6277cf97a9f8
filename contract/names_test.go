package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
)

func TestFailoverIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "default:agent-1:7", contract.FailoverID("default", "agent-1", 7))
	type parsed struct {
		cluster, agent string
		epoch          int64
		ok             bool
	}
	for _, want := range []parsed{{"default", "agent-1", 7, true}, {"a.b_c-d", "0", 0, true},
		{"x", "y", 1<<63 - 1, true}} {
		var got parsed
		got.cluster, got.agent, got.epoch, got.ok = contract.ParseFailoverID(contract.FailoverID(want.cluster,
			want.agent, want.epoch))
		require.Equal(t, want, got)
		got.cluster, got.agent, got.epoch, got.ok = contract.FailoverOfWorkflowID(contract.FailoverWorkflowID(
			want.cluster, want.agent, want.epoch))
		require.Equal(t, want, got)
	}
	for _, bad := range []string{
		"", ":", "default:agent-1", "default:agent-1:", "default:agent-1:x", "default:agent-1:-1", "default:agent-1:+1",
		"default:agent-1:01",
		"default:agent-1:7:8", "Default:agent-1:7", "default:agent/1:7", ":agent-1:7", "default/agent-1/7",
		"default:agent-1:9223372036854775808",
	} {
		_, _, _, ok := contract.ParseFailoverID(bad)
		require.False(t, ok, bad)
		_, _, _, ok = contract.FailoverOfWorkflowID("failover/" + bad)
		require.Equal(t, bad == "default/agent-1/7", ok, bad)
	}
	_, _, _, ok := contract.FailoverOfWorkflowID("task/default/agent-1/7")
	require.False(t, ok)
}
