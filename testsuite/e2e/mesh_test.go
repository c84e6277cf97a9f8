package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// senders are two tenants that send events, with an agent that echoes, and a client of each.
type senders struct {
	*secured
	acme, beta string // tenants
	of         map[string]*client.Client
	tokens     map[string]string
}

func newSenders(t *testing.T) *senders {
	t.Helper()
	s := &senders{secured: newSecured(t, plane.NodeOptions{}), acme: plane.UniqueID("acme"), beta: plane.UniqueID("beta"),
		of: map[string]*client.Client{}, tokens: map[string]string{}}
	for _, tenant := range []string{s.acme, s.beta} {
		token := s.token(t, api.TokenRequest{Name: "sender", Role: api.RoleOperator, Tenant: tenant})
		c, err := client.New(client.Options{URL: s.URL, Token: token.Secret})
		require.NoError(t, err)
		s.of[tenant], s.tokens[tenant] = c, token.Secret
	}
	join := s.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: s.cluster})
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("a"), Slots: 8,
		JoinToken: join.Secret, TracerProvider: plane.Tracer()}, map[string]agent.Handler{"echo": echo})
	return s
}

// apply makes a job that events of a type start.
func (s *senders) apply(t *testing.T, tenant, name, trigger, more string) {
	t.Helper()
	definition := fmt.Sprintf("job: %s\ncluster: %s\nsafety: idempotent\non: [{event: {%s}}]\n%s\n"+
		"steps: {a: {task: {type: echo, payload: \"${inputs}\"}}}\n", name, s.cluster, trigger, more)
	_, err := s.of[tenant].Jobs.Apply(t.Context(), name, []byte(definition), "")
	require.NoError(t, err)
}

// become waits until an event has a status.
func (s *senders) become(t *testing.T, tenant, id string, status api.InboundStatus) *api.Inbound {
	t.Helper()
	var e *api.Inbound
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		e, err = s.of[tenant].Inbound.Get(t.Context(), id)
		require.NoError(c, err)
		require.Equal(c, status, e.Status, "%s: %s", id, e.Why)
	}, patience, 50*time.Millisecond)
	return e
}

// inboundEvent is one of a tenant, as JSON in structured mode.
func inboundEvent(tenant, kind, id, more string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/desk","type":%q,"tenant":%q%s}`, id, kind, tenant, more)
}

// post sends an event as the CloudEvents SDK makes it.
func (s *senders) post(t *testing.T, tenant, kind string, header http.Header, body io.Reader) (int, api.Inbound) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/api/v1/agents/events", body)
	require.NoError(t, err)
	r.Header = header
	r.Header.Set("Authorization", "Bearer "+s.tokens[tenant])
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	var got struct {
		api.Inbound
		Events []api.Inbound
	}
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &got), "%s", text)
	if len(got.Events) > 0 {
		return answer.StatusCode, got.Events[0]
	}
	return answer.StatusCode, got.Inbound
}

