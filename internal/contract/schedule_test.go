package contract_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

func TestFiringNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	const id = "firing/nightly-backup-2026-11-21T03:00:00Z" // as Temporal makes it
	require.Equal(t, id, contract.FiringWorkflowID("nightly-backup", at.In(time.FixedZone("", 3600))))
	schedule, when, ok := contract.FiringOfWorkflowID(id)
	require.True(t, ok)
	require.Equal(t, "nightly-backup", schedule)
	require.Equal(t, at, when)
	require.Equal(t, "nightly-backup@20261121t030000z", contract.FiringTaskID(schedule, when))
	require.Equal(t, "acme:nightly@20261121t030000z", contract.FiringTaskID("acme:nightly", when))
	for _, other := range []string{"", "firing/", "firing/nightly", "task/nightly-2026-11-21T03:00:00Z",
		"firing/-2026-11-21T03:00:00Z", "firing/a/b-2026-11-21T03:00:00Z", "firing/:a-2026-11-21T03:00:00Z", "firing/a:b:c-2026-11-21T03:00:00Z", "firing/a-2026-13-21T03:00:00Z"} {
		_, _, ok := contract.FiringOfWorkflowID(other)
		require.False(t, ok, other)
	}
}

// TestIDsNeverCollide makes ids of random tenants, names, keys and times: each has its inverse, no two are the same,
// and what is made is never what a client can choose.
func TestIDsNeverCollide(t *testing.T) {
	t.Parallel()
	const first, rest = "ab0", "ab0._-"
	r := rand.New(rand.NewPCG(7, 77))
	slug := func(most int) string {
		text := []byte{first[r.IntN(len(first))]}
		for range r.IntN(most) {
			text = append(text, rest[r.IntN(len(rest))])
		}
		return string(text)
	}
	makers := map[string][]string{} // an id, and all that it was made of
	is := func(id string, parts ...string) {
		if known, there := makers[id]; there {
			require.Equal(t, known, parts, id)
		}
		makers[id] = parts
		require.True(t, api.IsTaskID(id), id)
		found, ok := contract.TaskOfWorkflowID(contract.TaskWorkflowID(id))
		require.True(t, ok)
		require.Equal(t, id, found)
	}
	for range 3_000 {
		tenant := ""
		if r.IntN(3) > 0 {
			tenant = slug(3)
		}
		name, key := slug(4), slug(2)
		full := api.Qualify(tenant, name)
		cutTenant, cutName := api.CutTenant(full)
		require.Equal(t, []string{tenant, name}, []string{cutTenant, cutName})
		is(full, "chosen", tenant, name)

		at := time.Unix(1_800_000_000+r.Int64N(5), 0).UTC()
		firing := contract.FiringTaskID(full, at)
		is(firing, "firing", tenant, name, at.String())
		schedule, when, ok := contract.FiringOfWorkflowID(contract.FiringWorkflowID(full, at))
		require.True(t, ok)
		require.Equal(t, full, schedule)
		require.Equal(t, at, when)
		scheduled, ok := contract.ScheduleOfID(contract.ScheduleID(full))
		require.True(t, ok)
		require.Equal(t, full, scheduled)

		keyed := contract.KeyedTaskID(tenant, "c", key)
		is(keyed, "key", tenant, key)
		for _, made := range []string{firing, keyed} {
			_, chosen := api.CutTenant(made)
			require.Error(t, api.ValidateTaskID(chosen), "no client can choose it")
		}
	}
	require.Greater(t, len(makers), 3_000)
	for _, bad := range []string{"", ":", ":x", "a:", "a:b:c", "@", "x@", "@x", "x@y@z", "a:@x", "A:x", "a:X", "a/b",
		"a~b", strings.Repeat("x", 64)} {
		require.False(t, api.IsTaskID(bad), bad)
		require.False(t, api.IsScheduleName(bad), bad)
	}
	require.False(t, api.IsScheduleName("nightly@20261121t030000z"))
	longest := api.Qualify(strings.Repeat("t", api.MaxIDLength), strings.Repeat("n", api.MaxScheduleName))
	require.True(t, api.IsScheduleName(longest))
	require.True(t, api.IsTaskID(contract.FiringTaskID(longest, time.Now())), "the ids of its tasks fit")
	require.Len(t, contract.FiringTaskID(longest, time.Now()), 127, "what the API's paths take")
}

func TestTaskQuery(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 500, time.FixedZone("", 3600))
	for want, filter := range map[string]api.TaskFilter{
		`WorkflowType = 'Task'`: {},
		`WorkflowType = 'Task' AND MainstayCluster = 'c' AND MainstayTaskType = 't' AND MainstayTenant = 'acme' AND MainstayAgent = 'a'`: {Cluster: "c", Type: "t", Tenant: "acme", Agent: "a"},
		`WorkflowType = 'Task' AND MainstayLabels = 'a=it%27s' AND MainstayLabels = 'b=%5C'`:                                             {Labels: map[string]string{"b": `\`, "a": "it's"}},
		`WorkflowType = 'Task' AND StartTime >= '2026-11-21T02:00:00.0000005Z' AND StartTime < '2026-11-21T02:00:00.0000005Z'`:           {SubmittedAfter: at, SubmittedBefore: at},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'dead_letter' AND 'dead_letter'`:               {Status: api.TaskDeadLetter},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'unhandled' AND 'unhandled'`:                   {Status: contract.TaskUnhandled},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND (MainstayStatus IS NULL OR MainstayStatus = 'unhandled')`:             {Status: api.TaskQueued},
		`WorkflowType = 'Task' AND (ExecutionStatus = 'Canceled' OR ExecutionStatus = 'Terminated')`:                                     {Status: api.TaskCancelled},
	} {
		require.Equal(t, want, contract.TaskQuery(&filter))
	}
	retry := contract.BulkSpec{Action: api.BulkRetry, Filter: api.TaskFilter{Cluster: "c"}}
	require.Equal(t, `WorkflowType = 'Task' AND MainstayCluster = 'c' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'dead_letter' AND 'dead_letter' AND ExecutionStatus = 'Running'`, retry.Query(),
		"a retry asks for dead letters only")
}

func TestBulkCounts(t *testing.T) {
	t.Parallel()
	var all, page contract.BulkCounts
	for i := range 30 {
		page.Count(api.BulkExample{TaskID: "s", Outcome: api.BulkTaskSkipped, Reason: "has ended"})
		page.Count(api.BulkExample{TaskID: "d", Outcome: api.BulkTaskDone})
		page.Count(api.BulkExample{TaskID: "no match"})
		if i < 2 {
			page.Count(api.BulkExample{TaskID: "f", Outcome: api.BulkTaskFailed, Reason: "no such task"})
		}
	}
	all.Add(page)
	all.Add(page)
	require.Equal(t, []int{124, 60, 60, 4}, []int{all.Matched, all.Done, all.Skipped, all.Failed})
	kept := map[api.BulkOutcome]int{}
	for _, e := range all.Examples {
		kept[e.Outcome]++
	}
	require.Equal(t, map[api.BulkOutcome]int{api.BulkTaskSkipped: 20, api.BulkTaskFailed: 4}, kept)
}
