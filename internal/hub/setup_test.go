package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// fakeTemporal is a Temporal in memory. Methods that the hub does not use are nil and panic.
type fakeTemporal struct {
	workflowservice.WorkflowServiceClient
	mu       sync.Mutex
	polls    map[string][]*fakePoll // open, by lane
	polled   map[string]int         // ever, by lane
	cut      int                    // polls that ended by their context: it must not happen
	released []string               // lanes
	reports  []report
	beats    map[string]int // by task token
	beat     func(token string) (*workflowservice.RecordActivityTaskHeartbeatResponse, error)
	respond  error // answers the ends of attempts when set
	epochs   map[string]cluster.Joined
	joins    []contract.JoinRequest
	deaths   []cluster.DeathProof
	late     []contract.LateResultRequest
	decided  bool   // no task waits for a late result
	refuse   string // answers joins when set
	direct   map[string]contract.Directive
	changes  []cluster.Transition
	brake    *cluster.BrakeHold // as last told
	states   [][]string         // digests, as told
	slow     time.Duration      // how long a signal takes
	lanes    cluster.Cluster    // has the open lanes of the cluster c
	unasked  int                // how many more questions for them fail
	health   []string           // of instances, as told to their jobs
	deaf     int                // how many more times jobs cannot be told
	missed   [][]string         // as reported by the hub, where the cluster judges
	unjudged bool               // reports fail
	online   []string           // identities in the live registry
	looks    int                // into it

	unhandled  int                 // how many tasks no agent could run
	woken      []string            // those that were offered again
	unanswered int                 // how many more joins have no answer
	members    []cluster.Member    // of the cluster c, as queries tell them
	pending    map[string][]string // activities of attempts, by workflow
	hasIt      string              // the hub whose heartbeats of attempts came last; empty: they have ended
	seenAt     time.Time           // when that came
	silent     string              // a cluster that answers no query
	backlog    bool                // lists of tasks do not come to an end
	away       error               // what nothing gets past
}

type fakePoll struct {
	key    string
	answer chan *workflowservice.PollActivityTaskQueueResponse
}

// report is the end of an attempt as reported to Temporal.
type report struct {
	token string
	how   string // completed, failed or cancelled
	contract.AttemptReport
	log []api.LogLine
}

func readReport(token []byte, how string, left *commonpb.Payloads) (report, error) {
	r := report{token: string(token), how: how}
	return r, converter.GetDefaultDataConverter().FromPayloads(left, &r.AttemptReport, &r.log)
}

func newFakeTemporal() *fakeTemporal {
	return &fakeTemporal{polls: map[string][]*fakePoll{}, polled: map[string]int{}, beats: map[string]int{},
		epochs: map[string]cluster.Joined{}, direct: map[string]contract.Directive{}, hasIt: "hub-1",
		pending: map[string][]string{}}
}

func (f *fakeTemporal) PollActivityTaskQueue(
	ctx context.Context, in *workflowservice.PollActivityTaskQueueRequest, _ ...grpc.CallOption,
) (*workflowservice.PollActivityTaskQueueResponse, error) {
	p := &fakePoll{key: in.GetWorkerInstanceKey(), answer: make(chan *workflowservice.PollActivityTaskQueueResponse, 1)}
	lane := in.GetTaskQueue().GetName()
	f.mu.Lock()
	f.polls[lane] = append(f.polls[lane], p)
	f.polled[lane]++
	f.mu.Unlock()
	empty := time.NewTimer(store.PollTimeout - 10*time.Second) // the server answers empty shortly before the client's timeout
	defer empty.Stop()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.polls[lane] = slices.DeleteFunc(f.polls[lane], func(o *fakePoll) bool { return o == p })
	}()
	select {
	case task := <-p.answer:
		return task, nil
	case <-empty.C:
		return &workflowservice.PollActivityTaskQueueResponse{}, nil
	case <-ctx.Done():
		f.mu.Lock()
		f.cut++
		f.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (f *fakeTemporal) ShutdownWorker(
	_ context.Context, in *workflowservice.ShutdownWorkerRequest, _ ...grpc.CallOption,
) (*workflowservice.ShutdownWorkerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, in.GetTaskQueue())
	for _, p := range f.polls[in.GetTaskQueue()] {
		if p.key == in.GetWorkerInstanceKey() {
			p.answer <- &workflowservice.PollActivityTaskQueueResponse{}
		}
	}
	return &workflowservice.ShutdownWorkerResponse{}, nil
}

