package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// runsOf is a node with an agent, and a client of a person.
type runsOf struct {
	*client.Client
	cluster, person string
	url, join       string // for more agents in the cluster
	*order
}

// newRuns makes an agent in a cluster of its own, and in more. It echoes, executes, and fails or waits until it is let
// go.
func newRuns(t *testing.T, more ...string) *runsOf {
	t.Helper()
	s := newSecured(t, plane.NodeOptions{})
	person := s.token(t, api.TokenRequest{Name: "ann", Role: api.RoleOperator})
	c, err := client.New(client.Options{URL: s.URL, Token: person.Secret})
	require.NoError(t, err)
	r := &runsOf{Client: c, cluster: s.cluster, person: person.Name, order: newOrder()}
	for _, cluster := range append(more, s.cluster) {
		s.EnsureCluster(t, api.ClusterConfig{Name: cluster})
		join := s.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: cluster})
		r.url, r.join = s.URL, join.Secret
		startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 8,
			JoinToken: join.Secret}, map[string]agent.Handler{"echo": echo, "wait": r.handle, "fail": r.fail,
			"stubborn": r.stubborn, agent.ExecType: agent.ExecHandler()})
	}
	return r
}

// fail fails until the order is let go.
func (r *runsOf) fail(_ context.Context, task *agent.Task) (any, error) {
	select {
	case <-r.free:
		return task.Payload, nil
	default:
		return nil, errors.New("disk full")
	}
}

// stubborn completes when it is told to stop.
func (r *runsOf) stubborn(ctx context.Context, _ *agent.Task) (any, error) {
	_, _ = r.handle(ctx, &agent.Task{})
	return map[string]int{"n": 7}, nil
}

// start applies a job with these steps and dispatches it.
func (r *runsOf) start(t *testing.T, more, steps string) *api.Run {
	t.Helper()
	name := plane.UniqueID("j")
	definition := fmt.Sprintf("job: %s\ncluster: %s\nsafety: idempotent\nretry: {max_attempts: 1}\n%ssteps:\n%s\n",
		name, r.cluster, more, steps)
	_, err := r.Jobs.Apply(t.Context(), name, []byte(definition), "")
	require.NoError(t, err)
	run, err := r.Jobs.Dispatch(t.Context(), name, api.DispatchRequest{Inputs: json.RawMessage(`{"n": 3}`),
		IdempotencyKey: "once"})
	require.NoError(t, err)
	return run
}

// awaitRun waits until a run has a status.
func (r *runsOf) awaitRun(t *testing.T, id string, status api.RunStatus) *api.Run {
	t.Helper()
	var run *api.Run
	defer func() {
		if t.Failed() && run != nil {
			t.Logf("run %s is %s (%s): %s", id, run.Status, run.Why, stepsOf(run))
		}
	}()
	require.Eventually(t, func() bool {
		var err error
		run, err = r.Runs.Get(t.Context(), id, 0)
		return err == nil && run.Status == status
	}, patience, 20*time.Millisecond, "run %s becomes %s", id, status)
	return run
}

// stepsOf are the statuses of a run's steps, as "a completed, b failed".
func stepsOf(run *api.Run) string {
	var all []string
	for i := range run.Steps {
		all = append(all, run.Steps[i].Step+" "+string(run.Steps[i].Status))
	}
	return strings.Join(all, ", ")
}

