package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// submitTraced submits a task as a client that traces.
func submitTraced(t *testing.T, url, traceparent string, spec map[string]any) api.Task {
	t.Helper()
	body, err := json.Marshal(spec)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/agents/tasks",
		bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", traceparent)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusAccepted, answer.StatusCode)
	var task api.Task
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&task))
	return task
}

func named(spans tracetest.SpanStubs, name string) (found tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attributeOf(s *tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// One trace leads from the client's request through Temporal and the hub to the handler, and to the second attempt when
// the first is lost with its agent.
func TestOneTraceOverAFailover(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	begun := make(chan string, 2) // the traceparent that each handler sees
	finish := make(chan struct{})
	start := func(id string) *network {
		n := newNetwork()
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id,
			StopTimeout: time.Millisecond, DialContext: n.dial, TracerProvider: plane.Tracer()},
			map[string]agent.Handler{"hold": func(ctx context.Context, _ *agent.Task) (any, error) {
				begun <- agent.TraceHeaders(ctx)["traceparent"]
				select {
				case <-finish:
					return trace.SpanContextFromContext(ctx).TraceID().String(), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}})
		return n
	}
	first := start(plane.UniqueID("a"))

	const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	task := submitTraced(t, node.URL, "00-"+traceID+"-00f067aa0ba902b7-01",
		map[string]any{"type": "hold", "cluster": cluster})
	require.Equal(t, traceID, task.TraceID)
	require.Contains(t, <-begun, traceID)
	first.cut()
	start(plane.UniqueID("b"))
	require.Contains(t, <-begun, traceID, "the second attempt is in the same trace")
	close(finish)
	done := waitTask(t, node.URL, task.ID, api.TaskCompleted)
	require.JSONEq(t, `"`+traceID+`"`, string(done.Result))
	var shown api.Task
	call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/"+task.ID, nil, &shown)
	require.Equal(t, traceID, shown.TraceID)

	require.Eventually(t, func() bool {
		spans := plane.Spans(traceID)
		return len(named(spans, "run hold")) == 2 && len(named(spans, "deliver hold")) == 2 &&
			len(named(spans, "RunWorkflow:Task")) > 0 && len(reports(spans)) > 0
	}, patience, 20*time.Millisecond, "both attempts, their deliveries, the agent's report and the workflow end")
	spans := plane.Spans(traceID)
	byID := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range spans {
		byID[s.SpanContext.SpanID()] = s
	}
	// From each handler's span up to the client's.
	for _, run := range named(spans, "run hold") {
		var path []string
		s, known := run, true
		for known {
			path = append(path, s.Name)
			s, known = byID[s.Parent.SpanID()]
		}
		slices.Reverse(path)
		require.Equal(t, []string{"POST /api/v1/agents/tasks", "StartWorkflow:Task", "RunWorkflow:Task",
			"StartActivity:RunTask", "deliver hold", "run hold"}, path)
	}
	deliveries := named(spans, "deliver hold")
	require.Len(t, deliveries, 2)
	require.Equal(t, task.ID, attributeOf(&deliveries[0], "mainstay.task"))
	require.NotEqual(t, attributeOf(&deliveries[0], "mainstay.agent"), attributeOf(&deliveries[1], "mainstay.agent"))
}

// reports are the spans of agents' reports of results.
func reports(spans tracetest.SpanStubs) tracetest.SpanStubs {
	return slices.DeleteFunc(slices.Clone(spans), func(s tracetest.SpanStub) bool {
		return !strings.HasPrefix(s.Name, "POST /api/v1/agents/{id}/tasks/{task_id}/result")
	})
}

// Without a trace nothing is carried, and the task shows none.
func TestNoTrace(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"),
		TracerProvider: plane.Tracer()},
		map[string]agent.Handler{"look": func(ctx context.Context, _ *agent.Task) (any, error) {
			return trace.SpanContextFromContext(ctx).IsSampled(), nil
		}})
	id := submit(t, node.URL, map[string]any{"type": "look", "cluster": cluster})
	require.JSONEq(t, `false`, string(waitTask(t, node.URL, id, api.TaskCompleted).Result))
	var shown api.Task
	call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/"+id, nil, &shown)
	require.Empty(t, shown.TraceID)
}

// The spans of what an event starts have its correlation id: at the gateway, the hub and the agent.
func TestCorrelationIsOnSpans(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"),
		TracerProvider: plane.Tracer()}, map[string]agent.Handler{"echo": echo})
	const traceID = "5bf92f3577b34da6a3ce929d0e0e4737"
	parent := "00-" + traceID + "-00f067aa0ba902b7-01"
	body := `{"specversion":"1.0","type":"AgentTaskAssigned","source":"/s","id":"` + plane.UniqueID("e") +
		`","correlationid":"order-7","traceparent":"` + parent + `","data":{"type":"echo","cluster":"` + cluster + `"}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node.URL+"/api/v1/agents/events",
		strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/cloudevents+json")
	request.Header.Set("traceparent", parent)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusAccepted, answer.StatusCode)
	for _, name := range []string{"POST /api/v1/agents/events", "deliver echo", "run echo"} {
		require.Eventually(t, func() bool { return len(named(plane.Spans(traceID), name)) > 0 }, patience,
			20*time.Millisecond, name)
		require.Equal(t, "order-7", attributeOf(&named(plane.Spans(traceID), name)[0], "mainstay.correlation_id"), name)
	}
}
