package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// lane is how a lane's queue stands.
type lane struct {
	waiting int64
	age     time.Duration
	rate    float32
	err     error
}

// fakeQueues is a fleet with old open tasks and lanes.
type fakeQueues struct {
	fakeFleet
	old      []*workflowpb.WorkflowExecutionInfo
	runs     []*workflowpb.WorkflowExecutionInfo                // that wait for a person
	run      *workflowservice.DescribeWorkflowExecutionResponse // that is open
	lanes    map[string]lane                                    // by queue
	actions  []*workflowpb.WorkflowExecutionInfo                // of healing, before
	deaf     string                                             // a cluster whose actions cannot be listed
	countErr error
	listErr  error

	mu      sync.Mutex
	counted string   // the query
	listed  int      // lists of tasks
	looked  []string // queues
	ended   []string // attempts
}

func (f *fakeQueues) CountWorkflow(
	_ context.Context, r *workflowservice.CountWorkflowExecutionsRequest,
) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	f.counted = r.GetQuery()
	return &workflowservice.CountWorkflowExecutionsResponse{Count: int64(len(f.old))}, f.countErr
}

// ListWorkflow lists the old tasks, two a page.
func (f *fakeQueues) ListWorkflow(
	ctx context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	switch {
	case f.deaf != "" && strings.Contains(r.GetQuery(), contract.Equals(contract.AttrCluster.GetName(), f.deaf)):
		return nil, errors.New("too much")
	case strings.Contains(r.GetQuery(), contract.Equals("WorkflowType", contract.HealingActionWorkflow)):
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: f.actions}, nil
	case r.GetQuery() == contract.DeliveringQuery("c"):
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflowpb.WorkflowExecutionInfo{
			f.run.GetWorkflowExecutionInfo()}}, nil
	case r.GetQuery() == contract.UndecidedRuns(""):
		return &workflowservice.ListWorkflowExecutionsResponse{Executions: f.runs}, f.listErr
	case !strings.Contains(r.GetQuery(), contract.Equals("WorkflowType", contract.TaskWorkflow)):
		return f.fakeFleet.ListWorkflow(ctx, r)
	case r.GetQuery() != f.counted:
		return nil, errors.New("what is listed is not what was counted")
	}
	from := len(r.GetNextPageToken())
	f.listed++
	answer := &workflowservice.ListWorkflowExecutionsResponse{Executions: f.old[from:min(from+2, len(f.old))]}
	if from+2 < len(f.old) {
		answer.NextPageToken = make([]byte, from+2)
	}
	return answer, f.listErr
}

func (f *fakeQueues) DescribeWorkflowExecution(
	context.Context, string, string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return f.run, nil
}

func (f *fakeQueues) WorkflowService() workflowservice.WorkflowServiceClient {
	return queues{f.fakeFleet.WorkflowService(), f}
}

type queues struct {
	workflowservice.WorkflowServiceClient
	of *fakeQueues
}

func (q queues) RespondActivityTaskFailedById(
	_ context.Context, r *workflowservice.RespondActivityTaskFailedByIdRequest, _ ...grpc.CallOption,
) (*workflowservice.RespondActivityTaskFailedByIdResponse, error) {
	q.of.ended = append(q.of.ended, r.GetWorkflowId()+" "+r.GetActivityId())
	return &workflowservice.RespondActivityTaskFailedByIdResponse{}, nil
}

func (q queues) DescribeTaskQueue(
	_ context.Context, r *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeTaskQueueResponse, error) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	name := r.GetTaskQueue().GetName()
	q.of.looked = append(q.of.looked, name)
	l := q.of.lanes[name]
	return &workflowservice.DescribeTaskQueueResponse{Stats: &taskqueuepb.TaskQueueStats{
		ApproximateBacklogCount: l.waiting, ApproximateBacklogAge: durationpb.New(
			l.age), TasksDispatchRate: l.rate}}, l.err
}

// oldTask is an open task of a cluster that was submitted an hour ago.
func oldTask(
	t *testing.T, cluster string, status api.TaskStatus, agent string, since time.Duration,
) *workflowpb.WorkflowExecutionInfo {
	t.Helper()
	fields := map[string]*commonpb.Payload{}
	for name, value := range map[string]any{contract.AttrCluster.GetName(): cluster,
		contract.AttrStatus.GetName(): string(status),
		contract.AttrAgent.GetName():  agent, contract.AttrStatusAt.GetName(): time.Now().Add(-since)} {
		if value == "" {
			continue
		}
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		require.NoError(t, err)
		fields[name] = payload
	}
	return &workflowpb.WorkflowExecutionInfo{StartTime: timestamppb.New(time.Now().Add(-time.Hour)),
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: fields}}
}

