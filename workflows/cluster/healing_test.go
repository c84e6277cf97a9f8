package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// TestClusterChecksHealing sends healing actions to a cluster in which an operator acted first, and to one in which no
// operator did.
func TestClusterChecksHealing(t *testing.T) {
	t.Parallel()
	const healings = "default:healing-1"
	check := func(kind api.HealingType) *healing.HealingCheck { return &healing.HealingCheck{Type: kind, Epoch: 1} }
	cordon := func(drain string) contract.CordonRequest {
		return contract.CordonRequest{AgentID: "a", Status: api.AgentMaintenance, Drain: drain}
	}
	for name, tc := range map[string]struct {
		before []contract.CordonRequest
		update string // empty: the failover, which is a signal
		arg    any
		done   func(*testing.T, *clusterRun, contract.ClusterView)
	}{
		"reduce": {
			update: contract.ReduceLoadUpdate.Name,
			arg:    contract.ReduceLoadRequest{AgentID: "a", UntilHealthy: true, Healing: check(api.HealReduce)},
			done: func(t *testing.T, _ *clusterRun, v contract.ClusterView) {
				require.Equal(t, 1, v.EffectiveSlots(v.Member("a")))
			},
		},
		"drain": {
			update: contract.CordonUpdate.Name,
			arg: contract.CordonRequest{AgentID: "a", Status: api.AgentDraining, Drain: healings,
				Healing: check(api.HealDrain)},
			done: func(t *testing.T, _ *clusterRun, v contract.ClusterView) {
				require.Equal(t, healings, v.Cordons.Of("a").Drain)
			},
		},
		"restore": {
			before: []contract.CordonRequest{cordon(healings)},
			update: contract.UncordonUpdate.Name,
			arg:    contract.UncordonRequest{AgentID: "a", Healing: check(api.HealRestore)},
			done: func(t *testing.T, _ *clusterRun, v contract.ClusterView) {
				require.Nil(t, v.Cordons.Of("a"))
			},
		},
		"failover": {
			arg: contract.ManualFailover{AgentID: "a", Healing: check(api.HealFailover)},
			done: func(t *testing.T, r *clusterRun, _ contract.ClusterView) {
				require.Len(t, r.failovers, 1)
			},
		},
	} {
		for _, operator := range []bool{false, true} {
			who := "nobody"
			if operator {
				who = "an operator"
			}
			t.Run(name+", "+who+" came in between", func(t *testing.T) {
				t.Parallel()
				run := newCluster(t)
				level := api.HealthDegraded
				if name == "restore" {
					level = api.HealthHealthy
				}
				before := tc.before
				if operator {
					before = append(before, cordon(""))
				}
				var asked *workflowtest.Answer
				var was, is contract.ClusterView
				run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
				run.at(2*time.Second, func() {
					run.SignalWorkflow(contract.MembersChangedSignal.Name,
						contract.MembersChanged{Hub: "h1", Changes: []cluster.Transition{
							{AgentID: "a", Instance: "a-1", Epoch: 1, At: run.Now(),
								Health: &cluster.MemberHealth{Level: level, Since: run.Now()}}}})
					for _, c := range before {
						run.update(contract.CordonUpdate.Name, c)
					}
				})
				run.at(time.Minute, func() {
					was = run.view(t)
					if tc.update == "" {
						run.SignalWorkflow(contract.ManualFailoverSignal.Name, tc.arg)
					} else {
						asked = run.update(tc.update, tc.arg)
					}
				})
				run.at(time.Minute+time.Second, func() { is = run.view(t) })
				run.deleteAt(2 * time.Minute)
				run.start(api.ClusterConfig{})
				require.NoError(t, run.GetWorkflowError())
				if !operator {
					tc.done(t, run, is)
					return
				}
				require.Equal(t, was, is, "what an operator keeps out of service stays as it is")
				require.Empty(t, run.failovers)
				if asked != nil {
					require.ErrorContains(t, asked.Err, "an operator keeps it out of service")
				}
			})
		}
	}
}