func TestExampleJobs(t *testing.T) {
	t.Parallel()
	r := newRuns(t, "default")
	begin := func(name, inputs string) *api.Run {
		definition, err := os.ReadFile("../../examples/jobs/" + name + ".yaml")
		require.NoError(t, err)
		_, err = r.Jobs.Apply(t.Context(), name, definition, "")
		require.NoError(t, err)
		run, err := r.Jobs.Dispatch(t.Context(), name, api.DispatchRequest{Inputs: json.RawMessage(inputs),
			IdempotencyKey: "once"})
		require.NoError(t, err)
		return run
	}
	nightly := begin("nightly-embeddings", `{"bucket": "docs"}`)
	pipeline := begin("pipeline", `{"commit": "4f1c2d3", "publish": true}`)

	done := r.awaitRun(t, nightly.ID, api.RunCompleted)
	require.Equal(t, "snapshot completed, list completed, embed completed, merge completed, publish completed",
		stepsOf(done))
	require.JSONEq(t, `{"rows": ["rows of snap-of-docs/a", "rows of snap-of-docs/b"], "missing": []}`,
		string(done.Entry("embed").Output))
	require.Contains(t, string(done.Entry("publish").Output), `publish index of [\"rows of snap-of-docs/a\"`)

	asking := r.awaitRun(t, pipeline.ID, api.RunBlocked)
	require.Equal(t, "step sign-off: Publish image of 4f1c2d3?", asking.Why)
	_, err := r.Runs.Step(t.Context(), pipeline.ID, "sign-off", api.ApproveStep, api.StepRequest{Reason: "it is time"})
	require.NoError(t, err)
	done = r.awaitRun(t, pipeline.ID, api.RunCompleted)
	require.Len(t, done.Steps, 10)
	require.Equal(t, 10, strings.Count(stepsOf(done), " completed"), stepsOf(done))
	require.JSONEq(t, `{"passed": ["test fleet 0 of program of source of 4f1c2d3",
		"test hub 1 of program of source of 4f1c2d3",
		"test agent 2 of program of source of 4f1c2d3"], "failed": []}`, string(done.Entry("unit").Output))
	require.Contains(t, string(done.Entry("report").Output), "scan completed")
}

// What a person decides about a step is carried out, and the ledger has who, what and why.
func TestPeopleDecideAboutSteps(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	const held = `  a: {task: {type: fail, payload: 5}, on_failure: hold}
  b: {after: [a], task: {type: echo, payload: {saw: "${steps.a.output}"}}}`
	const asks = `  a: {approve: {message: "go on with ${inputs.n}?"}}
  b: {after: [a], task: {type: echo, payload: 1}}`
	type want struct {
		steps  string
		action api.StepAction
		output string
		status api.RunStatus
		after  string
		b      string
	}
	runs := map[string]*api.Run{}
	for name, c := range map[string]want{
		"approve": {asks, api.ApproveStep, "", api.RunCompleted, "a completed, b completed", "1"},
		"reject":  {asks, api.RejectStep, "", api.RunFailed, "a failed, b failed", ""},
		"skip":    {held, api.SkipStep, "", api.RunCompleted, "a skipped, b completed", `{"saw": null}`},
		"complete": {held, api.CompleteStep, `{"x": 1}`, api.RunCompleted, "a completed, b completed",
			`{"saw": {"x": 1}}`},
		"fail": {held, api.FailStep, "", api.RunFailed, "a failed, b failed", ""},
	} {
		run := r.start(t, "", c.steps)
		runs[name] = run
		blocked := r.awaitRun(t, run.ID, api.RunBlocked)
		require.Equal(t, api.StepBlocked, blocked.Entry("a").Status)
		_, err := r.Runs.Step(t.Context(), run.ID, "b", api.ApproveStep, api.StepRequest{})
		require.ErrorContains(t, err, "waits for approval", name)
		_, err = r.Runs.Step(t.Context(), run.ID, "a", c.action,
			api.StepRequest{Reason: "checked by hand", Output: json.RawMessage(c.output)})
		require.NoError(t, err, name)
		done := r.awaitRun(t, run.ID, c.status)
		require.Equal(t, c.after, stepsOf(done), name)
		require.Len(t, done.Decisions, 1, name)
		d := done.Decisions[0]
		require.Equal(t, api.Decision{Action: string(c.action), Step: "a", By: r.person, Reason: "checked by hand",
			At: d.At}, d)
		require.Contains(t, done.Entry("a").Why, "by a person: checked by hand", name)
		if c.b != "" {
			require.JSONEq(t, c.b, string(done.Entry("b").Output), name)
		}
	}
	t.Log("a run that failed is run again, once its cause is mended")
	retried, err := r.Runs.Retry(t.Context(), runs["skip"].ID, api.RetryRunRequest{From: "b"})
	require.NoError(t, err)
	done := r.awaitRun(t, retried.ID, api.RunCompleted)
	require.Equal(t, runs["skip"].ID, done.Origin.RetryOf)
	require.Equal(t, "a skipped, b completed", stepsOf(done))
	open := r.start(t, "", held)
	r.awaitRun(t, open.ID, api.RunBlocked)
	close(r.free)
	_, err = r.Runs.Step(t.Context(), open.ID, "a", api.RetryStep, api.StepRequest{Reason: "new disk"})
	require.NoError(t, err)
	done = r.awaitRun(t, open.ID, api.RunCompleted)
	require.JSONEq(t, `{"saw": 5}`, string(done.Entry("b").Output))
	require.Len(t, done.Entry("a").Attempts, 2)
	again, err := r.Runs.Retry(t.Context(), runs["fail"].ID, api.RetryRunRequest{})
	require.NoError(t, err)
	done = r.awaitRun(t, again.ID, api.RunCompleted)
	require.Equal(t, "a completed, b completed", stepsOf(done))
	require.JSONEq(t, `{"saw": 5}`, string(done.Entry("b").Output))
}

