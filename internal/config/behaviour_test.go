package config_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	gatewaycluster "mainstay.dev/mainstay/gateway/cluster"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// installation is what the parts make of a configuration with one cluster.
type installation struct {
	t      *testing.T
	config *config.Config
	api.ClusterConfig
}

// with is a cluster of members that are online.
func (i installation) with(members ...string) *cluster.Cluster {
	c := &cluster.Cluster{Config: i.ClusterConfig}
	for _, id := range members {
		c.Join(cluster.Join{AgentID: id, Instance: id, AgentProfile: api.AgentProfile{MaxTasks: 4}}, "h1", time.Unix(0, 0))
	}
	return c
}

// task is one that was submitted with nothing but its type.
func (i installation) task() *api.TaskSpec {
	spec := &api.TaskSpec{Type: "x"}
	i.TaskDefaults.Apply(spec)
	return spec
}

// workflows runs any workflow, whose signals and counts go nowhere.
func workflows() *sdktestsuite.TestWorkflowEnvironment {
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	for name, does := range map[string]any{
		contract.DirectActivity.Name:        func(context.Context, contract.Directive) error { return nil },
		contract.ReadLoadsActivity.Name:     func(context.Context, string) (map[string]int, error) { return nil, nil },
		contract.CountFailoverActivity.Name: func(context.Context, api.FailoverRecord) error { return nil },
		contract.CountHealingActivity.Name:  func(context.Context, api.HealingRecord) error { return nil },
	} {
		env.RegisterActivityWithOptions(does, activity.RegisterOptions{Name: name})
	}
	return env
}

// lose has the cluster's workflow lose the member a with a task; do sets what else is there.
func (i installation) lose(do func(env *sdktestsuite.TestWorkflowEnvironment)) {
	env := workflows()
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.JoinUpdate.Name, "", &workflowtest.Answer{}, contract.JoinRequest{Hub: "h1",
			Joins: []cluster.Join{{AgentID: "a", Instance: "a"}, {AgentID: "b", Instance: "b"}}})
	}, time.Second)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(contract.MembersChangedSignal.Name, contract.MembersChanged{Hub: "h1",
			Changes: []cluster.Transition{{AgentID: "a", Instance: "a", Epoch: 1, Status: api.AgentOffline, At: env.Now(),
				Attempts: []cluster.HeldAttempt{{TaskID: "t", Attempt: 1}}}}})
	}, 2*time.Second)
	do(env)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Hour)
	env.ExecuteWorkflow(contract.ClusterWorkflow, contract.ClusterInput{Config: i.ClusterConfig})
}

// installed reads the document, with another value of one key.
func installed(t *testing.T, text []byte, key, value string) installation {
	t.Helper()
	var tree map[string]any
	require.NoError(t, yaml.Unmarshal(text, &tree))
	section := tree["agent_cluster"].(map[string]any)
	path := strings.Split(key, ".")
	for _, name := range path[:len(path)-1] {
		section = section[name].(map[string]any)
	}
	if key != "" {
		var scalar any
		require.NoError(t, yaml.Unmarshal([]byte(value), &scalar))
		section[path[len(path)-1]] = scalar
	}
	text, err := yaml.Marshal(tree)
	require.NoError(t, err)
	c, err := config.Parse("f.yaml", text)
	require.NoError(t, err)
	return installation{t, c, c.ClusterConfigs()[0]}
}

// ratings counts how often a monitor looks at the agents.
type ratings int

func (n *ratings) Agents(string, time.Time) []health.Agent { *n++; return nil }

func (n *ratings) NotifyHealth(*health.Agent, cluster.MemberHealth) {}