// blockedRun is a run of a job that waits for a person.
func blockedRun(t *testing.T, since time.Duration) *workflowpb.WorkflowExecutionInfo {
	t.Helper()
	info := oldTask(t, "c", api.TaskStatus(api.RunBlocked), "", since)
	info.Type = &commonpb.WorkflowType{Name: contract.RunWorkflow}
	return info
}

func TestStuck(t *testing.T) {
	t.Parallel()
	const quarter, half = 15 * time.Minute, 30 * time.Minute
	review := func(t *testing.T, since time.Duration) *workflowpb.WorkflowExecutionInfo {
		return oldTask(t, "c", api.TaskReview, "", since)
	}
	for name, tc := range map[string]struct {
		set    func(*testing.T, *fakeQueues)
		view   cluster.Cluster
		want   []string // cluster, what, count, minutes
		looked []string
		listed int
	}{
		"no task is old": {set: func(_ *testing.T, f *fakeQueues) { f.lanes["lane/c"] = lane{waiting: 3, age: half} }},
		"reviews": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, review(t, time.Minute), review(t, half), review(t, 20*time.Minute))
		}, want: []string{"c reviews 3 30"}, listed: 2},
		"reviews that wait only since": {set: func(t *testing.T,
			f *fakeQueues) {
			f.old = append(f.old, review(t, 14*time.Minute))
		}, listed: 1},
		"a review of unknown begin": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, review(t, 0))
			delete(f.old[0].GetSearchAttributes().GetIndexedFields(), contract.AttrStatusAt.GetName())
		}, want: []string{"c reviews 1 60"}, listed: 1},
		"runs that wait for a person": {set: func(t *testing.T, f *fakeQueues) {
			f.runs = append(f.runs, blockedRun(t, half), blockedRun(t, time.Minute))
		}, want: []string{"c reviews 2 30"}},
		"a run that waits only since": {set: func(t *testing.T, f *fakeQueues) {
			f.runs = append(f.runs, blockedRun(t, time.Minute))
		}},
		"dead letters": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", api.TaskDeadLetter, "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: half}
		}, listed: 1},
		"a lane": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", "", "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: half}
		}, want: []string{"c lane:default 3 30"}, looked: []string{"lane/c"}, listed: 1},
		"a lane that moves": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", "", "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: half, rate: 0.1}
		}, looked: []string{"lane/c"}, listed: 1},
		"a lane that is empty": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", api.TaskRunning, "", half))
			f.lanes["lane/c"] = lane{age: half}
		}, looked: []string{"lane/c"}, listed: 1},
		"a lane whose first is young": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", api.TaskRetryWait, "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: quarter - time.Second}
		}, looked: []string{"lane/c"}, listed: 1},
		"a lane that does not answer": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", "", "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: half, err: errors.New("away")}
		}, looked: []string{"lane/c"}, listed: 1},
		"all kinds of lanes, one paused": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", "", "a-1", half))
			for _, queue := range []string{"lane/c", "lane/c/cap/gpu", "lane/c/shard/0", "lane/c/shard/1",
				"lane/c/agent/a-1"} {
				f.lanes[queue] = lane{waiting: 1, age: half}
			}
		}, view: cluster.Cluster{CapabilityLanes: cluster.CapabilityLanes{CapabilitySets: [][]string{{"gpu"}}}, Shards: make([]cluster.ShardOwner, 2),
			Pauses: []cluster.Pause{{Lane: "shard/0"}}},
			want: []string{"c lane:default 1 30", "c lane:cap/gpu 1 30", "c lane:shard/1 1 30",
				"c lane:agent/a-1 1 30"},
			looked: []string{"lane/c", "lane/c/cap/gpu", "lane/c/shard/1", "lane/c/agent/a-1"}, listed: 1},
		"everything is paused": {set: func(t *testing.T, f *fakeQueues) {
			f.old = append(f.old, oldTask(t, "c", "", "", half))
			f.lanes["lane/c"] = lane{waiting: 3, age: half}
		}, view: cluster.Cluster{Pauses: []cluster.Pause{{}}}, listed: 1},
		"each cluster by its own patience, and not those that are off": {set: func(t *testing.T, f *fakeQueues) {
			for _, cluster := range []string{"c", "off", "patient"} {
				f.old = append(f.old, oldTask(t, cluster, api.TaskReview, "", half),
					oldTask(t, cluster, "", "", half))
				f.lanes["lane/"+cluster] = lane{waiting: 1, age: half}
			}
			f.views["off"] = clusterView("off", api.HealingPolicy{Mode: api.HealingOff})
			f.views["patient"] = clusterView("patient",
				api.HealingPolicy{StuckAfter: api.Duration(40 * time.Minute)})
			f.names = append(f.names, "off", "patient")
		}, want: []string{"c reviews 1 30", "c lane:default 1 30"}, looked: []string{"lane/c",
			"lane/patient"}, listed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := stuckFleet(tc.view)
			tc.set(t, f)
			began := time.Now()
			found, err := (&activities.Control{Client: f, Namespace: "default"}).ExamineFleet(t.Context(),
				contract.ExamineInput{At: began})
			require.NoError(t, err)
			var got []string
			for _, c := range found.Cases {
				for _, s := range c.Stuck {
					require.WithinDuration(t, began.Add(-began.Sub(s.Since).Round(time.Minute)), s.Since,
						10*time.Second)
					require.NotEmpty(t, s.Reason)
					got = append(got, fmt.Sprintf("%s %s %d %.0f", c.Cluster, s.What, s.Count,
						began.Sub(s.Since).Minutes()))
				}
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.looked, f.looked)
			require.Equal(t, tc.listed, f.listed)
			before := strings.Split(f.counted, "StartTime < ")
			require.Len(t, before, 2)
			at, err := time.Parse("'"+time.RFC3339+"'", before[1])
			require.NoError(t, err)
			require.WithinDuration(t, began.Add(-quarter), at, 10*time.Second,
				"tasks count that are as old as the least patient cluster says")
		})
	}
}