// TestEventsStartRunsOnce sends one event many times at once, in all three modes.
func TestEventsStartRunsOnce(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	kind := plane.UniqueID("com.acme.opened")
	s.apply(t, s.acme, "triage", `type: `+kind+`, source: /desk, where: event.data.severity >= 3, inputs: {ticket: "${event.data.ticket}"}`, "")
	const trace = "5cf92f3577b34da6a3ce929d0e0e4799"
	e := cloudevents.NewEvent()
	e.SetID("one")
	e.SetSource("/desk")
	e.SetType(kind)
	e.SetTime(time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC))
	e.SetExtension("tenant", s.acme)
	e.SetExtension("correlationid", "ticket-7")
	e.SetExtension("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	require.NoError(t, e.SetData(cloudevents.ApplicationJSON, map[string]any{"severity": 4, "ticket": "T-7"}))
	text, err := json.Marshal(e)
	require.NoError(t, err)
	send := []func() (int, api.Inbound){
		func() (int, api.Inbound) {
			return s.post(t, s.acme, "application/cloudevents+json", http.Header{}, bytes.NewReader(text))
		},
		func() (int, api.Inbound) {
			return s.post(t, s.acme, "application/cloudevents-batch+json", http.Header{},
				strings.NewReader("["+string(text)+"]"))
		},
		func() (int, api.Inbound) {
			r, err := cloudevents.NewHTTPRequestFromEvent(t.Context(), s.URL, e)
			require.NoError(t, err)
			return s.post(t, s.acme, "", r.Header, r.Body)
		},
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	ids, first := map[string]int{}, 0
	for i := range 51 {
		group.Go(func() {
			_, one := send[i%3]()
			mu.Lock()
			defer mu.Unlock()
			ids[one.ID]++
			if !one.Duplicate {
				first++
			}
		})
	}
	group.Wait()
	require.Len(t, ids, 1)
	require.Equal(t, 1, first, "all others are duplicates")
	var id string
	for id = range ids {
	}
	done := s.become(t, s.acme, id, api.InboundDispatched)
	require.Len(t, done.Dispatches, 1)
	d := done.Dispatches[0]
	key := sha256.Sum256([]byte("one:AgentTaskDispatch:" + d.ID))
	require.Equal(t, api.Dispatch{Kind: api.DispatchRun, ID: d.ID, Job: s.acme + ":triage", Key: hex.EncodeToString(key[:]),
		Outcome: "started"}, d)
	status, again := send[0]()
	require.Equal(t, http.StatusOK, status)
	require.True(t, again.Duplicate)
	require.Equal(t, done.Dispatches, again.Dispatches, "a repetition has the first outcome")

	c := s.of[s.acme]
	run := (&runsOf{Client: c}).awaitRun(t, d.ID, api.RunCompleted)
	require.Equal(t, id, run.Origin.Event)
	require.JSONEq(t, `{"ticket": "T-7"}`, string(run.Entry("a").Output))
	task, err := c.Tasks.Get(t.Context(), run.Entry("a").TaskID)
	require.NoError(t, err)
	require.Equal(t, "ticket-7", task.Labels["correlation_id"])
	require.Eventually(t, func() bool {
		for _, span := range plane.Spans(trace) {
			if span.Name == "run echo" {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "the agent's span is in the sender's trace")

	_, err = c.Inbound.Send(t.Context(), inboundEvent(s.acme, kind, "one", `,"data":{"severity":5}`))
	require.ErrorContains(t, err, "idempotency_conflict")
	before := s.workflows(t)
	_, err = s.of[s.beta].Inbound.Send(t.Context(), inboundEvent(s.acme, kind, "two", ""))
	require.ErrorContains(t, err, "forbidden")
	_, err = s.of[s.beta].Inbound.Get(t.Context(), id)
	require.ErrorContains(t, err, "unknown_event")
	require.Equal(t, before, s.workflows(t), "nothing of the tenant exists more than before")
	log, err := os.ReadFile(s.audit)
	require.NoError(t, err)
	require.Contains(t, string(log), `"send-event"`)
	require.Contains(t, string(log), `403`)
}

// workflows counts all of the tenant acme.
func (s *senders) workflows(t *testing.T) int64 {
	t.Helper()
	n, err := plane.Temporal(t).CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
		Query: "MainstayTenant = '" + s.acme + "'"})
	require.NoError(t, err)
	return n.GetCount()
}

// TestEventsAssignTasks: the data of some events is a task; a task that is there is not started again.
func TestEventsAssignTasks(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	c := s.of[s.acme]
	data := fmt.Sprintf(`,"data":{"taskId":"job-1","type":"echo","cluster":%q,"payload":{"n":1}}`, s.cluster)
	sent, err := c.Inbound.Send(t.Context(), inboundEvent(s.acme, "AgentTaskAssigned", "a", data))
	require.NoError(t, err)
	require.Equal(t, "started", s.become(t, s.acme, sent.ID, api.InboundDispatched).Dispatches[0].Outcome)
	sent, err = c.Inbound.Send(t.Context(), inboundEvent(s.acme, "AgentTaskAssigned", "b", data))
	require.NoError(t, err)
	second := s.become(t, s.acme, sent.ID, api.InboundDispatched).Dispatches[0]
	require.Equal(t, "already_exists", second.Outcome)
	require.Equal(t, s.acme+":job-1", second.ID)
	key := sha256.Sum256([]byte("b:AgentTaskDispatch:" + second.ID))
	require.Equal(t, hex.EncodeToString(key[:]), second.Key)
	task, err := c.Tasks.Wait(t.Context(), "job-1", patience)
	require.NoError(t, err)
	require.Equal(t, api.TaskCompleted, task.Status)

	t.Log("the task of another tenant is refused where it is started")
	sent, err = c.Inbound.Send(t.Context(), inboundEvent(s.acme, "AgentTaskAssigned", "c",
		fmt.Sprintf(`,"data":{"taskId":"%s:x","type":"echo","cluster":%q}`, s.beta, s.cluster)))
	require.NoError(t, err)
	require.Contains(t, s.become(t, s.acme, sent.ID, api.InboundQuarantined).Why, "tenant_mismatch")

	t.Log("a cluster that is for another tenant does not exist")
	for id, tenant := range map[string]string{"d": s.beta, "e": s.acme} {
		cluster := s.EnsureCluster(t, api.ClusterConfig{Tenants: []string{tenant}})
		sent, err = c.Inbound.Send(t.Context(), inboundEvent(s.acme, "AgentTaskAssigned", id,
			fmt.Sprintf(`,"data":{"taskId":"at-%s","type":"echo","cluster":%q}`, id, cluster)))
		require.NoError(t, err)
		if tenant == s.acme {
			s.become(t, s.acme, sent.ID, api.InboundDispatched)
		} else {
			require.Contains(t, s.become(t, s.acme, sent.ID, api.InboundQuarantined).Why, "there is no cluster "+cluster)
		}
	}
}

// TestAClusterThatIsForOthersNowBeginsNothing has a tenant leave work in a cluster before that is for others only: what
// waits there, what its events start, and what it retries.
func TestAClusterThatIsForOthersNowBeginsNothing(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	c := s.of[s.acme]
	s.apply(t, s.acme, "left", "type: left", "retry: {max_attempts: 1}")
	cluster := s.cluster
	waits, err := c.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "echo", Cluster: cluster,
		RequiredCapabilities: []string{"none-has-it"}}})
	require.NoError(t, err)
	admin, err := client.New(client.Options{URL: s.URL, Token: firstAdmin})
	require.NoError(t, err)
	_, err = admin.Clusters.Update(t.Context(), cluster, client.Settings{"tenants": []string{s.beta}}, "")
	require.NoError(t, err)
	waiting, err := c.Tasks.Get(t.Context(), waits.ID)
	require.NoError(t, err)
	require.Equal(t, "its cluster is for others now: it fails as soon as an agent of the cluster is asked", waiting.Why)

	sent, err := c.Inbound.Send(t.Context(), inboundEvent(s.acme, "left", "a", ""))
	require.NoError(t, err)
	held := s.become(t, s.acme, sent.ID, api.InboundQuarantined) // as its run has failed
	ended, err := c.Runs.Get(t.Context(), held.Dispatches[0].ID, patience)
	require.NoError(t, err)
	require.Equal(t, api.RunFailed, ended.Status)
	require.Regexp(t, "there is no cluster|takes no work of tenant "+s.acme, fmt.Sprint(ended.Steps))

	join := s.token(t, api.TokenRequest{Name: "more", Kind: api.TokenJoin, Cluster: cluster})
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: cluster, ID: plane.UniqueID("b"), Slots: 8,
		JoinToken: join.Secret, Capabilities: []string{"none-has-it"}}, map[string]agent.Handler{"echo": echo})
	task, err := c.Tasks.Wait(t.Context(), waits.ID, patience)
	require.NoError(t, err)
	require.Equal(t, api.TaskFailed, task.Status)
	theirs, err := s.of[s.beta].Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "echo",
		Cluster: cluster}})
	require.NoError(t, err)
	done, err := s.of[s.beta].Tasks.Wait(t.Context(), theirs.ID, patience)
	require.NoError(t, err)
	require.Equal(t, api.TaskCompleted, done.Status)
}