// A pause stops what runs, or lets it finish; nothing begins until a person resumes.
func TestPausedRuns(t *testing.T) {
	t.Parallel()
	for mode, want := range map[api.PauseMode]string{api.PauseStop: "a queued, b pending",
		api.PauseFinish: "a completed, b ready"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := newRuns(t)
			run := r.start(t, "", "  a: {task: {type: wait}}\n  b: {after: [a], task: {type: echo}}")
			r.order.await(t, 1)
			_, err := r.Runs.Pause(t.Context(), run.ID, api.PauseRunRequest{Mode: mode, Reason: "new disks"})
			require.NoError(t, err)
			if mode == api.PauseFinish {
				r.awaitRun(t, run.ID, api.RunPausing)
				close(r.free)
			}
			paused := r.awaitRun(t, run.ID, api.RunPaused)
			require.Equal(t, "new disks", paused.Why)
			require.Equal(t, want, stepsOf(paused))
			require.Equal(t, r.person, paused.Paused.By)
			if mode == api.PauseStop {
				require.Len(t, r.order.await(t, 1), 1, "it did not begin again")
				close(r.free)
			}
			_, err = r.Runs.Resume(t.Context(), run.ID, "they are in")
			require.NoError(t, err)
			done := r.awaitRun(t, run.ID, api.RunCompleted)
			require.Equal(t, "a completed, b completed", stepsOf(done))
			require.Equal(t, "resume", done.Decisions[1].Action)
			require.Equal(t, map[api.PauseMode]int{api.PauseStop: 2, api.PauseFinish: 1}[mode], len(r.order.await(t, 1)))
		})
	}
}

// How a run ends that is not all well: by its policies, its deadline, or a person. A step that completes although its
// run is being cancelled has its output in the ledger, so that a run that repeats this one takes it over.
func TestRunsThatEndOtherwise(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	partial := r.start(t, "", "  a: {task: {type: fail}, on_failure: partial}\n  b: {after: [a], task: {type: echo}}")
	skipped := r.start(t, "", "  a: {task: {type: fail}, on_failure: skip}\n  b: {after: [a], task: {type: echo}}")
	failed := r.start(t, "", "  a: {task: {type: fail}}\n  b: {after: [a], task: {type: echo}}")
	late := r.start(t, "deadline: 1s\n", "  a: {task: {type: wait}}\n  b: {after: [a], task: {type: echo}}")
	cancelled := r.start(t, "", `  a: {task: {type: stubborn}, output: {n: result.n}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}`)
	r.order.await(t, 2)
	_, err := r.Runs.Cancel(t.Context(), cancelled.ID, "not needed")
	require.NoError(t, err)
	for id, want := range map[string]struct {
		status     api.RunStatus
		why, steps string
	}{
		partial.ID:   {api.RunPartial, "partial: a", "a partial, b completed"},
		skipped.ID:   {api.RunCompleted, "", "a skipped, b completed"},
		failed.ID:    {api.RunFailed, "step a failed: 1 of 1 attempts failed; last: disk full", "a failed, b failed"},
		late.ID:      {api.RunFailed, "the run's deadline of 1s passed", "a failed, b skipped"},
		cancelled.ID: {api.RunCancelled, "not needed", "a completed, b skipped"},
	} {
		done := r.awaitRun(t, id, want.status)
		require.Equal(t, want.why, done.Why)
		require.Equal(t, want.steps, stepsOf(done))
	}
	done := r.awaitRun(t, cancelled.ID, api.RunCancelled)
	require.Equal(t, r.person, done.Cancel.By)
	require.JSONEq(t, `{"n": 7}`, string(done.Entry("a").Output))
	again, err := r.Runs.Retry(t.Context(), cancelled.ID, api.RetryRunRequest{})
	require.NoError(t, err)
	done = r.awaitRun(t, again.ID, api.RunCompleted)
	require.JSONEq(t, "7", string(done.Entry("b").Output))
	require.Equal(t, cancelled.ID+"~a", done.Entry("a").TaskID, "it did not run again")
}
