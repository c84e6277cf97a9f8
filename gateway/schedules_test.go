package gateway_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const schedulesPath = "/api/v1/agents/schedules"

const nightly = `{"name":"nightly","cron":"0 3 13 * fri","time_zone":"Europe/Berlin","overlap":"buffer_one",
	"catchup_window":"10m","jitter":"30s",
"start_at":"2027-01-01T00:00:00Z","end_at":"2099-01-01T00:00:00Z","note":"backup",
"task":{"type":"exec","cluster":"default","payload":{"command":["true"]},"priority":2,"tenant":"acme","labels":{"a":"b"},"retry":{"max_attempts":5,"non_retryable":["exit_2"]},"retry_safety":"fenced","timeout":"30s","required_capabilities":["gpu"]}}`

func TestScheduleIsMadeAndRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	made := answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath, nightly), http.StatusCreated)
	require.Equal(t, "0 3 13 * fri", made.Cron)
	require.Equal(t, "Europe/Berlin", made.TimeZone)
	require.Equal(t, api.OverlapBufferOne, made.Overlap)
	require.Equal(t, 10*time.Minute, made.CatchupWindow.Std())
	require.Equal(t, 30*time.Second, made.Jitter.Std())
	require.Equal(t, 2027, made.StartAt.Year())
	require.Equal(t, 2099, made.EndAt.Year())
	require.Equal(t, "backup", made.Note)
	require.Empty(t, made.Runs)
	require.JSONEq(t, `{"command":["true"]}`, string(made.Task.Payload))
	require.Equal(t, map[string]string{"a": "b"}, made.Task.Labels)
	require.Equal(t, []string{"exit_2"}, made.Task.Retry.NonRetryable)
	require.Equal(t, api.Fenced, made.Task.RetrySafety)
	require.EqualValues(t, 2, made.Task.Priority)

	s := f.schedules.byID[contract.ScheduleID("acme:nightly")].GetSchedule()
	require.Equal(t, "CRON_TZ=Europe/Berlin 0 3 13 * fri", s.GetSpec().GetStructuredCalendar()[0].GetComment())
	require.Empty(t, s.GetSpec().GetTimezoneName(), "Temporal is told times of UTC")
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE, s.GetPolicies().GetOverlapPolicy())
	action := s.GetAction().GetStartWorkflow()
	require.Equal(t, contract.FiringsWorkflowID("acme:nightly"), action.GetWorkflowId())
	require.Equal(t, contract.FiringWorkflow, action.GetWorkflowType().GetName())
	require.Equal(t, contract.WorkerQueue, action.GetTaskQueue().GetName())

	problem(t, do(h, http.MethodPost, schedulesPath, nightly), http.StatusConflict, protocol.CodeScheduleExists)
	list := answer[struct{ Schedules []api.ScheduleEntry }](t,
		do(h, http.MethodGet, schedulesPath+"?cluster=default&tenant=acme", ""), http.StatusOK)
	require.Equal(t, "MainstayTaskType IS NOT NULL AND MainstayCluster = 'default' AND MainstayTenant = 'acme'",
		f.schedules.query)
	require.Len(t, list.Schedules, 1)
	require.Equal(t, api.ScheduleEntry{Name: "acme:nightly", Cron: "0 3 13 * fri", TimeZone: "Europe/Berlin",
		Type: "exec", Cluster: "default", Tenant: "acme", Note: "backup", NextTime: &made.NextTimes[0]},
		list.Schedules[0])
}