// TestEveryKeyOfTheDocumentHasAnEffect gives each key of the document's agent_cluster another value, and sees that the
// part that it is for does something else then. What the cases call is what the program calls.
func TestEveryKeyOfTheDocumentHasAnEffect(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	ill := func(i installation, level api.HealthLevel) []api.HealingDecision {
		facts := &healing.ClusterFacts{Cluster: *i.with("a", "b", "c", "d")}
		facts.Members[0].Health = &cluster.MemberHealth{Level: level, Since: start.Add(-time.Hour)}
		found, _ := healing.ExamineForHealing(facts, start)
		return healing.DecideHealing(&found, start)
	}
	silent := func(i installation, silence time.Duration) any {
		return i.config.Timing().Judge(time.Second, start, time.Time{}, start.Add(silence))
	}
	online := func(n int) func(i installation) any {
		return func(i installation) any { return i.with([]string{"a", "b", "c", "d", "e", "f"}[:n]...).Status() }
	}
	cases := map[string]struct {
		other  string
		before any // what the document's value does
		after  any // what the other value does
		does   func(i installation) any
	}{
		"name": {"other", "cluster/production-docker-agents", "cluster/other",
			func(i installation) any { return contract.ClusterWorkflowID(i.Name) }},
		"target_group_id": {"racks", "prod-docker-hosts", "racks",
			func(i installation) any { return gatewaycluster.OfSettings(i.ClusterConfig).TargetGroup }},
		"membership.minimum_agents": {"1", api.ClusterCritical, api.ClusterDegraded, online(1)},
		"membership.desired_agents": {"2", api.ClusterDegraded, api.ClusterHealthy, online(2)},
		"membership.max_agents": {"6", cluster.RefusedFull, "", func(i installation) any {
			return i.with("a", "b", "c", "d", "e").Join(cluster.Join{AgentID: "f", Instance: "f"}, "h1", start).Refused
		}},
		"replication_mode": {"active_passive", 2, 1, func(i installation) any {
			c := i.with("a", "b")
			c.Elect(i.Selection, nil, start)
			return len(c.ServersOf(task.DefaultLane, nil))
		}},
		"failover.selection_strategy": {"standby", "c", "b", func(i installation) any {
			c := i.with("a", "b", "c")
			c.Standbys = []string{"b", "c"}
			target, _ := c.SelectTarget(i.Selection, cluster.FailoverNeed{FailedAgent: "a"}, map[string]int{"b": 1})
			return target
		}},
		"failover.task_transfer_timeout": {"00:07:00", 5 * time.Minute, 7 * time.Minute, func(i installation) any {
			var watched time.Duration
			i.lose(func(env *sdktestsuite.TestWorkflowEnvironment) {
				env.RegisterActivityWithOptions(
					func(_ context.Context, in contract.AwaitTransfersInput) (contract.AwaitTransfersResult, error) {
						watched = in.Timeout.Std()
						return contract.AwaitTransfersResult{}, nil
					}, activity.RegisterOptions{Name: contract.AwaitTransfersActivity.Name})
			})
			return watched
		}},
		"failover.max_transfer_retries": {"4", api.TaskDeadLetter, api.TaskQueued, func(i installation) any {
			return task.Redeliver(i.task(), "t", task.Tally{Losses: 3},
				task.AttemptEnd{Outcome: api.AttemptLost, Begun: true}).Status
		}},
		"health_monitoring.heartbeat_interval": {"00:00:10", 30 * time.Second, 10 * time.Second,
			func(i installation) any { return i.config.Timing().Hold(time.Hour) }},
		"health_monitoring.warning_threshold": {"00:01:15", cluster.Warning, cluster.Alive,
			func(i installation) any { return silent(i, 70*time.Second) }},
		"health_monitoring.failure_threshold": {"00:02:00", cluster.Lost, cluster.Warning,
			func(i installation) any { return silent(i, 100*time.Second) }},
		"health_monitoring.health_check_interval": {"00:00:20", ratings(6), ratings(3), func(i installation) any {
			var looks ratings
			synctest.Test(i.t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 61*time.Second)
				defer stop()
				health.New(&looks, zap.NewNop(), controlplane.HubConfig(i.config).HealthInterval).Run(ctx)
			})
			return looks
		}},
		"task_queue.max_delivery_attempts": {"4", api.TaskDeadLetter, api.TaskRetryWait, func(i installation) any {
			return task.Redeliver(i.task(), "t", task.Tally{Failures: 2},
				task.AttemptEnd{Outcome: api.AttemptFailed, Begun: true}).Status
		}},
		"task_queue.default_expiration": {"02:00:00", time.Hour, 2 * time.Hour,
			func(i installation) any { return i.task().Expiration() }},
		"task_queue.dead_letter_retention": {"1.00:00:00", 7 * 24 * time.Hour, 24 * time.Hour, func(i installation) any {
			env := workflows()
			env.RegisterActivityWithOptions(func(context.Context, contract.RunTaskInput) (contract.AttemptReport, error) {
				return contract.AttemptReport{}, temporal.NewNonRetryableApplicationError("attempt", contract.AttemptFailure, nil,
					contract.AttemptReport{AgentID: "a", Outcome: api.AttemptFailed, Begun: true})
			}, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
			spec := i.task()
			spec.Cluster, spec.Retry.MaxAttempts = i.Name, 1
			begun := env.Now()
			env.ExecuteWorkflow(contract.TaskWorkflow, contract.TaskInput{TaskID: "t", Spec: *spec, Lane: "lane/c",
				DeadLetterRetention: i.DeadLetterRetention})
			return env.Now().Sub(begun).Round(time.Hour)
		}},
		"self_healing.enabled": {"false", 1, 0,
			func(i installation) any { return len(ill(i, api.HealthCritical)) }},
		"self_healing.cycle_interval": {"00:02:00", 10, 5, func(i installation) any {
			cycles := 0
			for at := range 10 {
				if healing.DueForHealing(i.SelfHealing.CycleInterval.Std(), time.Minute, start.Add(time.Duration(at)*time.Minute)) {
					cycles++
				}
			}
			return cycles
		}},
		"self_healing.drain_timeout": {"00:09:00", 5 * time.Minute, 9 * time.Minute, func(i installation) any {
			drained := time.Duration(0)
			env := workflows()
			env.OnWorkflow(contract.DrainWorkflow, mock.Anything, mock.Anything).Return(
				func(_ workflow.Context, in contract.DrainInput) (api.DrainRecord, error) {
					drained = in.Timeout.Std()
					return api.DrainRecord{Status: api.DrainCompleted}, nil
				})
			env.ExecuteWorkflow(contract.HealingActionWorkflow, contract.HealingActionInput{Policy: i.SelfHealing,
				Decision: api.HealingDecision{Type: api.HealDrain, TargetID: "a", Cluster: i.Name, Verdict: api.HealAct}})
			return drained
		}},
		"leader_election.enabled": {"false", "b", "", func(i installation) any {
			i.ReplicationMode = api.ActivePassive
			c := i.with("a", "b")
			c.Elect(i.Selection, nil, start)
			c.Members[0].Status = api.AgentOffline
			c.VacateLeader(0, start)
			c.Elect(i.Selection, nil, start)
			return c.Leader
		}},
		"leader_election.lease_duration": {"00:00:45", 30 * time.Second, 45 * time.Second, func(i installation) any {
			return i.config.Timing().Lease(api.ActivePassive, i.RoleLease.Std())
		}},
		"leader_election.election_interval": {"00:00:05", 15 * time.Second, 5 * time.Second, func(i installation) any {
			timing := i.config.Timing()
			return timing.RoleHold(timing.Lease(api.ActivePassive, i.RoleLease.Std()), i.ElectionInterval.Std())
		}},
	}
	text, err := os.ReadFile("testdata/agent_cluster.yaml")
	require.NoError(t, err)
	keys := map[string]bool{}
	var tree map[string]any
	require.NoError(t, yaml.Unmarshal(text, &tree))
	var note func(at string, section map[string]any)
	note = func(at string, section map[string]any) {
		for key, value := range section {
			if inner, is := value.(map[string]any); is {
				note(at+key+".", inner)
			} else {
				keys[at+key] = true
			}
		}
	}
	note("", tree["agent_cluster"].(map[string]any))
	require.Len(t, keys, 22)
	for key, c := range cases {
		require.Contains(t, keys, key)
		delete(keys, key)
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, c.before, c.after)
			require.Equal(t, c.before, c.does(installed(t, text, "", "")), "as in the document")
			require.Equal(t, c.after, c.does(installed(t, text, key, c.other)), "with %s", c.other)
		})
	}
	require.Empty(t, keys)
}