// TestEventsGoToWarmAgents: what an event assigns begins on an agent that is there and free, and of these on the one
// that the task prefers, as one that has loaded what the task needs. That counts for more than what the machine is busy
// with.
func TestEventsGoToWarmAgents(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	c, kind := s.of[s.acme], plane.UniqueID("kind")
	join := s.token(t, api.TokenRequest{Name: "more-agents", Kind: api.TokenJoin, Cluster: s.cluster})
	first, full, warm := plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c")
	free := make(chan struct{})
	defer close(free)
	for id, handler := range map[string]agent.Handler{first: echo, warm: echo,
		full: func(context.Context, *agent.Task) (any, error) { <-free; return "done", nil }} {
		slots := 2 // a task that just ended keeps one for a moment, if a poll crossed its result
		if id == full {
			slots = 1
		}
		startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: id, Slots: slots,
			Capabilities: []string{id, "warm." + id}, JoinToken: join.Secret}, map[string]agent.Handler{kind: handler})
	}
	assign := func(id, more string) string {
		t.Helper()
		sent, err := c.Inbound.Send(t.Context(), inboundEvent(s.acme, "AgentTaskAssigned", id,
			fmt.Sprintf(`,"data":{"type":%q,"cluster":%q,%s}`, kind, s.cluster, more)))
		require.NoError(t, err)
		return s.become(t, s.acme, sent.ID, api.InboundDispatched).Dispatches[0].ID
	}
	onAgent := func(id, status string) *api.Attempt {
		t.Helper()
		var task *api.Task
		require.Eventually(t, func() bool {
			var err error
			task, err = c.Tasks.Get(t.Context(), id)
			return err == nil && string(task.Status) == status
		}, patience, 20*time.Millisecond, "%s is %s", id, status)
		require.Len(t, task.Attempts, 1)
		return &task.Attempts[0]
	}
	for _, id := range []string{first, warm} { // which waits until it is there
		onAgent(assign("to-"+id, fmt.Sprintf(`"agent":%q`, id)), "completed")
	}
	onAgent(assign("fill", fmt.Sprintf(`"agent":%q`, full)), "running")
	for n, prefers := range []string{warm, first, full, warm} {
		ran := onAgent(assign(fmt.Sprint("n-", n), fmt.Sprintf(`"affinity":%q,"preferred_capabilities":[%[1]q,"warm.%[1]s"]`,
			prefers)), "completed")
		if prefers == full {
			require.NotEqual(t, full, ran.AgentID, "it has no slot")
			continue
		}
		require.Equal(t, prefers, ran.AgentID)
	}
}