// TestTimesOfSchedulesAreRenewed has a schedule that has only some of its times, and one whose year is over.
func TestTimesOfSchedulesAreRenewed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath, nightly), http.StatusCreated)
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath,
		`{"name":"poll","interval":"1h","task":{"type":"x","cluster":"default"}}`), http.StatusCreated)
	d := f.schedules.byID[contract.ScheduleID("acme:nightly")]
	written := proto.CloneOf(d.GetSchedule())
	old := proto.CloneOf(written)
	old.Spec.StructuredCalendar = old.Spec.StructuredCalendar[:1]
	d.Schedule = old
	s := store.Store{Client: f}
	now := time.Now()
	require.NoError(t, s.RenewSchedules(t.Context(), now))
	require.True(t, proto.Equal(written, d.GetSchedule()), "%v", d.GetSchedule())
	require.NotEmpty(t, d.GetSearchAttributes().GetIndexedFields())
	token := d.GetConflictToken()
	require.NoError(t, s.RenewSchedules(t.Context(), now))
	require.Equal(t, token, d.GetConflictToken(), "nothing is to be told")
	require.NoError(t, s.RenewSchedules(t.Context(), now.AddDate(3, 0, 0)))
	calendars := d.GetSchedule().GetSpec().GetStructuredCalendar()
	require.EqualValues(t, now.Year()+4, calendars[len(calendars)-1].GetYear()[0].GetEnd())
	require.EqualValues(t, "1", f.schedules.byID[contract.ScheduleID("poll")].GetConflictToken())
}

func TestAScheduleEnds(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	made := answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath,
		`{"name":"n","interval":"1s","end_at":"`+end+`","paused":true,"task":{"type":"x","cluster":"default"}}`),
		http.StatusCreated)
	require.False(t, made.Ended)
	spec := f.schedules.byID[contract.ScheduleID("n")].GetSchedule().GetSpec()
	spec.EndTime = timestamppb.New(time.Now().Add(-time.Second))
	resumed := answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath+"/n/resume", ""), http.StatusOK)
	require.True(t, resumed.Ended)
	require.Empty(t, resumed.NextTimes)
	list := answer[struct{ Schedules []api.ScheduleEntry }](t, do(h, http.MethodGet, schedulesPath, ""), http.StatusOK)
	require.True(t, list.Schedules[0].Ended)
}

func TestScheduleReplaced(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath, nightly), http.StatusCreated)
	paused := answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath+"/acme:nightly/pause",
		`{"reason":"holiday"}`), http.StatusOK)
	require.True(t, paused.Paused)
	replaced := answer[api.Schedule](t, do(h, http.MethodPut, schedulesPath+"/acme:nightly",
		`{"interval":"6h","offset":"1h","task":{"type":"poll","cluster":"default"}}`),
		http.StatusOK)
	require.True(t, replaced.Paused, "what is not said stays")
	require.Equal(t, "holiday", replaced.Note)
	require.Equal(t, []time.Duration{6 * time.Hour, time.Hour, time.Hour},
		[]time.Duration{replaced.Interval.Std(), replaced.Offset.Std(), replaced.CatchupWindow.Std()})
	require.Empty(t, replaced.Cron)
	require.Empty(t, replaced.Task.Labels)
	replaced = answer[api.Schedule](t, do(h, http.MethodPut, schedulesPath+"/acme:nightly",
		`{"name":"acme:nightly","interval":"6h","paused":false,"note":"","task":{"type":"poll","cluster":"default"}}`),
		http.StatusOK)
	require.False(t, replaced.Paused)
	require.Empty(t, replaced.Note)
	require.Equal(t, "acme", replaced.Task.Tenant, "a schedule stays with its tenant")
	p := problem(t, do(h, http.MethodPut, schedulesPath+"/acme:nightly",
		`{"interval":"6h","task":{"type":"poll","cluster":"default","tenant":"beta"}}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	require.Equal(t, "body.task.tenant", p.Errors[0].Location)
	problem(t, do(h, http.MethodPut, schedulesPath+"/nightly",
		`{"interval":"6h","task":{"type":"poll","cluster":"default","tenant":"acme"}}`), http.StatusNotFound,
		protocol.CodeUnknownSchedule)
	problem(t, do(h, http.MethodPut, schedulesPath+"/acme:nightly",
		`{"name":"daily","interval":"6h","task":{"type":"poll","cluster":"default"}}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
}

func TestPauseWithoutReasonKeepsTheNote(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	note := func(name, action, body string) string {
		return answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath+"/"+name+"/"+action, body), http.StatusOK).Note
	}
	for name, own := range map[string]string{"noted": "of the night shift", "plain": ""} {
		answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath, `{"name":"`+name+`","note":"`+own+
			`","interval":"1h","task":{"type":"poll","cluster":"default"}}`), http.StatusCreated)
		require.Equal(t, cmp.Or(own, "paused by request"), note(name, "pause", ""))
		require.Equal(t, cmp.Or(own, "resumed by request"), note(name, "resume", ""))
		require.Equal(t, "holiday", note(name, "pause", `{"reason":"holiday"}`))
	}
}

