package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	jobsPath = "/api/v1/agents/jobs"
	runsPath = "/api/v1/agents/runs"
)

const nightlyJob = `job: nightly
cluster: default
inputs: {type: object, required: [bucket], properties: {bucket: {type: string}}}
steps:
  list: {task: {type: list, payload: "${inputs.bucket}"}}
  merge: {after: [list], task: {type: merge}, safety: idempotent}
`

// withJobs has Job workflows answer as they do.
func (f *fakeTemporal) withJobs() {
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.onStart = func(e *execution) {
		in, isJob := e.input.(contract.JobInput)
		if !isJob {
			return
		}
		j := &job.Job{Name: in.Name}
		e.query = func() (any, error) { return j, nil }
		e.update = func(_ string, arg any) (any, error) {
			switch r := arg.(type) {
			case contract.ApplyJob:
				if r.Expected != 0 && r.Expected != j.Version {
					return nil, temporal.NewApplicationError("canary", contract.Outdated)
				}
				j.Apply(r.Definition, r.By, time.Unix(1_800_000_000, 0))
			case contract.RunRequest:
				j.Paused = &api.Decision{Action: "pause", By: r.By, Reason: r.Reason}
			}
			return j, nil
		}
	}
}

func served(t *testing.T) (*fakeTemporal, http.Handler) {
	t.Helper()
	f := newFake()
	f.withJobs()
	return f, serve(t, f)
}