func (f *fakeTemporal) RespondActivityTaskCompleted(
	_ context.Context, in *workflowservice.RespondActivityTaskCompletedRequest, _ ...grpc.CallOption,
) (*workflowservice.RespondActivityTaskCompletedResponse, error) {
	r, err := readReport(in.GetTaskToken(), "completed", in.GetResult())
	if err != nil {
		return nil, err
	}
	return &workflowservice.RespondActivityTaskCompletedResponse{}, f.take(r)
}

func (f *fakeTemporal) RespondActivityTaskCanceled(
	_ context.Context, in *workflowservice.RespondActivityTaskCanceledRequest, _ ...grpc.CallOption,
) (*workflowservice.RespondActivityTaskCanceledResponse, error) {
	r, err := readReport(in.GetTaskToken(), "cancelled", in.GetDetails())
	if err != nil {
		return nil, err
	}
	return &workflowservice.RespondActivityTaskCanceledResponse{}, f.take(r)
}

func (f *fakeTemporal) RespondActivityTaskFailed(
	_ context.Context, in *workflowservice.RespondActivityTaskFailedRequest, _ ...grpc.CallOption,
) (*workflowservice.RespondActivityTaskFailedResponse, error) {
	if _, err := proto.Marshal(in); err != nil { // as the client does
		return nil, err
	}
	r, err := readReport(in.GetTaskToken(), "failed", in.GetFailure().GetApplicationFailureInfo().GetDetails())
	if err != nil {
		return nil, err
	}
	return &workflowservice.RespondActivityTaskFailedResponse{}, f.take(r)
}

// take takes the first end of an attempt. Later ones get an error that there is no such attempt, as from
// Temporal.
func (f *fakeTemporal) take(r report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.respond != nil || f.away != nil {
		return cmp.Or(f.respond, f.away)
	}
	if slices.ContainsFunc(f.reports, func(old report) bool { return old.token == r.token }) {
		return serviceerror.NewNotFound("no such activity")
	}
	f.reports = append(f.reports, r)
	return nil
}

func (f *fakeTemporal) RecordActivityTaskHeartbeat(
	_ context.Context, in *workflowservice.RecordActivityTaskHeartbeatRequest, _ ...grpc.CallOption,
) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats[string(in.GetTaskToken())]++
	if f.beat != nil {
		return f.beat(string(in.GetTaskToken()))
	}
	return &workflowservice.RecordActivityTaskHeartbeatResponse{}, nil
}

// ListWorkers finds the identities with a prefix, two on a page.
func (f *fakeTemporal) ListWorkers(
	_ context.Context, in *workflowservice.ListWorkersRequest, _ ...grpc.CallOption,
) (*workflowservice.ListWorkersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	prefix := strings.Split(in.GetQuery(), "'")[1]
	var found []*workerpb.WorkerListInfo
	for _, identity := range f.online {
		if strings.HasPrefix(identity, prefix) {
			found = append(found, &workerpb.WorkerListInfo{WorkerIdentity: identity,
				Status: enumspb.WORKER_STATUS_RUNNING})
		}
	}
	from, _ := strconv.Atoi(string(in.GetNextPageToken()))
	answer := &workflowservice.ListWorkersResponse{Workers: found[from:min(from+2, len(found))]}
	if from+2 < len(found) {
		answer.NextPageToken = []byte(strconv.Itoa(from + 2))
	}
	return answer, nil
}

// fakeClient is the SDK's client of a fakeTemporal.
type fakeClient struct {
	client.Client
	temporal *fakeTemporal
}

func fakeStore(f *fakeTemporal) store.Store {
	return store.Store{Client: fakeClient{temporal: f}, Namespace: "default"}
}

func (c fakeClient) WorkflowService() workflowservice.WorkflowServiceClient { return c.temporal }

// DescribeWorkflowExecution finds the attempts that lanes have given out, and of others the first.
func (c fakeClient) DescribeWorkflowExecution(
	_ context.Context, workflowID, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	answer := &workflowservice.DescribeWorkflowExecutionResponse{}
	if c.temporal.hasIt == "" || c.temporal.away != nil {
		return answer, c.temporal.away
	}
	details, err := converter.GetDefaultDataConverter().ToPayloads(contract.AttemptReport{Hub: c.temporal.hasIt})
	for _, id := range append(c.temporal.pending[workflowID], contract.AttemptActivityID("t", 1)) {
		answer.PendingActivities = append(answer.PendingActivities, &workflowpb.PendingActivityInfo{ActivityId: id,
			ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name},
			State:        enumspb.PENDING_ACTIVITY_STATE_STARTED, HeartbeatDetails: details,
			LastHeartbeatTime: timestamppb.New(c.temporal.seenAt)})
	}
	return answer, err
}

