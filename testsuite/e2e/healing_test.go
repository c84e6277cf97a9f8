package e2e

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// quickHealing acts on what is wrong for a second.
func quickHealing() api.HealingPolicy {
	return api.HealingPolicy{Patience: api.Duration(time.Second), RestoreAfter: api.Duration(time.Second)}
}

// heal runs a cycle for the bench's cluster. A cycle that is not over when the gateway answers is followed by another.
func (b *bench) heal(t *testing.T, request map[string]any) api.HealingCycleRecord {
	t.Helper()
	if request == nil {
		request = map[string]any{}
	}
	request["cluster"] = b.cluster
	var record api.HealingCycleRecord
	require.True(t, waitsEvery(t, 200*time.Millisecond, func() bool {
		status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/healing/trigger", request, &record)
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, status, "%+v", p)
		return status == http.StatusOK
	}))
	require.NotNil(t, record.CompletedAt)
	return record
}

// healUntil runs cycles until one decides something about a target. On a slow machine one whose answer nobody waited
// for may have acted.
func (b *bench) healUntil(
	t *testing.T, request map[string]any, kind api.HealingType, target string, verdict api.HealingVerdict,
) api.HealingDecision {
	t.Helper()
	var found api.HealingDecision
	require.True(t, waitsEvery(t, 200*time.Millisecond, func() bool {
		for _, d := range b.heal(t, request).Decisions {
			if d.Type == kind && d.TargetID == target && d.Verdict == verdict {
				found = d
				return true
			}
		}
		if verdict == api.HealAct {
			for _, a := range b.healingActions(t, kind, "") {
				if a.TargetID == target && a.Status != api.HealingSkipped {
					found = api.HealingDecision{Type: kind, TargetID: target, Reason: a.Reason, Facts: a.Facts, Verdict: verdict}
					return true
				}
			}
		}
		return false
	}), "%s of %s is %s", kind, target, verdict)
	return found
}

func (b *bench) healingStatus(t *testing.T) (s api.HealingStatus, ok bool) {
	t.Helper()
	code, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/healing/status", nil, &s)
	return s, code == http.StatusOK
}

// healed waits for the record of an action.
func (b *bench) healed(
	t *testing.T, kind api.HealingType, target string, status api.HealingOutcome,
) api.HealingRecord {
	t.Helper()
	var found api.HealingRecord
	require.Eventually(t, func() bool {
		for _, a := range b.healingActions(t, kind, status) {
			if a.TargetID == target {
				found = a
			}
		}
		return found.ID != ""
	}, patience, 50*time.Millisecond, "%s of %s is %s", kind, target, status)
	return found
}

// healingActions are the cluster's actions of a kind, with a status if one is given.
func (b *bench) healingActions(t *testing.T, kind api.HealingType, status api.HealingOutcome) []api.HealingRecord {
	t.Helper()
	query := url.Values{"cluster": {b.cluster}, "type": {string(kind)}}
	if status != "" {
		query.Set("status", string(status))
	}
	var list struct {
		Actions []api.HealingRecord `json:"actions"`
	}
	call(t, http.MethodGet, b.node.URL+"/api/v1/agents/healing/actions?"+query.Encode(), nil, &list)
	return list.Actions
}