func TestAJobIsAppliedAndItsVersionsCount(t *testing.T) {
	t.Parallel()
	_, h := served(t)
	problem(t, do(h, http.MethodGet, jobsPath+"/nightly", ""), http.StatusNotFound, protocol.CodeUnknownJob)
	plan := answer[api.JobPlan](t, do(h, http.MethodPost, jobsPath+"/nightly/plan", nightlyJob), http.StatusOK)
	require.True(t, plan.Changed)
	require.Equal(t, [][]string{{"list"}, {"merge"}}, plan.Levels)
	require.Len(t, plan.Warnings, 1, "a step without a safety is named")
	require.Contains(t, plan.Warnings[0], "list")

	w := do(h, http.MethodPut, jobsPath+"/nightly", nightlyJob)
	first := answer[api.Job](t, w, http.StatusCreated)
	require.Equal(t, 1, first.Version)
	require.Equal(t, "local", first.Versions[0].By)
	require.Equal(t, `"1"`, w.Header().Get("ETag"))
	require.Equal(t, 1, answer[api.Job](t, do(h, http.MethodPut, jobsPath+"/nightly", nightlyJob), http.StatusCreated).Version)

	changed := strings.Replace(nightlyJob, "type: merge}", "type: join}", 1) + "  last: {after: [merge], task: {type: x}}\n"
	plan = answer[api.JobPlan](t, do(h, http.MethodPost, jobsPath+"/nightly/plan", changed), http.StatusOK)
	require.Equal(t, []string{"+ steps.last", "~ steps.merge.task.type"}, plan.Changes)
	r := newRequest(http.MethodPut, jobsPath+"/nightly", changed)
	r.Header.Set("If-Match", `"1"`)
	require.Equal(t, 2, answer[api.Job](t, serveRequest(h, r), http.StatusOK).Version)
	r = newRequest(http.MethodPut, jobsPath+"/nightly", nightlyJob)
	r.Header.Set("If-Match", `"1"`)
	require.Contains(t, problem(t, serveRequest(h, r), http.StatusPreconditionFailed, protocol.CodePrecondition).Detail,
		"another version of the job")

	require.Equal(t, 3, answer[api.Job](t, do(h, http.MethodPost, jobsPath+"/nightly/revert", `{"version":1}`),
		http.StatusOK).Version)
	problem(t, do(h, http.MethodPost, jobsPath+"/nightly/revert", `{"version":9}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	got := answer[api.Job](t, do(h, http.MethodGet, jobsPath+"/nightly?version=2", ""), http.StatusOK)
	require.Contains(t, got.Definition.Steps, "last")
	require.Nil(t, got.Versions[0].Definition)
	versions := answer[struct{ Versions []api.JobVersion }](t, do(h, http.MethodGet, jobsPath+"/nightly/versions", ""),
		http.StatusOK)
	require.Len(t, versions.Versions, 3)
	require.Nil(t, versions.Versions[0].Definition, "answers are small")
}

func TestAWrongDefinitionIsRefusedWithItsPlaces(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	wrong := problem(t, do(h, http.MethodPut, jobsPath+"/nightly", "job: nightly\ncluster: default\nsteps:\n"+
		"  a: {task: {type: x}, after: [b]}\n"), http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
	require.Equal(t, "body.steps.a.after[0]", wrong.Errors[0].Location)
	require.True(t, strings.HasPrefix(wrong.Errors[0].Message, "line 4: "), wrong.Errors[0].Message)
	wrong = problem(t, do(h, http.MethodPut, jobsPath+"/nightly",
		`{"job":"nightly","cluster":"default","steps":{"a":{"task":{"type":"x"},"after":["b"]}}}`),
		http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
	require.False(t, strings.HasPrefix(wrong.Errors[0].Message, "line"), wrong.Errors[0].Message)
	problem(t, do(h, http.MethodPut, jobsPath+"/other", nightlyJob), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPut, jobsPath+"/nightly", strings.Replace(nightlyJob, "default", "none", 1)),
		http.StatusNotFound, protocol.CodeUnknownCluster)
	wrong = problem(t, do(h, http.MethodPut, jobsPath+"/nightly", strings.Replace(nightlyJob, "task: {type: merge}",
		"task: {type: merge, payload: '"+strings.Repeat("<", 50<<10)+"'}", 1)), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	require.Contains(t, wrong.Errors[0].Message, "is larger than 256 KiB as JSON")
	require.NotContains(t, f.executions, contract.JobWorkflowID("nightly"))
}

// TestControlCharactersInADefinitionHaveAPlace has those that JSON does not escape: a definition is written as JSON and
// read again.
func TestControlCharactersInADefinitionHaveAPlace(t *testing.T) {
	t.Parallel()
	_, h := served(t)
	const text = `{"job":"nightly","cluster":"default",%s"steps":{"a":{"task":{"type":"x","payload":%s}}}}`
	for name, c := range map[string]struct{ more, payload, wrong string }{
		"in the payload":        {"", `"a\u007f"`, "body.steps.a.task.payload"},
		"deep in the payload":   {"", `{"b":["\u0080"]}`, "body.steps.a.task.payload.b[0]"},
		"in a key":              {"", `{"\u009f":1}`, "body.steps.a.task.payload"},
		"in a text":             {`"labels":{"a":"\u0084"},`, "1", "body.labels.a"},
		"no character at all":   {`"labels":{"a":"\uffff"},`, "1", "body.labels.a"},
		"in a key of the job":   {`"lab\u007fels":{},`, "1", "body"},
		"in an expression":      {"", `"${inputs.a + '\u0081'}"`, "body.steps.a.task.payload"},
		"one that JSON escapes": {"", `"\u001b[1m\u0000"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := do(h, http.MethodPost, jobsPath+"/nightly/plan", fmt.Sprintf(text, c.more, c.payload))
			if c.wrong == "" {
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				return
			}
			wrong := problem(t, w, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
			require.Equal(t, c.wrong, wrong.Errors[0].Location)
			require.Contains(t, wrong.Errors[0].Message, "control character")
		})
	}
}

