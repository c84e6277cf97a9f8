package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
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
		in := contract.FailoverInput{Cluster: want.cluster, FailedAgent: want.agent, Epoch: want.epoch}
		for in.Again = range 3 {
			id, ok := contract.FailoverOfWorkflowID(contract.FailoverWorkflowID(in.ID()))
			require.True(t, ok)
			require.Equal(t, in.ID(), id)
			got.cluster, got.agent, got.epoch, got.ok = contract.ParseFailoverID(id)
			require.Equal(t, want, got)
		}
	}
	for _, bad := range []string{
		"", ":", "default:agent-1", "default:agent-1:", "default:agent-1:x", "default:agent-1:-1", "default:agent-1:+1",
		"default:agent-1:01",
		"default:agent-1:7:8", "Default:agent-1:7", "default:agent/1:7", ":agent-1:7", "default/agent-1/7",
		"default:agent-1:9223372036854775808", "default:agent-1:7.", "default:agent-1:7.1", "default:agent-1:7.02",
	} {
		_, _, _, ok := contract.ParseFailoverID(bad)
		require.False(t, ok, bad)
		_, ok = contract.FailoverOfWorkflowID("failover/" + bad)
		require.Equal(t, bad == "default/agent-1/7", ok, bad)
	}
	_, ok := contract.FailoverOfWorkflowID("task/default/agent-1/7")
	require.False(t, ok)
}

func TestRunsOfSchedulesHaveTheTimeInTheirIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for run, workflowID := range map[string]string{
		"r-1":                             "run/r-1",
		"key@0123456789abcdef0123":        "run/key@0123456789abcdef0123",
		"nightly@20261121t030000z":        "run/nightly-2026-11-21T03:00:00Z",
		"acme:nightly@20261121t030000z-2": "run/acme:nightly/2-2026-11-21T03:00:00Z",
		"nightly@20261121t030000z-0":      "run/nightly@20261121t030000z-0",
		"nightly@20269921t030000z":        "run/nightly@20269921t030000z",
	} {
		require.Equal(t, workflowID, contract.RunWorkflowID(run))
		back, ok := contract.RunOfWorkflowID(workflowID)
		require.True(t, ok)
		require.Equal(t, run, back)
	}
	require.Equal(t, "nightly@20261121t030000z", contract.ScheduledRunID("nightly", 0, at))
	workflowID, key := contract.Locate("nightly@20261121t030000z~build.3")
	require.Equal(t, "run/nightly-2026-11-21T03:00:00Z", workflowID)
	require.Equal(t, "build.3", key)
	_, ok := contract.RunOfWorkflowID("task/x")
	require.False(t, ok)
}