func TestDegradedAgentIsDrainedAndRestored(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	ill, well := plane.UniqueID("a"), plane.UniqueID("b")
	held, _ := b.agent(t, ill)
	old := b.submit(t, nil)
	b.waitBegins(t, old, 1)
	b.agent(t, well)
	require.Empty(t, b.heal(t, nil).Decisions, "nothing is wrong")

	held.own.ReportHealth(0.45, "disk errors")
	planned := b.healUntil(t, map[string]any{"dry_run": true}, api.HealDrain, ill, api.HealPlan)
	require.Contains(t, planned.Reason, "disk errors")
	require.Equal(t, api.HealthDegraded, planned.Facts.Level)
	b.agentIs(t, ill, api.AgentOnline)

	l := listen(t, b.node, url.Values{"cluster": {b.cluster}, "type": {"healing"}}, "")
	b.healUntil(t, nil, api.HealDrain, ill, api.HealAct)
	b.agentIs(t, ill, api.AgentDraining)
	require.Equal(t, "running", l.await(t, "healing.action agents/"+ill).Data.Outcome, "its begin is announced")
	require.Empty(t, b.heal(t, nil).Decisions, "it is in hand")
	b.finish.Store(true)
	done := b.healed(t, api.HealDrain, ill, api.HealingSucceeded)
	require.True(t, waits(t, func() bool { return len(l.all("healing.action agents/"+ill)) == 2 }),
		"and its end; the plan is not: %v", l.lines())
	last := l.all("healing.action agents/" + ill)[1].Data
	require.Equal(t, []string{done.ID, ill, "succeeded"}, []string{last.ID, last.AgentID, last.Outcome})
	require.Contains(t, done.Outcome, "1 of its tasks finished, 0 were moved")
	require.Contains(t, done.Ref, "drain "+b.cluster+":healing-")
	b.agentIs(t, ill, api.AgentMaintenance)
	require.Len(t, b.begins(old), 1, "what it ran was not repeated")

	held.own.ReportLevel(api.HealthHealthy, "")
	b.healUntil(t, nil, api.HealRestore, ill, api.HealAct)
	b.agentIs(t, ill, api.AgentOnline)
	held.own.ReportHealth(0.45, "disk errors")
	require.True(t, waitsEvery(t, 100*time.Millisecond, func() bool {
		d := b.healUntil(t, nil, api.HealDrain, ill, api.HealWait)
		return strings.Contains(d.Why, "once within a day")
	}), "the same again so soon is damped")
}

func TestWhatAPersonDoesIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	kept, well := plane.UniqueID("a"), plane.UniqueID("b")
	held, _ := b.agent(t, kept)
	b.agent(t, well)
	status, p := b.maintenance(t, kept, true)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	held.own.ReportHealth(0.45, "disk errors")
	require.Contains(t, b.healUntil(t, nil, api.HealDrain, kept, api.HealWait).Why, "operator")
	b.agentIs(t, kept, api.AgentMaintenance)
}

func TestLastHealthyAgentIsNotTakenAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	only := plane.UniqueID("a")
	held, _ := b.agent(t, only)
	held.own.ReportHealth(0.45, "disk errors")
	b.healUntil(t, nil, api.HealDrain, only, api.HealSkip)
	require.Contains(t, b.healed(t, api.HealDrain, only, api.HealingSkipped).Outcome,
		"no healthy agent would be left")
	b.agentIs(t, only, api.AgentOnline)
}

func TestDryRunModeOnlyRecords(t *testing.T) {
	t.Parallel()
	policy := quickHealing()
	policy.Mode = api.HealingDryRun
	b := newBench(t, api.ClusterConfig{SelfHealing: policy})
	ill, well := plane.UniqueID("a"), plane.UniqueID("b")
	held, _ := b.agent(t, ill)
	b.agent(t, well)
	held.own.ReportHealth(0.45, "disk errors")
	b.healUntil(t, nil, api.HealDrain, ill, api.HealPlan)
	require.Contains(t, b.healed(t, api.HealDrain, ill, api.HealingPlanned).Outcome, "nothing was done")
	b.agentIs(t, ill, api.AgentOnline)
}

func TestAgentWhoseHandlersHangIsFailedOver(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	b.finish.Store(true)
	hung, well := plane.UniqueID("a"), plane.UniqueID("b")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: hung,
		StopTimeout: time.Millisecond}, map[string]agent.Handler{
		"hold": func(_ context.Context, task *agent.Task) (any, error) {
			b.note(&b.begun, task.ID, hung)
			<-release // whatever its context says
			return nil, nil
		},
	})
	id := b.submit(t, map[string]any{"beacon_timeout": "1s", "retry": map[string]any{"initial_interval": "10ms"}})
	require.Equal(t, hung, b.waitBegins(t, id, 1)[0].agent)
	b.agent(t, well)
	found := b.healUntil(t, nil, api.HealFailover, hung, api.HealAct)
	require.Equal(t, api.HealthCritical, found.Facts.Level)
	require.Contains(t, found.Reason, "although they were told to stop")
	done := b.healed(t, api.HealFailover, hung, api.HealingSucceeded)
	require.Contains(t, done.Outcome, well+" took over")
	b.agentIs(t, hung, api.AgentMaintenance)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "30s").Status)
}