func TestADispatchWithAKeyStartsOneRun(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	dispatch := jobsPath + "/nightly/dispatch"
	problem(t, do(h, http.MethodPost, dispatch, `{}`), http.StatusNotFound, protocol.CodeUnknownJob)
	do(h, http.MethodPut, jobsPath+"/nightly", nightlyJob)
	wrong := problem(t, do(h, http.MethodPost, dispatch, `{"inputs":{"bucket":1}}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	require.Equal(t, "body.inputs", wrong.Errors[0].Location)

	const body = `{"inputs":{"bucket":"docs"},"idempotency_key":"k","start_at":"2026-01-01T00:00:00Z"}`
	run := answer[api.Run](t, do(h, http.MethodPost, dispatch, body), http.StatusAccepted)
	require.Equal(t, api.RunRunning, run.Status)
	require.Len(t, run.Steps, 2)
	e := f.executions[contract.RunWorkflowID(run.ID)]
	in := e.input.(contract.RunInput)
	require.Equal(t, "local", in.Origin.By)
	require.Equal(t, 1, in.Plan.JobVersion)
	require.Equal(t, "nightly", in.Plan.Job)
	require.Equal(t, 2026, in.StartAt.Year())
	again := answer[api.Run](t, do(h, http.MethodPost, dispatch, body), http.StatusAccepted)
	require.True(t, again.Duplicate)
	require.Equal(t, run.ID, again.ID)
	problem(t, do(h, http.MethodPost, dispatch, strings.Replace(body, "docs", "other", 1)), http.StatusConflict,
		protocol.CodeIdempotency)
	one := answer[api.Run](t, do(h, http.MethodPost, dispatch, `{"inputs":{"bucket":"docs"}}`), http.StatusAccepted)
	two := answer[api.Run](t, do(h, http.MethodPost, dispatch, `{"inputs":{"bucket":"docs"}}`), http.StatusAccepted)
	require.NotEqual(t, one.ID, two.ID)
	list := answer[struct{ Runs []api.RunEntry }](t, do(h, http.MethodGet, runsPath+"?job=nightly", ""), http.StatusOK)
	require.Len(t, list.Runs, 3)
	require.Equal(t, "nightly", list.Runs[0].Job)

	do(h, http.MethodPost, jobsPath+"/nightly/pause", `{"reason":"new disks"}`)
	problem(t, do(h, http.MethodPost, dispatch, `{"inputs":{"bucket":"docs"}}`), http.StatusConflict, protocol.CodeConflict)
	require.True(t, answer[api.Run](t, do(h, http.MethodPost, dispatch, body), http.StatusAccepted).Duplicate,
		"a key is answered whatever became of the job")
}

// started applies the job and dispatches a run of it.
func started(t *testing.T, f *fakeTemporal, h http.Handler) (string, *execution, *job.Ledger) {
	t.Helper()
	do(h, http.MethodPut, jobsPath+"/nightly", nightlyJob)
	run := answer[api.Run](t, do(h, http.MethodPost, jobsPath+"/nightly/dispatch", `{"inputs":{"bucket":"docs"}}`),
		http.StatusAccepted)
	e := f.executions[contract.RunWorkflowID(run.ID)]
	in := e.input.(contract.RunInput)
	ledger := job.NewLedger(&in.Plan, run.ID, in.Inputs, in.Origin, time.Unix(1_800_000_000, 0).UTC())
	e.query = func() (any, error) { return ledger, nil }
	return run.ID, e, ledger
}

func TestPeopleDecideAboutARun(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	id, e, ledger := started(t, f, h)
	got := answer[api.Run](t, do(h, http.MethodGet, runsPath+"/"+id+"?include=plan", ""), http.StatusOK)
	require.Equal(t, []api.PlannedStep{{Step: "list"}, {Step: "merge", Level: 1, After: []string{"list"}}}, got.Plan)
	require.Equal(t, []api.RunAction{api.PauseRun, api.CancelRun}, got.Actions)
	require.Equal(t, []api.StepAction{api.SkipStep, api.CompleteStep, api.FailStep}, got.StepActions["merge"])
	var asked []any
	e.update = func(_ string, arg any) (any, error) {
		asked = append(asked, arg)
		return job.Ledger{}, nil
	}
	for path, body := range map[string]string{
		"/pause": `{"mode":"finish","reason":"x"}`, "/resume": "", "/cancel": `{"reason":"x"}`,
		"/steps/list/retry": "", "/steps/list/complete": `{"output":{"keys":[]},"reason":"by hand"}`,
		"/steps/list/approve": "",
	} {
		run := answer[api.Run](t, do(h, http.MethodPost, runsPath+"/"+id+path, body), http.StatusOK)
		require.Equal(t, id, run.ID)
		require.Len(t, run.Steps, len(ledger.Steps))
	}
	who := contract.RunRequest{By: "local"}
	require.Contains(t, asked, contract.StepRequest{RunRequest: who, Step: "list", Action: api.RetryStep})
	require.Contains(t, asked, contract.StepRequest{RunRequest: contract.RunRequest{By: "local", Reason: "by hand"},
		Step: "list", Action: api.CompleteStep, Output: json.RawMessage(`{"keys":[]}`)})
	require.Contains(t, asked, contract.PauseRunRequest{RunRequest: contract.RunRequest{By: "local", Reason: "x"},
		Mode: api.PauseFinish})
	problem(t, do(h, http.MethodPost, runsPath+"/"+id+"/steps/list/skip", `{"output":1}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
	require.Contains(t, problem(t, do(h, http.MethodPost, runsPath+"/"+id+"/retry", ""), http.StatusConflict,
		protocol.CodeConflict).Detail, "run step retry")
	problem(t, do(h, http.MethodPost, runsPath+"/none/cancel", ""), http.StatusNotFound, protocol.CodeUnknownRun)
}

func TestARunTellsWhoHasItsSteps(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	id, e, ledger := started(t, f, h)
	list, merge := &ledger.Steps[0], &ledger.Steps[1]
	list.Begun, list.Status = true, api.StepQueued
	merge.Begun, merge.Status = true, api.StepQueued
	merge.Elements = []api.StepWork{{Status: api.StepQueued, TaskID: id + "~merge.0"}, {Status: api.StepQueued,
		TaskID: id + "~merge.1"}}
	element := delivery(2, enumspb.PENDING_ACTIVITY_STATE_STARTED, &contract.AttemptReport{AgentID: "a-1"})
	element.ActivityId = contract.AttemptActivityID(id+"~merge.1", 2)
	waits := delivery(1, enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, nil)
	waits.ActivityId = contract.AttemptActivityID(id+"~list", 1)
	e.pending = []*workflowpb.PendingActivityInfo{waits, element}
	steps := answer[api.Run](t, do(h, http.MethodGet, runsPath+"/"+id, ""), http.StatusOK).Steps
	require.Equal(t, api.StepQueued, steps[0].Status)
	require.Equal(t, api.StepRunning, steps[1].Status)
	require.Equal(t, api.StepQueued, steps[1].Elements[0].Status)
	require.Equal(t, api.StepRunning, steps[1].Elements[1].Status)
	require.Equal(t, "a-1", steps[1].Elements[1].Attempts[0].AgentID)
	require.Equal(t, 2, steps[1].Elements[1].Attempts[0].Number)
}

func TestARunThatFailedIsRunAgainFromAStep(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	id, e, ledger := started(t, f, h)
	ledger.Status, ledger.Why = api.RunFailed, "step merge failed"
	ledger.Steps[0].Status, ledger.Steps[1].Status = api.StepCompleted, api.StepFailed
	e.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
	e.last = &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
			WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
				Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
					ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Details: payloads(ledger)}}}}}}
	got := answer[api.Run](t, do(h, http.MethodGet, runsPath+"/"+id+"?wait=1s", ""), http.StatusOK)
	require.Equal(t, "step merge failed", got.Why)
	require.Equal(t, []api.RunAction{api.RetryRun}, got.Actions)
	require.Empty(t, got.StepActions)
	problem(t, do(h, http.MethodPost, runsPath+"/"+id+"/cancel", ""), http.StatusConflict, protocol.CodeConflict)

	again := answer[api.Run](t, do(h, http.MethodPost, runsPath+"/"+id+"/retry", ""), http.StatusAccepted)
	require.Equal(t, api.StepCompleted, again.Steps[0].Status, "what has succeeded is taken over")
	require.Equal(t, api.StepPending, again.Steps[1].Status)
	twice := answer[api.Run](t, do(h, http.MethodPost, runsPath+"/"+id+"/retry", ""), http.StatusAccepted)
	require.Equal(t, again.ID, twice.ID, "sent twice, it is one run")
	require.True(t, twice.Duplicate)
	require.False(t, again.Duplicate)
	in := f.executions[contract.RunWorkflowID(again.ID)].input.(contract.RunInput)
	require.Equal(t, id, in.Origin.RetryOf)
	require.Equal(t, api.StepFailed, in.Done.Steps[1].Status)
	again = answer[api.Run](t, do(h, http.MethodPost, runsPath+"/"+id+"/retry", `{"from":"list"}`), http.StatusAccepted)
	require.Equal(t, api.StepPending, again.Steps[0].Status)
	problem(t, do(h, http.MethodPost, runsPath+"/"+id+"/retry", `{"from":"none"}`), http.StatusUnprocessableEntity,
		protocol.CodeInvalidRequest)
}

