package replay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordInbound records events from outside with each end. It only runs when asked.
func TestRecordInbound(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "mesh", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "mesh", MinAgents: 1})
	defer runAgent(t, node, cluster, "m-1", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil }})()
	send := func(id, kind, data string) string {
		e := &api.Envelope{Attributes: map[string]string{"id": id, "source": "/recorder", "type": kind},
			Body: []byte(`{"data":` + data + `}`)}
		start := contract.StartOfInbound(mesh.InboundID(e), e, "digest")
		_, err := c.ExecuteWorkflow(t.Context(), start.Options(), contract.InboundWorkflow, contract.InboundInput{Event: *e})
		require.NoError(t, err)
		return start.WorkflowID
	}
	become := func(workflowID string, status api.InboundStatus) {
		require.Eventually(t, func() bool {
			e, err := contract.InboundQuery.Ask(t.Context(), c, workflowID)
			return err == nil && e.Status == status
		}, time.Minute, 20*time.Millisecond)
	}
	const assigned, good = "AgentTaskAssigned", `{"id":"from-event","type":"echo","cluster":"mesh"}`
	ids := map[string]string{"dispatched": send("1", assigned, good), "replayed": send("2", assigned, `{"type":"echo"}`),
		"discarded": send("3", "nobody.wants", `{}`)}
	become(ids["discarded"], api.InboundUnmatched)
	_, err := contract.DiscardEventUpdate.Send(t.Context(), c, ids["discarded"],
		contract.RunRequest{By: "ann", Reason: "sent by mistake"})
	require.NoError(t, err)
	become(ids["replayed"], api.InboundQuarantined)
	for _, data := range []string{`{"type":"echo"}`, `{"id":"corrected","type":"echo","cluster":"mesh"}`} {
		become(ids["replayed"], api.InboundQuarantined)
		_, err = contract.ReplayEventUpdate.Send(t.Context(), c, ids["replayed"], contract.ReplayEvent{
			RunRequest: contract.RunRequest{By: "ann", Reason: "recorded"}, Data: []byte(data)})
		require.NoError(t, err)
	}
	for name, id := range ids {
		closed(t, c, id)
		save(t, c, contract.InboundWorkflow, name, id)
	}
}

// TestRecordVerdicts records a run whose result an agent checks, twice. It only runs when asked.
func TestRecordVerdicts(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "verdicts", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	defer runAgent(t, node, cluster, "v-1", map[string]agent.Handler{
		"write": func(_ context.Context, task *agent.Task) (any, error) { return map[string]any{"n": task.Attempt}, nil },
		"judge": func(_ context.Context, task *agent.Task) (any, error) {
			return map[string]any{"valid": task.Attempt > 1, "errors": []string{"too early"}}, nil
		}})()
	startRun(t, c, "verdicts", `  a:
    task: {type: write}
    deadline: 1h
    check: {task: {type: judge, payload: "${result}"}, correct: {attempts: 1}}
  b: {after: [a], task: {type: write}}
`)
	closed(t, c, contract.RunWorkflowID("verdicts"))
	save(t, c, contract.RunWorkflow, "verdicts", contract.RunWorkflowID("verdicts"))
}

// TestRecordCorrections records runs whose results are corrected, also by a person. It only runs when asked.
func TestRecordCorrections(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "checks", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	defer runAgent(t, node, cluster, "k-1", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"write": func(_ context.Context, task *agent.Task) (any, error) {
			var in struct {
				Wrong    int
				Feedback []any
			}
			err := task.Decode(&in)
			return map[string]any{"ok": len(in.Feedback) >= in.Wrong}, err
		}})()
	const steps = `  a:
    task: {type: write, payload: {wrong: %d}}
    deadline: 1h
    check: {rules: [{that: result.ok, else: not ok}], correct: {attempts: 1}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.ok}"}}
`
	for id, wrong := range map[string]int{"corrected": 1, "escalated": 2} {
		startRun(t, c, id, fmt.Sprintf(steps, wrong))
	}
	standing(t, c, "escalated", api.RunBlocked)
	update(t, c, contract.RunWorkflowID("escalated"), contract.StepUpdate.Name, contract.StepRequest{Step: "a",
		Action: api.RetryStep, RunRequest: contract.RunRequest{By: "ann", Reason: "recorded"}})
	for _, id := range []string{"corrected", "escalated"} {
		closed(t, c, contract.RunWorkflowID(id))
		save(t, c, contract.RunWorkflow, id, contract.RunWorkflowID(id))
	}
}