func (c fakeClient) SignalWorkflow(_ context.Context, id, _, _ string, arg any) error {
	<-time.After(c.temporal.slow)
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	switch told := arg.(type) {
	case contract.MembersChanged:
		c.temporal.changes = append(c.temporal.changes, told.Changes...)
		c.temporal.brake = told.Brake
	case contract.StatesChanged:
		c.temporal.states = append(c.temporal.states, told.Digests)
	case contract.None:
		c.temporal.woken = append(c.temporal.woken, id)
	case []contract.HealthReport:
		if c.temporal.deaf--; c.temporal.deaf >= 0 {
			return serviceerror.NewUnavailable("Temporal is away")
		}
		for _, r := range told {
			c.temporal.health = append(c.temporal.health, strings.TrimSpace(r.Task+" "+string(r.Health)))
		}
	default:
		return fmt.Errorf("the test knows no signal with a %T", arg)
	}
	return nil
}

// ListWorkflow finds the tasks that no agent could run.
func (c fakeClient) ListWorkflow(
	ctx context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	c.temporal.mu.Lock()
	backlog := c.temporal.backlog
	c.temporal.mu.Unlock()
	if backlog {
		<-ctx.Done()
		return nil, serviceerror.NewDeadlineExceeded("context deadline exceeded")
	}
	if !strings.Contains(r.GetQuery(), string(contract.TaskUnhandled)) {
		return answer, nil
	}
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	from, _ := strconv.Atoi(string(r.GetNextPageToken()))
	to := min(from+int(r.GetPageSize()), c.temporal.unhandled)
	for n := from; n < to; n++ {
		answer.Executions = append(answer.Executions, &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: fmt.Sprint("task/", n)}})
	}
	if to < c.temporal.unhandled {
		answer.NextPageToken = []byte(strconv.Itoa(to))
	}
	return answer, nil
}

// UpdateWorkflow joins agents: the same instance keeps its epoch, another gets the next.
func (c fakeClient) UpdateWorkflow(
	_ context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	if proof, died := o.Args[0].(cluster.DeathProof); died {
		c.temporal.deaths = append(c.temporal.deaths, proof)
		return fakeUpdate{fakeValue: fakeValue{nil}}, nil
	}
	if late, brought := o.Args[0].(contract.LateResultRequest); brought {
		if c.temporal.decided {
			return nil, serviceerror.NewNotFound("the task has ended")
		}
		c.temporal.late = append(c.temporal.late, late)
		return fakeUpdate{fakeValue: fakeValue{nil}}, nil
	}
	if empty, closes := o.Args[0].([]cluster.OpenLane); closes {
		c.temporal.lanes.CloseAgentLanes(empty)
		return fakeUpdate{fakeValue: fakeValue{c.temporal.openLanes()}}, nil
	}
	clusterName, _ := contract.ClusterOfWorkflowID(o.WorkflowID)
	if missing, judges := o.Args[0].(contract.Missing); judges {
		if c.temporal.unjudged {
			return nil, serviceerror.NewUnavailable("no worker")
		}
		c.temporal.missed = append(c.temporal.missed, missing.Agents)
		return fakeUpdate{fakeValue: fakeValue{c.temporal.direct[clusterName]}}, nil
	}
	request := o.Args[0].(contract.JoinRequest)
	c.temporal.joins = append(c.temporal.joins, request)
	response := contract.JoinResponse{}
	if directive := c.temporal.direct[clusterName]; !directive.Is(request.Knows) {
		response.Directive = &directive
	}
	for _, j := range request.Joins {
		if c.temporal.refuse != "" {
			response.Results = append(response.Results, cluster.Joined{AgentID: j.AgentID, Refused: c.temporal.refuse})
			continue
		}
		joined := c.temporal.epochs[j.AgentID]
		if joined.Replaced != j.Instance {
			joined = cluster.Joined{AgentID: j.AgentID, Epoch: joined.Epoch + 1, Replaced: j.Instance}
		}
		c.temporal.epochs[j.AgentID] = joined
		response.Results = append(response.Results, joined)
	}
	if c.temporal.unanswered--; c.temporal.unanswered >= 0 {
		return nil, serviceerror.NewUnavailable("Temporal is away")
	}
	return fakeUpdate{fakeValue: fakeValue{response}}, nil
}