func TestATaskOfARunIsShown(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	id, e, ledger := started(t, f, h)
	at := time.Unix(1_800_000_000, 0).UTC()
	e.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	ledger.Status = api.RunCompleted
	ledger.Steps[0].StepWork = api.StepWork{Status: api.StepCompleted, StartedAt: &at, EndedAt: &at,
		Output: json.RawMessage(`{"keys":[1]}`), Attempts: []api.Attempt{{Number: 1, AgentID: "a-1",
			Outcome: api.AttemptCompleted}}}
	ledger.Steps[1].Status = api.StepSkipped
	e.last = &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
				Result: payloads(ledger)}}}
	task := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+id+"~list", ""), http.StatusOK)
	require.Equal(t, api.TaskCompleted, task.Status)
	require.Equal(t, "list", task.Type)
	require.Equal(t, "a-1", task.Attempts[0].AgentID)
	require.JSONEq(t, `{"keys":[1]}`, string(task.Result))
	require.Equal(t, contract.RunWorkflowID(id), task.WorkflowID)
	require.Equal(t, api.TaskCancelled, answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+id+"~merge", ""),
		http.StatusOK).Status)
	const more = "?include=payload&include=history"
	task = answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+id+"~list"+more, ""), http.StatusOK)
	require.Equal(t, `"${inputs.bucket}"`, string(task.Payload), "before its first delivery: with its expressions")
	require.Len(t, task.History, 1)
	for _, step := range []string{"merge", "list"} {
		e.history = append(e.history, deliveryEvents(1, contract.AttemptReport{AgentID: "a-1",
			Outcome: api.AttemptCompleted})...)
		scheduled := e.history[len(e.history)-2].GetActivityTaskScheduledEventAttributes()
		scheduled.ActivityId = contract.AttemptActivityID(id+"~"+step, 1)
		scheduled.Input = payloads(contract.RunTaskInput{Spec: api.TaskSpec{Type: step, Cluster: "default", Payload: []byte(`"` + step + `"`)}})
	}
	task = answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/"+id+"~list"+more, ""), http.StatusOK)
	require.Equal(t, `"list"`, string(task.Payload), "what the agent got")
	var moments []string
	for _, m := range task.History {
		moments = append(moments, m.Event)
	}
	require.Equal(t, []string{"completed", "queued", "completed"}, moments)
	for _, none := range []string{"~none", "~list.0", "~"} {
		problem(t, do(h, http.MethodGet, tasksPath+"/"+id+none, ""), http.StatusNotFound, protocol.CodeUnknownTask)
	}
}