// TestRecordDeaths records an event whose task dies twice and is replayed, one that is discarded then, and a run of an
// event that fails. It only runs when asked.
func TestRecordDeaths(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "deaths", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	var calls atomic.Int64
	defer runAgent(t, node, cluster, "d-1", map[string]agent.Handler{
		"echo":  func(context.Context, *agent.Task) (any, error) { return nil, agent.NonRetryable(errors.New("x")) },
		"twice": func(context.Context, *agent.Task) (any, error) { return nil, failTwice(calls.Add(1)) },
		"fail":  func(context.Context, *agent.Task) (any, error) { return nil, errors.New("disk full") }})()
	become := func(workflowID string, deaths int) {
		require.Eventually(t, func() bool {
			e, err := contract.InboundQuery.Ask(t.Context(), c, workflowID)
			return err == nil && e.Status == api.InboundQuarantined && len(e.Tries) == deaths
		}, time.Minute, 20*time.Millisecond)
	}
	send := func(id, kind string) string {
		e := &api.Envelope{Attributes: map[string]string{"id": id, "source": "/recorder", "type": "AgentTaskAssigned"},
			Body: fmt.Appendf(nil, `{"data":{"id":%q,"type":%q,"cluster":"runs","retry":{"max_attempts":1}}}`, id, kind)}
		start := contract.StartOfInbound(mesh.InboundID(e), e, "digest")
		_, err := c.ExecuteWorkflow(t.Context(), start.Options(), contract.InboundWorkflow, contract.InboundInput{Event: *e})
		require.NoError(t, err)
		become(start.WorkflowID, 1)
		return start.WorkflowID
	}
	ann := contract.RunRequest{By: "ann", Reason: "recorded"}
	twice, fail := send("died-twice", "twice"), send("died-for-good", "fail")
	_, err := contract.ReplayEventUpdate.Send(t.Context(), c, twice, contract.ReplayEvent{RunRequest: ann})
	require.NoError(t, err)
	become(twice, 2)
	_, err = contract.ReplayEventUpdate.Send(t.Context(), c, twice, contract.ReplayEvent{RunRequest: ann})
	require.NoError(t, err)
	_, err = contract.DiscardEventUpdate.Send(t.Context(), c, fail, ann)
	require.NoError(t, err)
	for _, id := range []string{twice, fail} {
		closed(t, c, id)
	}
	save(t, c, contract.InboundWorkflow, "died-replayed", twice)
	save(t, c, contract.InboundWorkflow, "died-discarded", fail)
	for _, id := range []string{"died-twice", "died-for-good"} {
		closed(t, c, contract.TaskWorkflowID(id))
		save(t, c, contract.TaskWorkflow, id, contract.TaskWorkflowID(id))
	}
	startRunOf(t, c, "of-event", "  a: {safety: idempotent, task: {type: echo}}\n", api.RunOrigin{Event: "gone"})
	closed(t, c, contract.RunWorkflowID("of-event"))
	save(t, c, contract.RunWorkflow, "of-event", contract.RunWorkflowID("of-event"))
}

// TestRecordTurns records runs of a model that calls tools: one with several turns and an unknown tool, one whose turns
// are used up and that a person has go on, and one that is paused between turns. It only runs when asked.
func TestRecordTurns(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "turns", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	defer runAgent(t, node, cluster, "t-1", map[string]agent.Handler{
		api.ModelTask: func(_ context.Context, task *agent.Task) (any, error) {
			var in struct{ Messages []api.ModelMessage }
			err := task.Decode(&in)
			answer := map[string]any{"text": "done", "invocation": mesh.Usage{InputTokens: 60}}
			if n := len(in.Messages); n < 7 && in.Messages[n-1].Content != "go on" {
				answer["tool_calls"] = []api.ToolCall{{ID: "c1", Name: "find", Arguments: []byte(`{"n":1}`)},
					{ID: "c2", Name: "drop"}}
			}
			return answer, err
		},
		api.ToolTask: func(context.Context, *agent.Task) (any, error) { return map[string]string{"found": "T-7"}, nil },
	}, "model.p", "mcp.desk")()
	const step = `  a:
    task: {type: model, routes: [{provider: p, model: m}], payload: {messages: [{role: user, content: hi}]}}
    tools: [{server: desk, name: find}]
    max_turns: %d
    deadline: 1h
    on_failure: hold
`
	startRun(t, c, "turns", fmt.Sprintf(step, 8))
	startRun(t, c, "turns-used-up", fmt.Sprintf(step, 2))
	startRun(t, c, "turns-paused", fmt.Sprintf(step, 8)+"budget: {tokens: 100}\n")
	standing(t, c, "turns-used-up", api.RunBlocked)
	update(t, c, contract.RunWorkflowID("turns-used-up"), contract.StepUpdate.Name, contract.StepRequest{Step: "a",
		Action: api.RetryStep, RunRequest: contract.RunRequest{By: "ann", Reason: "go on"}})
	standing(t, c, "turns-paused", api.RunPaused)
	update(t, c, contract.RunWorkflowID("turns-paused"), contract.ResumeRunUpdate.Name, contract.RunRequest{By: "ann"})
	for _, id := range []string{"turns", "turns-used-up", "turns-paused"} {
		closed(t, c, contract.RunWorkflowID(id))
		l, err := contract.LedgerQuery.Ask(t.Context(), c, contract.RunWorkflowID(id))
		require.NoError(t, err)
		require.Equal(t, api.RunCompleted, l.Status, "%s: %s", id, l.Why)
		save(t, c, contract.RunWorkflow, id, contract.RunWorkflowID(id))
	}
}
