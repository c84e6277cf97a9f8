package hub

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// FuzzOpenAttempt looks for a token that opens and is not the one token that was sealed.
func FuzzOpenAttempt(f *testing.F) {
	sealed, err := base64.RawURLEncoding.DecodeString(attemptSealed)
	require.NoError(f, err)
	for _, seed := range []string{"", sessionSealed, attemptSealed, attemptSealed[:20], "e30", attemptSealed + "A"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := ours.openAttempt(token); err != nil {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		require.NoError(t, err)
		require.Equal(t, sealed, raw, "a token that was never sealed opened")
	})
}

// wired is a hub behind its HTTP routes, with one session and an attempt in it.
type wired struct {
	handler http.Handler
	session string
	attempt string
}

func wire(f testing.TB) wired {
	f.Helper()
	temporal := newFakeTemporal()
	temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActiveActive}
	temporal.epochs["a"] = cluster.Joined{AgentID: "a", Epoch: 1, Replaced: "a-instance"}
	timing := testTiming
	timing.HeartbeatInterval, timing.CrowdInterval = time.Millisecond, time.Millisecond // polls are held no longer
	h, err := New(Options{ID: "hub-1", Store: fakeStore(temporal),
		Key: []byte("0123456789abcdef"), Config: Config{Timing: timing}})
	require.NoError(f, err)
	f.Cleanup(func() { h.Stop(f.Context()) })
	s := httpapi.New(httpapi.Options{})
	h.Register(s.API())
	w := wired{handler: s.Handler()}
	w.attempt = h.seal.attempt(attemptClaims{Task: "t1", Attempt: 1, Agent: "a", Instance: "a-instance", Epoch: 1,
		Lane: "lane/c", Temporal: []byte("t1/1")})
	registered,
		err := endpoints{h}.openSession(f.Context(), protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
		AgentProfile: api.AgentProfile{MaxTasks: 1},
		Running:      []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: w.attempt}}}, cluster.JoinToken{}, false)
	require.NoError(f, err)
	w.session = registered.SessionToken
	return w
}

// send sends a body and checks the answer: one of the protocol's statuses, a problem with a code unless it is a
// success, and never an internal error.
func (w wired) send(t *testing.T, path, body string) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.session)
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	require.Contains(t, []int{200, 400, 401, 404, 409, 413, 422}, answer.Code, answer.Body.String())
	if answer.Code == http.StatusOK {
		require.True(t, json.Valid(answer.Body.Bytes()))
		return
	}
	var p protocol.Problem
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &p))
	require.NotEmpty(t, p.Code)
	require.NotEmpty(t, p.Detail)
}

func path(pattern string) string {
	return strings.NewReplacer("{id}", "a", "{task_id}", "t1").Replace(pattern)
}

func text(f *testing.F, body any) string {
	data, err := json.Marshal(body)
	require.NoError(f, err)
	return string(data)
}

// oddBodies are seeds for every request.
var oddBodies = []string{"", "null", "[]", "{}", `{"":0}`, "{\"a\":", `{"sequence":1e400}`,
	`{"sequence":-9223372036854775808}`, "\xff", strings.Repeat("[", 10_000)}

func FuzzRegister(f *testing.F) {
	w := wire(f)
	until := time.Unix(1_800_000_000, 0).UTC()
	for _, seed := range append(slices.Clone(oddBodies), text(f, protocol.Register{
		AgentID:    "a",
		InstanceID: "a-instance",
		Cluster:    "c",
		AgentProfile: api.AgentProfile{MaxTasks: 2, TaskTypes: []string{"echo"},
			Capabilities: []string{"gpu", "gpu"}},
		Providers: api.Providers{"llm": {Available: true, RateLimitedUntil: &until}},
		Running: []protocol.RunningAttempt{{TaskID: "t1", Attempt: 1, Token: w.attempt},
			{TaskID: "t2", Attempt: -1, Token: "x"}}})) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { w.send(t, protocol.RegisterPath, body) })
}