// TestSilentTasksRunAgain: an attempt without a sign of life ends, and the next is of the same task, under the same
// key. One with signs of life goes on for longer than that.
func TestSilentTasksRunAgain(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	s := newSenders(t)
	join := s.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: s.cluster})
	var calls atomic.Int64
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("a"), Slots: 8,
		JoinToken: join.Secret}, map[string]agent.Handler{
		"silent": func(ctx context.Context, _ *agent.Task) (any, error) {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return "done", nil
		},
		"lively": func(ctx context.Context, task *agent.Task) (any, error) {
			for end := time.Now().Add(2 * limit); time.Now().Before(end); {
				task.Beacon()
				select {
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				case <-time.After(limit / 20):
				}
			}
			return "done", nil
		},
	})
	c := s.of[s.acme]
	for kind, attempts := range map[string]int{"silent": 2, "lively": 1} {
		event := inboundEvent(s.acme, "AgentTaskAssigned", kind, fmt.Sprintf(`,"data":{"taskId":%q,"type":%q,"cluster":%q,
			"beacon_timeout":%q}`, kind, kind, s.cluster, limit))
		sent, err := c.Inbound.Send(t.Context(), event)
		require.NoError(t, err)
		first := s.become(t, s.acme, sent.ID, api.InboundDispatched).Dispatches
		task, err := c.Tasks.Wait(t.Context(), kind, patience)
		require.NoError(t, err)
		require.Equal(t, api.TaskCompleted, task.Status, task.Why)
		begun := slices.DeleteFunc(task.Attempts, func(a api.Attempt) bool { return a.Outcome == api.AttemptReturned })
		require.Len(t, begun, attempts, kind)
		if attempts > 1 {
			a := begun[0]
			require.Equal(t, api.AttemptTimedOut, a.Outcome)
			require.Equal(t, api.ErrorTypeNoBeacon, a.ErrorType)
			require.GreaterOrEqual(t, a.EndedAt.Sub(*a.StartedAt), limit)
		}
		again, err := c.Inbound.Send(t.Context(), event)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, first, again.Dispatches, "the key is that of the first attempt")
	}
}