func TestTenantsHaveTheirOwnJobs(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withJobs()
	_, do := tenants(t, f)
	for tenant, name := range map[string]string{"acme": "acme:nightly", "beta": "beta:nightly", "": "nightly"} {
		created := answer[api.Job](t, do(tenant, http.MethodPut, jobsPath+"/nightly", nightlyJob), http.StatusCreated)
		require.Equal(t, name, created.Name)
		require.Equal(t, tenant, created.Definition.Tenant)
		run := answer[api.Run](t, do(tenant, http.MethodPost, jobsPath+"/nightly/dispatch", `{"inputs":{"bucket":"x"},
			"idempotency_key":"k"}`), http.StatusAccepted)
		require.Equal(t, tenant, run.Tenant)
		got := answer[api.Run](t, do(tenant, http.MethodGet, runsPath+"/"+run.ID, ""), http.StatusOK)
		require.Equal(t, name, got.Job)
		if tenant == "acme" {
			problem(t, do("beta", http.MethodGet, runsPath+"/"+run.ID, ""), http.StatusNotFound, protocol.CodeUnknownRun)
		}
	}
	problem(t, do("acme", http.MethodPut, jobsPath+"/beta:nightly", nightlyJob), http.StatusNotFound, protocol.CodeUnknownJob)
	problem(t, do("acme", http.MethodPut, jobsPath+"/nightly", nightlyJob+"tenant: beta\n"), http.StatusForbidden,
		protocol.CodeForbidden)
}