func TestScheduleTrigger(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath,
		`{"name":"poll","interval":"1h","task":{"type":"poll","cluster":"default"}}`), http.StatusCreated)
	triggered := answer[api.Triggered](t, do(h, http.MethodPost, schedulesPath+"/poll/trigger", ""),
		http.StatusAccepted)
	patch := f.schedules.patches[0].GetTriggerImmediately()
	require.Equal(t, triggered.TaskID, contract.FiringTaskID("poll", patch.GetScheduledTime().AsTime()),
		"the id is known before the task is there")
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, patch.GetOverlapPolicy())

	f.schedules.byID[contract.ScheduleID(
		"poll")].Info.RunningWorkflows = []*commonpb.WorkflowExecution{{WorkflowId: "firing/poll-2026-11-21T03:00:00Z"}}
	problem(t, do(h, http.MethodPost, schedulesPath+"/poll/trigger", ""), http.StatusConflict, protocol.CodeConflict)
	require.Eventually(t, func() bool {
		w := do(h, http.MethodPost, schedulesPath+"/poll/trigger", `{"overlap":"cancel_other"}`)
		return w.Code == http.StatusAccepted
	}, 10*time.Second, 100*time.Millisecond, "in the next second")
	require.Len(t, f.schedules.patches, 2)
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_CANCEL_OTHER,
		f.schedules.patches[1].GetTriggerImmediately().GetOverlapPolicy())
}

// Temporal names firings by the second.
func TestEachTriggerMakesATaskOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	const schedule = `{"name":"poll","interval":"1h","overlap":"allow_all","task":{"type":"poll","cluster":"default"}}`
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath, schedule), http.StatusCreated)
	made := map[string]bool{}
	for range 20 {
		w := do(h, http.MethodPost, schedulesPath+"/poll/trigger", "")
		if w.Code != http.StatusAccepted {
			p := problem(t, w, http.StatusConflict, protocol.CodeConflict)
			require.Contains(t, p.Detail, "try again in a second")
			continue
		}
		id := answer[api.Triggered](t, w, http.StatusAccepted).TaskID
		require.False(t, made[id], "%s was made before", id)
		made[id] = true
	}
	require.Len(t, f.schedules.patches, len(made))

	f.mu.Lock()
	for n := range 60 { // what a schedule that had this name has made, or another instance
		e := open(contract.FiringWorkflowID("poll", time.Now().Add(time.Duration(n)*time.Second)), contract.FiringWorkflow)
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
	}
	f.mu.Unlock()
	problem(t, do(h, http.MethodPost, schedulesPath+"/poll/trigger", ""), http.StatusConflict, protocol.CodeConflict)
}