// TestQuarantine: an event that cannot be dispatched is kept byte for byte, and is dispatched once its job is mended.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	c, kind := s.of[s.acme], plane.UniqueID("com.acme.poison")
	const wants = "inputs: {type: object, required: [severity]}"
	trigger := `type: ` + kind + `, inputs: {ticket: "${event.data.ticket}"}`
	s.apply(t, s.acme, "poisoned", trigger, wants)
	odd := inboundEvent(s.acme, kind, "odd", `,   "data" : {"ticket": "\u0041" , "n": 1.50}`)
	sent, err := c.Inbound.Send(t.Context(), odd)
	require.NoError(t, err)
	held := s.become(t, s.acme, sent.ID, api.InboundQuarantined)
	require.Len(t, held.Tries, 5)
	require.Contains(t, held.Why, "severity")
	require.Equal(t, string(odd), string(held.Event.Body))
	require.Eventually(t, func() bool { return metric(t, s.Registry, "mainstay_events_quarantined", nil) >= 1 }, patience,
		50*time.Millisecond)
	same, err := c.Inbound.Send(t.Context(), odd)
	require.NoError(t, err)
	require.True(t, same.Duplicate)
	require.Equal(t, sent.ID, same.ID)

	again, err := c.Inbound.Replay(t.Context(), sent.ID, api.ReplayRequest{Reason: "perhaps it works now"})
	require.NoError(t, err)
	require.Equal(t, api.InboundReceived, again.Status, "it is being tried again")
	s.become(t, s.acme, sent.ID, api.InboundQuarantined)
	listed, err := c.Inbound.Quarantine(client.InboundQuery{Type: kind}).Take(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, listed, 1, "one event is one record")
	require.Equal(t, sent.ID, listed[0].ID)
	s.apply(t, s.acme, "poisoned", trigger, "")
	again, err = c.Inbound.Replay(t.Context(), sent.ID, api.ReplayRequest{Reason: "the job is mended"})
	require.NoError(t, err)
	require.Equal(t, api.InboundDispatched, again.Status, again.Why)
	(&runsOf{Client: c}).awaitRun(t, again.Dispatches[0].ID, api.RunCompleted)
	done, err := c.Inbound.Quarantined(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Len(t, done.Decisions, 2)
	require.Equal(t, string(odd), string(done.Event.Body))

	t.Log("an event that nothing asks for is kept, and can be replayed with other data; one may be given up")
	sent, err = c.Inbound.Send(t.Context(), inboundEvent(s.acme, "nobody.wants", "x", ""))
	require.NoError(t, err)
	s.become(t, s.acme, sent.ID, api.InboundUnmatched)
	_, err = c.Inbound.Discard(t.Context(), sent.ID, "")
	require.ErrorContains(t, err, "invalid_request")
	given, err := c.Inbound.Discard(t.Context(), sent.ID, "sent by mistake")
	require.NoError(t, err)
	require.Equal(t, api.InboundDiscarded, given.Status)
	_, err = c.Inbound.Replay(t.Context(), sent.ID, api.ReplayRequest{})
	require.Error(t, err)
}

// died is the one thing that an event of acme started, and that has died.
func (s *senders) died(t *testing.T, event string) api.Dispatch {
	t.Helper()
	dead := mesh.DeadDispatches(&s.become(t, s.acme, event, api.InboundQuarantined).InboundEvent)
	require.Len(t, dead, 1)
	return dead[0]
}