// An attempt of a run's step, or of an array's bundle, that no agent runs is found and ended. If its hub is lost, it is
// among those that its agent had.
func TestOrphanOfAStepOrBundle(t *testing.T) {
	t.Parallel()
	for task, ended := range map[string]string{"build-1~a": "run/build-1 a/attempt-2",
		"sweep~.b4": "array/sweep .b4/attempt-2"} {
		t.Run(task, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			upset := cluster.Cluster{}
			upset.HubStarts = cluster.HubStarts{{Since: began.Add(-time.Minute)}}
			f := stuckFleet(upset)
			report, err := converter.GetDefaultDataConverter().ToPayloads(contract.AttemptReport{Hub: "h1", AgentID: "a"})
			require.NoError(t, err)
			workflowID, _ := contract.Locate(task)
			f.run = &workflowservice.DescribeWorkflowExecutionResponse{
				WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{
					WorkflowId: workflowID, RunId: "r"}},
				PendingActivities: []*workflowpb.PendingActivityInfo{{
					ActivityId:         contract.AttemptActivityID(task, 2),
					ActivityType:       &commonpb.ActivityType{Name: contract.RunTaskActivity.Name},
					State:              enumspb.PENDING_ACTIVITY_STATE_STARTED,
					LastStartedTime:    timestamppb.New(began.Add(-50 * time.Second)),
					LastWorkerIdentity: contract.HubIdentity("h1"),
					HeartbeatDetails:   report,
				}}}
			held, err := store.Store{Client: f, Namespace: "default"}.Tasks().HeldAt(t.Context(), "c", "h1")
			require.NoError(t, err)
			require.Equal(t, map[string][]cluster.HeldAttempt{"a": {{TaskID: task, Attempt: 2}}}, held.Attempts())
			control := &activities.Control{Client: f, Namespace: "default"}
			found, err := control.ExamineFleet(t.Context(), contract.ExamineInput{At: began})
			require.NoError(t, err)
			require.Len(t, found.Cases, 1)
			require.Len(t, found.Cases[0].Suspects, 1)
			orphan := found.Cases[0].Suspects[0]
			require.Equal(t, task, orphan.TaskID)
			outcome, err := control.EndOrphan(t.Context(), contract.EndOrphanInput{Cluster: "c", Orphan: orphan})
			require.NoError(t, err)
			require.Contains(t, outcome, "was ended")
			require.Equal(t, []string{ended}, f.ended)
		})
	}
}

func clusterView(name string, policy api.HealingPolicy) contract.ClusterView {
	return contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: name, SelfHealing: policy}}}
}

// stuckFleet is a fleet with one cluster, in which nothing is wrong.
func stuckFleet(c cluster.Cluster) *fakeQueues {
	c.Config.Name = "c"
	return &fakeQueues{fakeFleet: fakeFleet{names: []string{"c"},
		views: map[string]contract.ClusterView{"c": {Cluster: c}}}, lanes: map[string]lane{}}
}