// Most schedules are due at the beginning of a minute or an hour.
func TestManySchedulesOfATenantAreSpread(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.count = func(query string) int64 {
		if strings.Contains(query, "'acme'") {
			return 100
		}
		return 19
	}
	_, send := tenants(t, f)
	for name, c := range map[string]struct {
		tenant, times string
		want          time.Duration
	}{
		"few":         {"beta", `"cron":"0 3 * * *"`, 0},
		"many":        {"acme", `"cron":"0 3 * * *"`, 10 * time.Second},
		"own":         {"acme", `"cron":"0 3 * * *","jitter":"1h"`, time.Hour},
		"by interval": {"acme", `"interval":"1m"`, 10 * time.Second},
		"often":       {"acme", `"interval":"59s"`, 0},
	} {
		w := send(c.tenant, http.MethodPost, schedulesPath,
			`{"name":"poll",`+c.times+`,"task":{"type":"poll","cluster":"default"}}`)
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		id := contract.ScheduleID(c.tenant + ":poll")
		require.Equal(t, c.want, f.schedules.byID[id].GetSchedule().GetSpec().GetJitter().AsDuration(), name)
		delete(f.schedules.byID, id)
	}
}

// Temporal starts a bounded number of tasks a second of all schedules, so triggers of one tenant would make those of
// others late.
func TestTriggersOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	_, send := tenants(t, f)
	for _, tenant := range []string{"acme", "beta"} {
		require.Equal(t, http.StatusCreated, send(tenant, http.MethodPost, schedulesPath,
			`{"name":"poll","interval":"1h","task":{"type":"poll","cluster":"default"}}`).Code)
	}
	trigger := func(tenant, what string) *httptest.ResponseRecorder {
		return send(tenant, http.MethodPost, schedulesPath+"/poll/"+what, "")
	}
	made := 0
	w := trigger("acme", "pause")
	for ; w.Code == http.StatusOK && made < 500; w = trigger("acme", "pause") {
		made++
	}
	problem(t, w, http.StatusTooManyRequests, protocol.CodeRateLimited)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.GreaterOrEqual(t, made, 50)
	require.Equal(t, http.StatusAccepted, trigger("beta", "trigger").Code)
	require.Eventually(t, func() bool {
		return trigger("acme", "trigger").Code == http.StatusTooManyRequests &&
			trigger("acme", "pause").Code == http.StatusTooManyRequests
	}, 10*time.Second, time.Millisecond)
}

func TestScheduleRuns(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	answer[api.Schedule](t, do(h, http.MethodPost, schedulesPath,
		`{"name":"poll","interval":"1h","task":{"type":"poll","cluster":"default"}}`), http.StatusCreated)
	hour := func(n int) time.Time { return time.Date(2026, 11, 21, n, 0, 0, 0, time.UTC) }
	info := f.schedules.byID[contract.ScheduleID("poll")].Info
	for n := range 6 {
		info.RecentActions = append(info.RecentActions,
			&schedulepb.ScheduleActionResult{ActualTime: timestamppb.New(hour(n)),
				StartWorkflowResult: &commonpb.WorkflowExecution{WorkflowId: contract.FiringWorkflowID("poll", hour(n))}})
	}
	task := func(n int, status enumspb.WorkflowExecutionStatus) *execution {
		e := open(contract.TaskWorkflowID(contract.FiringTaskID("poll", hour(n))), contract.TaskWorkflow)
		e.info.Status = status
		e.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoSchedule: payload("poll")}}
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
		return e
	}
	firing := func(n int, status enumspb.WorkflowExecutionStatus) *execution {
		e := open(contract.FiringWorkflowID("poll", hour(n)), contract.FiringWorkflow)
		e.info.Status = status
		f.executions[e.info.GetExecution().GetWorkflowId()] = e
		return e
	}
	task(4, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	task(3, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	firing(2, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	fails := func(n int, kind, why string) {
		cause := &failurepb.Failure{Message: why, FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
			ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind}}}
		firing(n, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED).last = &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
				WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
					Failure: &failurepb.Failure{Message: "canary", Cause: cause}}}}
	}
	fails(1, contract.UnknownCluster, "there is no cluster default any more")
	task(5, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED).info.Memo = nil
	fails(5, contract.IDTaken, "there is a task already")
	got := answer[api.Schedule](t, do(h, http.MethodGet, schedulesPath+"/poll", ""), http.StatusOK)
	statuses := make([]string, len(got.Runs))
	for i, run := range got.Runs {
		statuses[i] = string(run.Status)
	}
	require.Equal(t, []string{"not_submitted", "retry_wait", "completed", "starting", "not_submitted", "unknown"},
		statuses, "newest first")
	require.Equal(t, "poll@20261121t010000z", got.Runs[4].TaskID)
	require.Equal(t, "there is no cluster default any more", got.Runs[4].Why)
	require.Equal(t, "there is a task already", got.Runs[0].Why)
	require.Nil(t, got.Runs[0].ClosedAt, "the time of a task that is not the schedule's is not told")
}