// TestQuarantineOfWhatDied: an event whose task or run dies after the dispatch is in quarantine. A replay has what died
// begin again in its place, a repetition is answered with what has become of it, and a discarded event leaves no work.
func TestQuarantineOfWhatDied(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	c, kind := s.of[s.acme], plane.UniqueID("com.acme.deadly")
	join := s.token(t, api.TokenRequest{Name: "agents", Kind: api.TokenJoin, Cluster: s.cluster})
	var mended atomic.Bool
	var first atomic.Int64
	startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("a"), Slots: 8,
		JoinToken: join.Secret}, map[string]agent.Handler{
		"first": func(context.Context, *agent.Task) (any, error) { return first.Add(1), nil },
		"fail": func(_ context.Context, task *agent.Task) (any, error) {
			if mended.Load() {
				return "done", nil
			}
			return nil, agent.NonRetryable(errors.New("disk full"))
		},
		"flaky": func(context.Context, *agent.Task) (any, error) {
			if mended.Load() {
				return "done", nil
			}
			return nil, errors.New("disk full")
		},
	})
	_, err := c.Jobs.Apply(t.Context(), "deadly", fmt.Appendf(nil, "job: deadly\ncluster: %s\nsafety: idempotent\n"+
		"on: [{event: {type: %s}}]\nsteps: {a: {task: {type: first}}, b: {after: [a], task: {type: fail}}}\n", s.cluster,
		kind), "")
	require.NoError(t, err)
	assign := func(id, kind string) []byte {
		return inboundEvent(s.acme, "AgentTaskAssigned", id, fmt.Sprintf(`,"data":{"taskId":%q,"type":%q,"cluster":%q,
			"retry":{"max_attempts":1}}`, id, kind, s.cluster))
	}
	sent := map[string]*client.SentEvents{}
	events := map[string][]byte{"dead": assign("dead", "flaky"), "failed": assign("failed", "fail"),
		"mended": assign("mended", "flaky"), "given-up": assign("given-up", "flaky"),
		"run": inboundEvent(s.acme, kind, "run", `,   "data" : 1.50`)}
	for name, event := range events {
		sent[name], err = c.Inbound.Send(t.Context(), event)
		require.NoError(t, err)
	}
	for name := range events {
		held := s.become(t, s.acme, sent[name].ID, api.InboundQuarantined)
		require.Len(t, held.Dispatches, 1)
		require.Contains(t, held.Dispatches[0].Died, "disk full")
		require.Contains(t, held.Why, held.Dispatches[0].ID)
		require.Len(t, held.Tries, 1)
		require.Equal(t, string(events[name]), string(held.Event.Body))
		again, err := c.Inbound.Send(t.Context(), events[name])
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, api.InboundQuarantined, again.Status)
		require.Equal(t, held.Dispatches, again.Dispatches)
	}
	require.Eventually(t, func() bool {
		listed, err := c.Inbound.List(client.InboundQuery{}).Take(t.Context(), 0)
		return err == nil && len(listed) == len(events)
	}, patience, 50*time.Millisecond, "lists show each event once")
	_, err = c.Inbound.Replay(t.Context(), sent["dead"].ID, api.ReplayRequest{Data: []byte(`{}`)})
	require.ErrorContains(t, err, "without data")

	t.Log("what died again is in quarantine again")
	_, err = c.Inbound.Replay(t.Context(), sent["dead"].ID, api.ReplayRequest{Reason: "perhaps it works now"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, err := c.Inbound.Get(t.Context(), sent["dead"].ID)
		return err == nil && e.Status == api.InboundQuarantined && len(e.Tries) == 2
	}, patience, 50*time.Millisecond)

	t.Log("a discarded event gives up the dead letter, and a repetition is answered with that")
	_, err = c.Inbound.Discard(t.Context(), sent["given-up"].ID, "sent by mistake")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		task, err := c.Tasks.Get(t.Context(), "given-up")
		return err == nil && task.Status == api.TaskFailed && strings.Contains(task.Why, "sent by mistake")
	}, patience, 50*time.Millisecond)
	again, err := c.Inbound.Send(t.Context(), events["given-up"])
	require.NoError(t, err)
	require.Equal(t, api.InboundDiscarded, again.Status)

	t.Log("a run that a person has had retried, and that failed again, is not run twice by a replay, but from there")
	byHand, err := c.Runs.Retry(t.Context(), s.died(t, sent["run"].ID).ID, api.RetryRunRequest{})
	require.NoError(t, err)
	(&runsOf{Client: c}).awaitRun(t, byHand.ID, api.RunFailed)

	mended.Store(true)
	_, err = c.Tasks.Retry(t.Context(), "mended", "the disk is empty")
	require.NoError(t, err)
	s.become(t, s.acme, sent["mended"].ID, api.InboundDispatched)
	for _, name := range []string{"dead", "failed", "run"} {
		replayed, err := c.Inbound.Replay(t.Context(), sent[name].ID, api.ReplayRequest{Reason: "the disk is empty"})
		require.NoError(t, err)
		require.Equal(t, api.InboundDispatched, replayed.Status, replayed.Why)
		if name == "run" {
			require.Len(t, replayed.Dispatches, 2)
			again := replayed.Dispatches[1]
			require.Equal(t, replayed.Dispatches[0].ID, again.RetryOf)
			require.NotEqual(t, byHand.ID, again.ID)
			(&runsOf{Client: c}).awaitRun(t, again.ID, api.RunCompleted)
			require.EqualValues(t, 1, first.Load(), "what had succeeded is not done again")
			continue
		}
		require.Len(t, replayed.Dispatches, 1)
		require.Empty(t, replayed.Dispatches[0].Died)
		task, err := c.Tasks.Wait(t.Context(), name, patience)
		require.NoError(t, err)
		require.Equal(t, api.TaskCompleted, task.Status, task.Why)
	}
	require.Eventually(t, func() bool {
		n, err := plane.Temporal(t).CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Query: "WorkflowType = 'Inbound' AND MainstayTenant = '" + s.acme + "'"})
		return err == nil && n.GetCount() == int64(len(events))
	}, 2*patience, time.Second, "each event has one workflow in the end")
}