// illFleet is a fleet with one cluster, of ill agents with long notes and so many actions before.
func illFleet(t *testing.T, agents, before int) *fakeQueues {
	t.Helper()
	var c cluster.Cluster
	for i := range agents {
		c.Members = append(c.Members, cluster.Member{AgentID: fmt.Sprintf("agent-%04d", i), Hub: "h-1", Status: api.AgentOnline,
			Health: &cluster.MemberHealth{Level: api.HealthFailed, Why: strings.Repeat("\x01", 256)}})
	}
	f := stuckFleet(c)
	for i := range before {
		note, err := contract.Payloads.ToPayload(contract.HealingNote{Type: api.HealFailover,
			TargetID: fmt.Sprintf("agent-%04d", i), Verdict: api.HealSkip, At: time.Now()})
		require.NoError(t, err)
		f.actions = append(f.actions, &workflowpb.WorkflowExecutionInfo{
			Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoHealing: note}}})
	}
	return f
}

// Where there are more ill agents than earlier actions are looked at, no skip is recorded again and again.
func TestMoreIllAgentsThanEarlierActions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before   int
		dryRun   bool
		recorded int
	}{{499, false, 501}, {500, false, 0}, {700, false, 0}, {700, true, 500}} {
		control := &activities.Control{Client: illFleet(t, 1000, tc.before), Namespace: "default"}
		found, err := control.ExamineFleet(t.Context(), contract.ExamineInput{At: time.Now(), DryRun: tc.dryRun})
		require.NoError(t, err)
		require.Len(t, found.Cases, 1)
		require.Len(t, found.Cases[0].Past, min(tc.before, 500))
		decisions := healing.DecideHealing(&found.Cases[0], time.Now())
		require.Len(t, decisions, 1000)
		require.Equal(t, tc.recorded, healing.Recorded(decisions), "%+v", tc)
	}
}

// A cluster that cannot be looked at keeps no other from healing; who asks for it by hand is told.
func TestAClusterThatCannotBeLookedAtKeepsNoOtherFromHealing(t *testing.T) {
	t.Parallel()
	f := illFleet(t, 3, 0)
	other := f.views["c"]
	other.Config.Name = "d"
	f.names, f.views["d"], f.deaf = []string{"c", "d"}, other, "c"
	control := &activities.Control{Client: f, Namespace: "default"}
	found, err := control.ExamineFleet(t.Context(), contract.ExamineInput{At: time.Now()})
	require.NoError(t, err)
	require.Len(t, found.Cases, 1)
	require.Equal(t, "d", found.Cases[0].Cluster)
	require.Equal(t, []string{"c"}, found.Silent)
	_, err = control.ExamineFleet(t.Context(), contract.ExamineInput{At: time.Now(), Cluster: "c"})
	require.ErrorContains(t, err, "too much")
}

// What is found fits into a message, whatever agents say.
func TestWhatManyIllAgentsSayIsShortened(t *testing.T) {
	t.Parallel()
	f := illFleet(t, api.MaxMembers, 0)
	found, err := (&activities.Control{Client: f, Namespace: "default"}).ExamineFleet(t.Context(), contract.ExamineInput{})
	require.NoError(t, err)
	require.Len(t, found.Cases[0].Agents, api.MaxMembers)
	require.Len(t, found.Cases[0].Agents[7].Health.Why, 50+len("…"))
}

// Of very many lanes that move nothing the same ones are reported each time, as each that is new gets a record.
func TestStuckLanesAreBounded(t *testing.T) {
	t.Parallel()
	var first []healing.Stuck
	for range 3 {
		f := stuckFleet(cluster.Cluster{})
		for i := range 300 {
			agent := fmt.Sprintf("a-%03d", i)
			f.old = append(f.old, oldTask(t, "c", "", agent, time.Hour))
			f.lanes["lane/c/agent/"+agent] = lane{waiting: 1, age: time.Hour}
		}
		found, err := (&activities.Control{Client: f, Namespace: "default"}).ExamineFleet(t.Context(),
			contract.ExamineInput{At: time.Now()})
		require.NoError(t, err)
		stuck := found.Cases[0].Stuck
		require.Len(t, stuck, 100)
		if first == nil {
			first = stuck
		}
		require.Equal(t, []string{first[0].What, first[99].What}, []string{stuck[0].What, stuck[99].What})
	}
}

func TestStuckIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*fakeQueues){
		"count the old tasks":    func(f *fakeQueues) { f.countErr = errors.New("away") },
		"look for what is wrong": func(f *fakeQueues) { f.listErr = errors.New("away") },
	} {
		f := stuckFleet(cluster.Cluster{})
		f.old = append(f.old, oldTask(t, "c", api.TaskReview, "", time.Hour))
		set(f)
		_, err := (&activities.Control{Client: f, Namespace: "default"}).ExamineFleet(t.Context(),
			contract.ExamineInput{At: time.Now()})
		require.ErrorContains(t, err, name+": away")
	}
}