// QueryWorkflowWithOptions answers with the cluster c.
func (c fakeClient) QueryWorkflowWithOptions(
	_ context.Context, r *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	if cluster, _ := contract.ClusterOfWorkflowID(r.WorkflowID); cluster == c.temporal.silent {
		return nil, serviceerror.NewWorkflowNotReady("its workflow task fails")
	}
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: fakeValue{contract.ClusterView{
		Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}, Members: c.temporal.members}}}}, nil
}

// QueryWorkflow answers which lanes are open.
func (c fakeClient) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	c.temporal.mu.Lock()
	defer c.temporal.mu.Unlock()
	if c.temporal.unasked--; c.temporal.unasked >= 0 {
		return nil, serviceerror.NewUnavailable("no worker")
	}
	return fakeValue{c.temporal.openLanes()}, nil
}

func (f *fakeTemporal) openLanes() contract.AgentLanes {
	return contract.AgentLanes{CreatedAt: f.direct["c"].CreatedAt, Version: f.lanes.LanesVersion,
		Open: slices.Clone(f.lanes.OpenLanes)}
}

// fakeValue is an answer of a workflow.
type fakeValue struct{ value any }

func (v fakeValue) HasValue() bool { return true }

func (v fakeValue) Get(into any) error {
	data, err := json.Marshal(v.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

type fakeUpdate struct {
	client.WorkflowUpdateHandle
	fakeValue
}

func (u fakeUpdate) Get(_ context.Context, into any) error { return u.fakeValue.Get(into) }

// bench is a hub on a fakeTemporal, in a bubble where time passes when everybody waits.
type bench struct {
	*Hub
	activities
	endpoints
	t        *testing.T
	temporal *fakeTemporal
	registry *prometheus.Registry
}

// testTiming is the timing of hubs in tests; the tests count on its numbers.
var testTiming = cluster.Timing{HeartbeatInterval: 5 * time.Second, CrowdInterval: 5 * time.Second,
	WarningThreshold: 10 * time.Second, FailureThreshold: 15 * time.Second, DisconnectGrace: time.Second}

// inBubble runs a test with a hub whose detector runs and whose lease is always fresh. The lanes of the agents a and b
// are open.
func inBubble(t *testing.T, config Config, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	config.Timing = cmp.Or(config.Timing, testTiming)
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, temporal: newFakeTemporal(), registry: prometheus.NewRegistry()}
		var err error
		b.Hub, err = New(Options{ID: "hub-1", Store: fakeStore(b.temporal),
			Registerer: b.registry, Key: []byte("0123456789abcdef"), Config: config})
		require.NoError(t, err)
		b.activities, b.endpoints = activities{b.Hub}, endpoints{b.Hub}
		b.lease.Renewed(time.Now().Add(24 * time.Hour))
		b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActiveActive}
		b.ownLanes.open["c"] = &openLanes{asked: map[string]int64{"a": 1, "b": 1}}
		b.start(detector{b.Hub}, b.logs)
		defer func() {
			b.Stop(t.Context())
			require.Zero(t, b.temporal.cut, "a lane poll was cancelled: it could have swallowed a task")
		}()
		test(t, b)
	})
}

// pass lets time pass, and everything that happens in it happen.
func (b *bench) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// peer is an agent from the hub's side: its requests.
type peer struct {
	b      *bench
	claims sessionClaims
	conn   *connection
	seq    int64
}

// register registers an agent of the cluster c with some slots.
func (b *bench) register(id string, slots int, change ...func(*protocol.Register)) *peer {
	b.t.Helper()
	reg := protocol.Register{AgentID: id, InstanceID: id + "-instance", Cluster: "c",
		AgentProfile: api.AgentProfile{MaxTasks: slots}}
	for _, c := range change {
		c(&reg)
	}
	answer, err := b.openSession(b.t.Context(), reg, cluster.JoinToken{}, false)
	require.NoError(b.t, err)
	claims, err := b.seal.openSession(answer.SessionToken)
	require.NoError(b.t, err)
	require.Equal(b.t, sessionClaims{Hub: "hub-1", Agent: id, Cluster: "c", Instance: reg.InstanceID,
		Epoch: answer.Epoch}, claims)
	synctest.Wait()
	return &peer{b: b, claims: claims, conn: &connection{}}
}

// answered is the answer to a poll.
type answered struct {
	protocol.Polled
	err error
}

// poll sends the next poll. It returns when the hub has taken it; the channel has the answer.
func (p *peer) poll(change ...func(*protocol.Poll)) <-chan answered {
	p.seq++
	return p.pollAs(p.b.t.Context(), p.seq, change...)
}