// TestEveryEventHasOneEnd sends events of two tenants: each ends as one of the statuses, and the sums match.
func TestEveryEventHasOneEnd(t *testing.T) {
	t.Parallel()
	s := newSenders(t)
	kind := plane.UniqueID("com.example.counted")
	tenants := []string{s.acme, s.beta}
	for _, tenant := range tenants {
		s.apply(t, tenant, "counted", `type: `+kind+`, where: event.data.n % 2 == 0, inputs: {n: "${event.data.n}"}`, "")
	}
	const each = 60
	var group sync.WaitGroup
	for _, tenant := range tenants {
		group.Go(func() {
			var batch []string
			for n := range each {
				data := fmt.Sprintf(`,"data":{"n":%d}`, n)
				if n%20 == 19 {
					data = "" // where fails without data
				}
				batch = append(batch, string(inboundEvent(tenant, kind, fmt.Sprint(n), data)))
			}
			for range 2 { // each event twice
				_, err := s.of[tenant].Inbound.Send(t.Context(), []byte("["+strings.Join(batch, ",")+"]"))
				require.NoError(t, err)
			}
		})
	}
	group.Wait()
	for _, tenant := range tenants {
		counts := map[api.InboundStatus]int{}
		require.Eventually(t, func() bool {
			events, err := s.of[tenant].Inbound.List(client.InboundQuery{Type: kind}).Take(t.Context(), 0)
			clear(counts)
			for _, e := range events {
				require.Equal(t, tenant, e.Tenant)
				counts[e.Status]++
			}
			return err == nil && len(events) == each && counts[api.InboundReceived] == 0
		}, patience, 200*time.Millisecond, "%v", counts)
		require.Equal(t, map[api.InboundStatus]int{api.InboundDispatched: each / 2, api.InboundUnmatched: each/2 - each/20,
			api.InboundQuarantined: each / 20}, counts)
	}
}