func TestScheduleBadRequests(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	h := serve(t, f)
	for body, location := range map[string]string{
		`"interval":"1h"`:                    "body.name",
		`"name":"n","cron":"0 canary * * *"`: "body.cron",
		`"name":"n"`:                         "body.cron",
		`"name":"n","cron":"0 3 * * *","time_zone":"canary"`:           "body.time_zone",
		`"name":"n","cron":"0 3 * * *","time_zone":"Local"`:            "body.time_zone",
		`"name":"n","interval":"1ms"`:                                  "body.interval",
		`"name":"n","interval":"90.5s"`:                                "body.interval",
		`"name":"n","interval":"1h","offset":"1ms"`:                    "body.offset",
		`"name":"n","interval":"1h","start_at":"0000-06-01T00:00:00Z"`: "body.start_at",
		`"name":"n","interval":"1h","start_at":"2100-01-01T00:00:00Z"`: "body.start_at",
		`"name":"n","interval":"1h","overlap":"canary"`:                "body.overlap",
		`"name":"n","interval":"1h","end_at":"2020-01-01T00:00:00Z"`:   "body.end_at",
		`"name":"N canary","interval":"1h"`:                            "body.name",
	} {
		p := problem(t, do(h, http.MethodPost, schedulesPath, `{`+body+`,"task":{"type":"x","cluster":"default"}}`),
			http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
		require.Equal(t, location, p.Errors[0].Location, body)
	}
	for task, location := range map[string]string{
		`{"type":"x","cluster":"default","id":"mine"}`:                       "body.task.id",
		`{"type":"x","cluster":"default","idempotency_key":"k"}`:             "body.task.idempotency_key",
		`{"type":"x","cluster":"default","start_at":"2099-01-01T00:00:00Z"}`: "body.task.start_at",
		`{"type":"x","cluster":"default","colour":"canary"}`:                 "body.task.colour",
		`{"cluster":"default"}`:                                              "body.task",
		`{"type":"x","cluster":"default","timeout":"1ns"}`:                   "body.task",
	} {
		p := problem(t, do(h, http.MethodPost, schedulesPath, `{"name":"n","interval":"1h","task":`+task+`}`),
			http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
		require.Equal(t, location, p.Errors[0].Location, task)
	}
	problem(t, do(h, http.MethodPost, schedulesPath,
		`{"name":"n","interval":"1h","task":{"type":"x","cluster":"canary"}}`), http.StatusNotFound,
		protocol.CodeUnknownCluster)
	for _, c := range [][2]string{{"GET", ""}, {"PUT", ""}, {"DELETE", ""}, {"POST", "/pause"}, {"POST", "/resume"},
		{"POST", "/trigger"}} {
		for _, name := range []string{"canary", "No%20canary"} {
			body := ""
			if c[0] == "PUT" {
				body = `{"interval":"1h","task":{"type":"x","cluster":"default"}}`
			}
			problem(t, do(h, c[0], schedulesPath+"/"+name+c[1], body), http.StatusNotFound,
				protocol.CodeUnknownSchedule)
		}
	}
	problem(t, do(h, http.MethodGet, schedulesPath+"?page_token=canary", ""), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	f.fail = serviceerror.NewUnavailable("canary")
	problem(t, do(h, http.MethodGet, schedulesPath+"/n", ""), http.StatusServiceUnavailable, protocol.CodeUnavailable)
}
