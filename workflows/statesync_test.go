package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdktestsuite "go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/statesync"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// syncRun is a StateSync workflow with agents that are tables; all are at one hub.
type syncRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	members  []contract.SyncMember
	tables   map[string]*api.StateTable
	silent   map[string]bool
	fails    bool   // the hub
	between  func() // called when entries were handed out
	reads    func() // called when states are read
	applied  int
	compared int
}

func newSync(t *testing.T, agents ...string) *syncRun {
	t.Helper()
	r := &syncRun{TestWorkflowEnvironment: workflowtest.NewEnvironment(), tables: map[string]*api.StateTable{},
		silent: map[string]bool{}}
	worker.RegisterWorkflows(r)
	for i, a := range agents {
		role := api.RoleStandby
		if i == 0 {
			role = api.RoleLeader
		}
		r.members = append(r.members, contract.SyncMember{AgentID: a, Role: role, Hub: "h1"})
		r.tables[a] = &api.StateTable{}
	}
	register := func(name string, f any) { r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(contract.SyncMembersActivity.Name, func(context.Context, string) (contract.SyncMembersResult, error) {
		return contract.SyncMembersResult{Mode: api.ActivePassive, Leader: agents[0], Members: r.members}, nil
	})
	register(contract.ReadStatesActivity.Name, r.readStates)
	register(contract.CompareStatesActivity.Name, func(_ context.Context,
		in contract.CompareStatesInput) (contract.CompareStatesResult, error) {
		var result contract.CompareStatesResult
		r.compared++
		for _, m := range r.members {
			if table := r.tables[m.AgentID]; table != nil && !r.silent[m.AgentID] {
				if d := statesync.DiffState(in.Want, table.Manifest()); len(d.Missing)+len(d.Extra) > 0 {
					result.Lagging = append(result.Lagging, contract.AgentLag{AgentID: m.AgentID, Behind: d.Behind()})
					result.Missing, result.Extra = append(result.Missing, d.Missing...), append(result.Extra,
						d.Extra...)
				}
			}
		}
		return result, nil
	})
	register(contract.ReadEntriesActivity.Name, func(_ context.Context,
		in contract.ReadEntriesInput) (contract.ReadEntriesResult, error) {
		return contract.ReadEntriesResult{Entries: r.tables[in.AgentID].Entries(in.Refs),
			Silent: r.silent[in.AgentID]}, nil
	})
	register(contract.ApplyStateActivity.Name, func(_ context.Context,
		in contract.ApplyStateInput) (contract.ApplyStateResult, error) {
		r.applied++
		for _, a := range in.Agents {
			for _, e := range in.Entries {
				if _, err := r.tables[a].Put(e); err != nil {
					return contract.ApplyStateResult{}, err
				}
			}
			for _, ref := range in.Forget {
				r.tables[a].Forget(ref)
			}
		}
		if r.between != nil {
			r.between()
		}
		return contract.ApplyStateResult{}, nil
	})
	return r
}

func (r *syncRun) readStates(_ context.Context, in contract.ReadStatesInput) (contract.ReadStatesResult, error) {
	var result contract.ReadStatesResult
	if r.fails {
		return result, errors.New("the hub is away")
	}
	if r.reads != nil {
		r.reads()
	}
	merged := statesync.NewMerged("")
	for _, m := range r.members {
		table := r.tables[m.AgentID]
		if table == nil {
			result.Agents = append(result.Agents, contract.AgentState{AgentID: m.AgentID})
			continue
		}
		summary := table.Summary()
		result.Agents = append(result.Agents, contract.AgentState{AgentID: m.AgentID, State: &summary,
			Silent: r.silent[m.AgentID]})
		if !r.silent[m.AgentID] {
			merged.TakeManifest(m.AgentID, table.Manifest())
		}
	}
	result.Merged = merged.Lines(func(string) bool { return true })
	return result, nil
}

func (r *syncRun) write(t *testing.T, agent, key, value string) {
	t.Helper()
	_, err := r.tables[agent].Write(api.StateRef{Section: api.StateConfiguration, Key: key}, []byte(value), 1)
	require.NoError(t, err)
}

func (r *syncRun) report(t *testing.T) api.SyncReport {
	t.Helper()
	r.ExecuteWorkflow(contract.StateSyncWorkflow, contract.SyncInput{Cluster: "default", Reason: "test"})
	require.NoError(t, r.GetWorkflowError())
	var report api.SyncReport
	require.NoError(t, r.GetWorkflowResult(&report))
	require.NotNil(t, report.CompletedAt)
	value, err := r.QueryWorkflow(contract.SyncQuery.Name)
	require.NoError(t, err)
	var asked api.SyncReport
	require.NoError(t, value.Get(&asked))
	require.Equal(t, report, asked)
	return report
}

func TestStateSync(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b", "c")
	for i := range 5 {
		r.write(t, "lead", fmt.Sprint(i), `"value"`)
	}
	_, err := r.tables["b"].Write(api.StateRef{Section: api.StateTargets, Key: "left"}, []byte(`["x"]`), 1)
	require.NoError(t, err)
	_, err = r.tables["lead"].Write(api.StateRef{Section: api.StateTasks, Key: "lead"}, []byte(`[{"task_id":"t"}]`),
		1)
	require.NoError(t, err)
	report := r.report(t)
	require.Equal(t, api.SyncConsistent, report.Status, report.Why)
	require.Equal(t, 12, report.EntriesSent, "six entries to two standbys")
	require.Equal(t, 2, report.Rounds)
	require.Equal(t, 6, report.State.Entries)
	for _, m := range report.Members {
		require.True(t, m.Consistent)
		require.Equal(t, report.State.Digest, m.State.Digest)
		require.Empty(t, m.Why)
		require.Equal(t, r.tables["lead"].Manifest(), r.tables[m.AgentID].Manifest(), "task states too")
	}
}

// Temporal terminates a workflow whose history has 50 MiB: what a sync has no room for is left to the next one.
func TestAStateSyncEndsBeforeItsHistoryIsFull(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b")
	for i := range 40 {
		r.write(t, "lead", fmt.Sprint(i), `"`+strings.Repeat("x", 20<<10)+`"`)
	}
	r.between = func() { r.SetCurrentHistorySize(17 << 20) }
	report := r.report(t)
	require.Equal(t, api.SyncInconsistent, report.Status)
	require.Contains(t, report.Why, "the next one goes on")
	require.Positive(t, report.EntriesSent)
	require.Less(t, report.EntriesSent, 40)
}

// What the members of several hubs tell together fits into a message to each, and into the workflow's answers: those of
// the leader first. What others have beside it is not taken for too much.
func TestAStateSyncOfManyLinesFitsIntoMessages(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b", "c")
	line := func(holder string, n int) statesync.HeldLine {
		return statesync.HeldLine{Holder: holder, StateLine: api.StateLine{Digest: "00112233", Size: 3,
			StateRef:     api.StateRef{Section: api.StateConfiguration, Key: fmt.Sprintf("%s%0250d", holder, n)},
			StateVersion: api.StateVersion{Number: 1}}}
	}
	for i := range r.members {
		r.members[i].Hub = fmt.Sprint("h", 3-i) // the leader's is the last
	}
	r.RegisterActivityWithOptions(func(ctx context.Context, _ contract.ReadStatesInput) (contract.ReadStatesResult, error) {
		var result contract.ReadStatesResult
		for _, m := range r.members {
			if activity.GetInfo(ctx).TaskQueue != contract.HubQueue(m.Hub) {
				continue
			}
			result.Agents = []contract.AgentState{{AgentID: m.AgentID, State: &api.StateSummary{Digest: "00"}}}
			for n := range 3000 {
				result.Merged = append(result.Merged, line(m.AgentID, n))
			}
		}
		return result, nil
	}, activity.RegisterOptions{Name: contract.ReadStatesActivity.Name})
	turns := 0
	r.SetOnTimerScheduledListener(func(string, time.Duration) { turns++ })
	r.RegisterActivityWithOptions(func(_ context.Context,
		in contract.CompareStatesInput) (contract.CompareStatesResult, error) {
		assert.True(t, contract.Fits(in), "%d bytes", contract.Bytes(in))
		leaders := 0
		for _, l := range in.Want {
			if strings.HasPrefix(l.Key, "lead") {
				leaders++
			}
		}
		assert.Equal(t, 3000, leaders)
		return contract.CompareStatesResult{Lagging: []contract.AgentLag{{AgentID: "b", Behind: 1}},
			Extra: []api.StateRef{{Section: api.StateTargets, Key: "c"}}}, nil
	}, activity.RegisterOptions{Name: contract.CompareStatesActivity.Name})
	report := r.report(t)
	require.Equal(t, api.SyncInconsistent, report.Status)
	require.Contains(t, report.Why, "more entries together than a sync compares")
	require.Zero(t, r.applied)
	require.Equal(t, 2, turns, "one hub in each workflow task: Temporal takes 4 MiB of its answer")
}

// A history that is full with what was read takes no comparison.
func TestAStateSyncThatReadsTooMuchComparesNothing(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b")
	r.write(t, "lead", "a", "1")
	r.reads = func() { r.SetCurrentHistorySize(17 << 20) }
	report := r.report(t)
	require.Equal(t, api.SyncInconsistent, report.Status)
	require.Contains(t, report.Why, "the next one goes on")
	require.Zero(t, r.compared)
}

func TestStateSyncOfEqualStatesSendsNothing(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b")
	r.members = append(r.members, contract.SyncMember{AgentID: "away"},
		contract.SyncMember{AgentID: "plain", Hub: "h1"})
	report := r.report(t)
	require.Equal(t, api.SyncConsistent, report.Status)
	require.Zero(t, r.applied)
	require.Equal(t, 1, report.Rounds)
	require.Equal(t, "it is not connected", report.Members[2].Why)
	require.Equal(t, "it keeps no state", report.Members[3].Why)
}

// The leader writes while the sync is under way: another round brings that too, but not for ever.
func TestStateSyncWhileTheLeaderWrites(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b")
	r.write(t, "lead", "a", "1")
	r.between = func() {
		if r.applied <= 2 {
			r.write(t, "lead", fmt.Sprint("more", r.applied), "1")
		}
	}
	report := r.report(t)
	require.Equal(t, api.SyncConsistent, report.Status, report.Why)
	require.Equal(t, 4, report.Rounds)

	r = newSync(t, "lead", "b")
	r.write(t, "lead", "a", "1")
	r.between = func() { r.write(t, "lead", fmt.Sprint("more", r.applied), "1") }
	report = r.report(t)
	require.Equal(t, api.SyncInconsistent, report.Status)
	require.Equal(t, 1, report.Members[1].Behind)
}

func TestStateSyncThatCannotBeDone(t *testing.T) {
	t.Parallel()
	r := newSync(t, "lead", "b")
	r.write(t, "lead", "a", "1")
	r.silent["b"] = true
	report := r.report(t)
	require.Equal(t, api.SyncInconsistent, report.Status)
	i := slices.IndexFunc(report.Members, func(m api.MemberSync) bool { return m.AgentID == "b" })
	require.Equal(t, "it did not answer", report.Members[i].Why)
	require.False(t, report.Members[i].Consistent)

	r = newSync(t, "lead")
	r.fails = true
	report = r.report(t)
	require.Equal(t, api.SyncFailed, report.Status)
	require.Equal(t, "its hub did not answer", report.Members[0].Why)
}