// TestResultsAreCorrected has an agent that is wrong n times: it gets what was wrong, as often as the step allows, and
// then a person decides.
func TestResultsAreCorrected(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	var calls sync.Map // by task, how often it was called
	startAgentOf(t, r, "write", func(_ context.Context, task *agent.Task) (any, error) {
		var in struct {
			Wrong    int
			Note     string
			Feedback []struct{ Errors []string }
		}
		if err := task.Decode(&in); err != nil {
			return nil, err
		}
		n, _ := calls.LoadOrStore(task.ID, new(atomic.Int64))
		call := n.(*atomic.Int64).Add(1)
		if int(call) != len(in.Feedback)+1 {
			return nil, agent.NonRetryable(fmt.Errorf("call %d has the errors of %d before it", call, len(in.Feedback)))
		}
		if len(in.Feedback) < in.Wrong && in.Note == "" {
			return map[string]any{"text": strings.Repeat("x", 9), "n": call}, nil
		}
		return map[string]any{"text": "ok", "n": call, "saw": in.Feedback}, nil
	})
	step := func(wrong int, exhausted string) string {
		return fmt.Sprintf(`  a:
    task: {type: write, payload: {wrong: %d}}
    check:
      schema: {type: object, required: [text], properties: {text: {type: string, maxLength: 5}}}
      rules: [{that: "result.n < 100", else: "too many"}, {that: "result.text != 'xxxxxxxxx'", else: "no x, please"}]
      correct: {attempts: 2}
      exhausted: %s
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.text}"}}`, wrong, exhausted)
	}
	called := func(run *api.Run) int64 {
		n, ok := calls.Load(run.Entry("a").TaskID)
		require.True(t, ok)
		return n.(*atomic.Int64).Load()
	}
	corrected := r.awaitRun(t, r.start(t, "", step(2, "review")).ID, api.RunCompleted)
	require.EqualValues(t, 3, called(corrected))
	a := corrected.Entry("a")
	require.Len(t, a.Corrections, 2)
	require.Equal(t, []string{"text: maxLength: got 9, want 5", "no x, please"}, a.Corrections[1].Errors)
	require.Contains(t, string(a.Output), "no x, please", "the errors reached the agent")
	// What came before the agent was there was handed back.
	begun := slices.DeleteFunc(a.Attempts, func(a api.Attempt) bool { return a.AgentID == "" })
	require.Len(t, begun, 3)

	failed := r.awaitRun(t, r.start(t, "", step(9, "fail")).ID, api.RunFailed)
	require.EqualValues(t, 3, called(failed), "two corrections follow the first call")
	require.Contains(t, failed.Why, "no x, please")

	taken := r.awaitRun(t, r.start(t, "", step(9, "review")).ID, api.RunBlocked)
	require.EqualValues(t, 3, called(taken))
	require.Len(t, taken.Entry("a").Corrections, 3, "the person sees every output")
	_, err := r.Runs.Step(t.Context(), taken.ID, "a", api.CompleteStep, api.StepRequest{Attempt: 7})
	require.ErrorContains(t, err, "keeps no result of attempt 7")
	_, err = r.Runs.Step(t.Context(), taken.ID, "a", api.CompleteStep, api.StepRequest{Attempt: 2, Reason: "good enough"})
	require.NoError(t, err)
	done := r.awaitRun(t, taken.ID, api.RunCompleted)
	require.JSONEq(t, `{"text": "xxxxxxxxx", "n": 2}`, string(done.Entry("a").Output))

	again := r.awaitRun(t, r.start(t, "", step(9, "review")).ID, api.RunBlocked)
	_, err = r.Runs.Step(t.Context(), again.ID, "a", api.RetryStep, api.StepRequest{Reason: "write ok"})
	require.NoError(t, err)
	done = r.awaitRun(t, again.ID, api.RunCompleted)
	require.EqualValues(t, 4, called(done))
	require.Len(t, done.Entry("a").Corrections, 3, "the count of corrections never falls")
	require.Equal(t, "write ok", done.Entry("a").Note)
}

// startAgentOf starts one more agent in the cluster of runs.
func startAgentOf(t *testing.T, r *runsOf, kind string, handler agent.Handler) {
	t.Helper()
	startAgent(t, agent.Options{HubURLs: []string{r.url}, Cluster: r.cluster, ID: plane.UniqueID("a"), Slots: 8,
		JoinToken: r.join}, map[string]agent.Handler{kind: handler})
}