// Runs and the instances of jobs show how recovery stands, and runs until when attempts may run.
func TestRecoveryIsShown(t *testing.T) {
	t.Parallel()
	f, h := served(t)
	begun, recovery := time.Unix(1_800_000_000, 0).UTC(), api.DefaultRecovery(api.ManualRecover, false)
	state := &api.PolicyState{NextAction: api.ActionReview}
	answers := func(id, kind string, with any) {
		e := open(id, kind)
		e.query = func() (any, error) { return with, nil }
		f.executions[id] = e
	}
	answers(contract.RunWorkflowID("build-1"), contract.RunWorkflow, job.Ledger{
		Status: api.RunBlocked, Steps: []api.StepEntry{{Step: "a", StepWork: api.StepWork{Status: api.StepBlocked, PolicyState: state,
			Attempts: []api.Attempt{{Number: 1, StartedAt: &begun}}},
			Policy: &api.StepPolicy{Timeout: api.Duration(time.Minute), Recovery: &recovery, OnFailure: api.FailRun}}}})
	step := answer[api.Run](t, do(h, http.MethodGet, runsPath+"/build-1", ""), http.StatusOK).Steps[0]
	require.Equal(t, "review", step.RecoveryStatus)
	require.True(t, step.RecoveryRequiresReview)
	require.True(t, begun.Add(time.Minute).Equal(*step.Attempts[0].DeadlineAt))

	web := &job.Job{Name: "web"}
	web.Apply(api.JobDefinition{Job: "web", Type: api.JobService, Cluster: "default", Instances: &api.Instances{Count: new(1),
		Task: &api.TaskSpec{Type: "serve"}}}, "ann", begun)
	web.Instances = []api.Instance{{Name: "0", TaskID: "web~~0.1"}}
	answers(contract.JobWorkflowID("web"), contract.JobWorkflow, web)
	answers(contract.TaskWorkflowID("web~~0.1"), contract.TaskWorkflow,
		contract.TaskState{Status: api.TaskReview, Recovery: &recovery, PolicyState: state})
	shown := answer[api.JobInstances](t, do(h, http.MethodGet, jobsPath+"/web/instances", ""), http.StatusOK)
	instance := shown.Instances[0]
	require.Equal(t, "review", instance.RecoveryStatus)
	require.True(t, instance.RecoveryRequiresReview)
	require.Equal(t, api.ActionReview, instance.PolicyState.NextAction)
}
