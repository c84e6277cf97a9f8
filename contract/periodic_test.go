package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

func TestFiringNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	const id = "periodic/nightly-backup-2026-11-21T03:00:00Z" // as Temporal makes it
	require.Equal(t, id, contract.FiringWorkflowID("nightly-backup", at.In(time.FixedZone("", 3600))))
	schedule, when, ok := contract.FiringOfWorkflowID(id)
	require.True(t, ok)
	require.Equal(t, "nightly-backup", schedule)
	require.Equal(t, at, when)
	require.Equal(t, "nightly-backup-20261121t030000z", contract.FiringTaskID(schedule, when))
	require.NoError(t, fleet.ValidateTaskID(contract.FiringTaskID(schedule, when)))
	for _, other := range []string{"", "periodic/", "periodic/nightly", "task/nightly-2026-11-21T03:00:00Z", "periodic/-2026-11-21T03:00:00Z", "periodic/a/b-2026-11-21T03:00:00Z", "periodic/a-2026-13-21T03:00:00Z"} {
		_, _, ok := contract.FiringOfWorkflowID(other)
		require.False(t, ok, other)
	}
}

func TestTaskQuery(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 500, time.FixedZone("", 3600))
	for want, filter := range map[string]fleet.TaskFilter{
		`WorkflowType = 'Task'`: {},
		`WorkflowType = 'Task' AND MainstayCluster = 'c' AND MainstayTaskType = 't' AND MainstayTenant = 'acme' AND MainstayAgent = 'a'`: {Cluster: "c", Type: "t", Tenant: "acme", Agent: "a"},
		`WorkflowType = 'Task' AND MainstayLabels = 'a=it%27s' AND MainstayLabels = 'b=%5C'`:                                             {Labels: map[string]string{"b": `\`, "a": "it's"}},
		`WorkflowType = 'Task' AND StartTime >= '2026-11-21T02:00:00.0000005Z' AND StartTime < '2026-11-21T02:00:00.0000005Z'`:           {SubmittedAfter: at, SubmittedBefore: at},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'dead_letter' AND 'dead_letter'`:               {Status: fleet.TaskDeadLetter},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'unhandled' AND 'unhandled'`:                   {Status: contract.TaskUnhandled},
		`WorkflowType = 'Task' AND ExecutionStatus = 'Running' AND (MainstayStatus IS NULL OR MainstayStatus = 'unhandled')`:             {Status: fleet.TaskQueued},
		`WorkflowType = 'Task' AND (ExecutionStatus = 'Canceled' OR ExecutionStatus = 'Terminated')`:                                     {Status: fleet.TaskCancelled},
	} {
		require.Equal(t, want, contract.TaskQuery(&filter))
	}
	retry := contract.BulkSpec{Action: fleet.BulkRetry, Filter: fleet.TaskFilter{Cluster: "c"}}
	require.Equal(t, `WorkflowType = 'Task' AND MainstayCluster = 'c' AND ExecutionStatus = 'Running' AND MainstayStatus BETWEEN 'dead_letter' AND 'dead_letter' AND ExecutionStatus = 'Running'`, retry.Query(),
		"a retry asks for dead letters only")
}

func TestBulkCounts(t *testing.T) {
	t.Parallel()
	var all, page contract.BulkCounts
	for i := range 30 {
		page.Count(contract.BulkExample{TaskID: "s", Outcome: contract.BulkTaskSkipped, Reason: "has ended"})
		page.Count(contract.BulkExample{TaskID: "d", Outcome: contract.BulkTaskDone})
		page.Count(contract.BulkExample{TaskID: "no match"})
		if i < 2 {
			page.Count(contract.BulkExample{TaskID: "f", Outcome: contract.BulkTaskFailed, Reason: "no such task"})
		}
	}
	all.Add(page)
	all.Add(page)
	require.Equal(t, []int{124, 60, 60, 4}, []int{all.Matched, all.Done, all.Skipped, all.Failed})
	kept := map[contract.BulkOutcome]int{}
	for _, e := range all.Examples {
		kept[e.Outcome]++
	}
	require.Equal(t, map[contract.BulkOutcome]int{contract.BulkTaskSkipped: 20, contract.BulkTaskFailed: 4}, kept)
}