// TestOrphanIsDeliveredAgain has a hub take tasks and vanish before it gave them to anybody.
func TestOrphanIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	b.finish.Store(true)
	safe, once := b.submit(t, nil), b.submit(t, map[string]any{"retry_safety": "at_most_once"})
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		taken, err := plane.Temporal(t).WorkflowService().PollActivityTaskQueue(ctx,
			&workflowservice.PollActivityTaskQueueRequest{
				Namespace: "default", Identity: contract.HubIdentity("ghost"),
				TaskQueue: &taskqueuepb.TaskQueue{Name: contract.ClusterLane(b.cluster),
					Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
			})
		cancel()
		require.NoError(t, err)
		require.NotEmpty(t, taken.GetTaskToken())
	}
	taken := time.Now()
	worker := plane.UniqueID("a")
	b.agent(t, worker)
	found := b.healUntil(t, nil, api.HealReassign, safe, api.HealAct)
	require.Equal(t, "ghost", found.Facts.Orphan.Hub)
	require.Equal(t, worker, b.waitBegins(t, safe, 1)[0].agent)
	require.Less(t, time.Since(taken), api.AttemptBackstop, "sooner than the backstop would have")
	got := getTask(t, b.node.URL, safe, "30s")
	require.Equal(t, api.TaskCompleted, got.Status)
	require.Equal(t, api.AttemptLost, got.Attempts[0].Outcome)
	waitTask(t, b.node.URL, once, api.TaskReview)
	require.Empty(t, b.begins(once), "it may have begun: a person decides")
	require.Contains(t, b.healed(t, api.HealReassign, safe, api.HealingSucceeded).Outcome, "the attempt was ended")
}

func TestRunningWorkIsNoOrphan(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{SelfHealing: quickHealing()})
	b.agent(t, plane.UniqueID("a"))
	id := b.submit(t, nil)
	b.waitBegins(t, id, 1)
	began := time.Now()
	require.True(t, waitsEvery(t, 500*time.Millisecond, func() bool {
		require.Empty(t, b.heal(t, nil).Decisions)
		return time.Since(began) > 8*time.Second // its heartbeats are further apart than that
	}))
	require.Len(t, b.begins(id), 1)
	b.finish.Store(true)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "30s").Status)
}

// TestHealingSchedule pauses the schedule, looks that nothing happens, and resumes it.
func TestHealingSchedule(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	policy := quickHealing()
	policy.CycleInterval = api.Duration(5 * time.Second)
	b := newBench(t, api.ClusterConfig{SelfHealing: policy})
	temporal := store.Store{Client: plane.Temporal(t), Namespace: "default"}
	require.NoError(t, temporal.MakeHealing(t.Context()))
	pause := func(action string) api.HealingStatus {
		var status api.HealingStatus
		code, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/healing/"+action,
			map[string]any{"reason": "a test"}, &status)
		require.Equal(t, http.StatusOK, code, "%+v", p)
		return status
	}
	paused := pause("pause")
	require.Equal(t, api.HealingPaused, paused.State)
	require.Equal(t, "a test", paused.Note)
	require.Nil(t, paused.NextCycleAt)
	looks := &activities.Control{Client: plane.Temporal(t), Namespace: "default"}
	require.NoError(t, looks.TuneHealing(t.Context(), api.Duration(time.Second)))

	ill, well := plane.UniqueID("a"), plane.UniqueID("b")
	held, _ := b.agent(t, ill)
	b.agent(t, well)
	held.own.ReportHealth(0.45, "disk errors")
	b.healUntil(t, map[string]any{"dry_run": true}, api.HealDrain, ill, api.HealPlan)
	before, since := pause("pause").Cycles, time.Now()
	require.NoError(t, temporal.MakeHealing(t.Context()), "a worker that starts leaves it paused")
	require.True(t, waitsEvery(t, 500*time.Millisecond, func() bool {
		s, ok := b.healingStatus(t)
		require.True(t, !ok || s.Cycles == before, "a cycle began while healing is paused")
		return time.Since(since) > 3*time.Second
	}))
	b.agentIs(t, ill, api.AgentOnline)

	resumed := pause("resume")
	require.Equal(t, api.HealingActive, resumed.State)
	b.healed(t, api.HealDrain, ill, api.HealingSucceeded)
	require.Eventually(t, func() bool {
		s, ok := b.healingStatus(t)
		return ok && s.CycleInterval.Std() == 5*time.Second && s.LastCycle != nil
	}, patience, 500*time.Millisecond, "the schedule follows the shortest interval that a cluster asks for")
	pause("pause")
}