func FuzzPoll(f *testing.F) {
	w := wire(f)
	age := api.Duration(-time.Hour)
	for _, seed := range append(slices.Clone(oddBodies), text(f, protocol.Poll{
		Sequence:  9,
		Answered:  new(int64(8)),
		Providers: api.Providers{"llm": {}},
		Returned:  []protocol.RunningAttempt{{TaskID: "t3"}},
		Running: []protocol.RunningAttempt{
			{TaskID: "t1", Attempt: 1, Beacons: -1, BeaconAge: &age, State: protocol.RunningStuck,
				Progress: &api.Progress{Percent: 50, Message: "on"}, Checkpoint: json.RawMessage(`{"a":1}`)},
			{TaskID: "t1", Attempt: 1}, {TaskID: "t9", Attempt: 1, State: protocol.RunningEnding}}})) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { w.send(t, path(protocol.PollPath), body) })
}

func FuzzResult(f *testing.F) {
	w := wire(f)
	now := time.Unix(1_800_000_000, 0).UTC()
	for _, seed := range append(slices.Clone(oddBodies),
		text(f, protocol.Result{Token: w.attempt, Attempt: 1, Outcome: api.AttemptTimedOut, Stuck: true,
			StartedAt: now, EndedAt: now}),
		text(f, protocol.Result{Token: w.attempt, Attempt: 1, Outcome: api.AttemptCompleted,
			Output: json.RawMessage(`[1]`), StartedAt: now})) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { w.send(t, path(protocol.ResultPath), body) })
}

func FuzzLog(f *testing.F) {
	w := wire(f)
	for _, seed := range append(slices.Clone(oddBodies), text(f, protocol.Log{Attempt: 1, Lines: []api.LogLine{
		{Number: 2, At: time.Unix(1_800_000_000, 0).UTC(), Stream: "stdout", Text: "b"}, {Number: 1,
			Text: "\x00"}, {Number: -1 << 63}}})) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { w.send(t, path(protocol.LogPath), body) })
}

func FuzzState(f *testing.F) {
	w := wire(f)
	ref := api.StateRef{Section: api.StateConfiguration, Key: "k"}
	version := api.StateVersion{Epoch: 1, Number: 2}
	for _, seed := range append(slices.Clone(oddBodies), text(f, protocol.StateReport{
		Request:    "r",
		State:      api.StateSummary{Digest: api.EmptyState},
		CapturedAt: time.Unix(1_800_000_000, 0).UTC(),
		Manifest:   []api.StateLine{{StateRef: ref, StateVersion: version, Digest: "00112233", Size: 3}},
		Entries: []api.StateEntry{{StateRef: ref, StateVersion: version, Value: json.RawMessage(`"<"`),
			Digest: "00112233"}, {StateRef: ref, StateVersion: version, Removed: true}}})) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { w.send(t, path(protocol.StatePath), body) })
}

// A body over its limit is answered as that, whichever request it is.
func TestBodiesOverTheirLimits(t *testing.T) {
	t.Parallel()
	w := wire(t)
	for target, limit := range map[string]int{
		protocol.RegisterPath: maxRegisterBytes, path(protocol.PollPath): maxPollBytes,
		path(protocol.ResultPath): 2 * api.MaxPayloadBytes, path(protocol.LogPath): maxLogBytes,
		path(protocol.StatePath): maxStateBytes,
	} {
		for _, over := range []int{0, 1} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target,
				strings.NewReader("{"+strings.Repeat(" ", limit-2+over)+"}"))
			r.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			w.handler.ServeHTTP(answer, r)
			require.Equal(t, over == 1, answer.Code == http.StatusRequestEntityTooLarge, "%s: %s", target, answer.Body)
			var p protocol.Problem
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &p))
			require.Equal(t, over == 1, p.Code == protocol.CodePayloadTooLarge)
		}
	}
}