func (p *peer) pollAs(ctx context.Context, seq int64, change ...func(*protocol.Poll)) <-chan answered {
	poll := protocol.Poll{Sequence: seq}
	for _, c := range change {
		c(&poll)
	}
	answers := make(chan answered, 1)
	go func() {
		polled, err := p.b.holdPoll(ctx, p.claims, p.conn, poll)
		answers <- answered{polled, err}
	}()
	synctest.Wait()
	return answers
}

// settled settles an attempt of an agent that has reported its end.
func (b *bench) settled(c sessionClaims, key attemptKey, outcome api.AttemptOutcome) {
	b.settle(&attemptClaims{Task: key.task, Attempt: key.number, Agent: c.Agent, Instance: c.Instance}, c.Cluster,
		&protocol.Result{Outcome: outcome}, &contract.AttemptReport{Outcome: outcome})
}

// cancelAttempt cancels an attempt as the server's command does.
func (b *bench) cancelAttempt(a *attempt) { facts{b.Hub}.cancel(a.Temporal) }

// session is the hub's side of it; nil when it has ended.
func (p *peer) session() *session {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return p.b.sessions[p.claims.Agent]
}

// hangUp closes the agent's connection.
func (p *peer) hangUp() {
	p.b.mu.Lock()
	if s := p.b.sessions[p.claims.Agent]; s != nil && s.link.conn == p.conn {
		p.b.disconnectedLocked(s, time.Now())
	}
	p.b.mu.Unlock()
	p.conn = &connection{}
	synctest.Wait()
}

// lists makes a poll list attempts as running.
func lists(assignments ...protocol.Assignment) func(*protocol.Poll) {
	return func(p *protocol.Poll) {
		for _, a := range assignments {
			p.Running = append(p.Running, protocol.RunningAttempt{TaskID: a.TaskID, Attempt: a.Attempt, Token: a.Token})
		}
	}
}

// aTask is a task for a lane's poll; its token is its id.
func aTask(id string, change ...func(*contract.RunTaskInput)) contract.RunTaskInput {
	in := contract.RunTaskInput{TaskID: id, Attempt: 1, Spec: api.TaskSpec{Type: "echo", Cluster: "c"}}
	for _, c := range change {
		c(&in)
	}
	return in
}

func safety(s api.RetrySafety) func(*contract.RunTaskInput) {
	return func(in *contract.RunTaskInput) { in.Spec.RetrySafety = s }
}

// queue answers an open poll of a lane with a task.
func (b *bench) queue(lane string, in contract.RunTaskInput) {
	b.t.Helper()
	input, err := converter.GetDefaultDataConverter().ToPayloads(in)
	require.NoError(b.t, err)
	b.temporal.mu.Lock()
	open := b.temporal.polls[lane]
	require.NotEmpty(b.t, open, "no poll is open on %s", lane)
	b.temporal.polls[lane] = open[1:]
	workflowID, _ := contract.Locate(in.TaskID)
	b.temporal.pending[workflowID] = append(b.temporal.pending[workflowID],
		contract.AttemptActivityID(in.TaskID, in.Attempt))
	open[0].answer <- &workflowservice.PollActivityTaskQueueResponse{TaskToken: []byte(in.TaskID +
		"/" + strconv.Itoa(in.Attempt)), Input: input}
	b.temporal.mu.Unlock()
	synctest.Wait()
}

// open is how many polls are open on a lane.
func (b *bench) open(lane string) int {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	return len(b.temporal.polls[lane])
}

// reported are the attempts that ended, in order.
func (b *bench) reported() []report {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	return slices.Clone(b.temporal.reports)
}

// changed returns the transitions that clusters got, in order.
func (b *bench) changed() []cluster.Transition {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	return slices.Clone(b.temporal.changes)
}

// brakeTold returns the state of the hub's brake by its last signal to the cluster.
func (b *bench) brakeTold() *cluster.BrakeHold {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	return b.temporal.brake
}

// give has an agent given and accept a task on the cluster's lane.
func (p *peer) give(in contract.RunTaskInput) protocol.Assignment {
	p.b.t.Helper()
	answer := p.poll()
	p.b.queue("lane/c", in)
	got := <-answer
	require.NoError(p.b.t, got.err)
	require.Len(p.b.t, got.Assignments, 1)
	p.poll(lists(got.Assignments[0]))
	return got.Assignments[0]
}

// hasWorked makes it an agent that has had work, so that its loss counts for the brake.
func (p *peer) hasWorked() {
	p.b.mu.Lock()
	p.b.sessions[p.claims.Agent].work.ever = true
	p.b.mu.Unlock()
}

// counted is the sum of a counter's values.
func (b *bench) counted(name string) (sum float64) {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
