package agenttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// maxBody bounds what the fake hub reads, in bytes.
const maxBody = 8 << 20

func (h *Hub) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+protocol.RegisterPath, h.serveRegister)
	mux.HandleFunc("POST "+protocol.PollPath, h.servePoll)
	mux.HandleFunc("POST "+protocol.ResultPath, h.serveResult)
	mux.HandleFunc("POST "+protocol.LogPath, h.serveLog)
	mux.HandleFunc("POST "+protocol.StatePath, h.serveState)
	mux.HandleFunc("POST "+protocol.SessionPath, h.serveResume)
	mux.HandleFunc("DELETE "+protocol.SessionPath, h.serveGoodbye)
	mux.HandleFunc("GET "+protocol.ReadyPath, h.serveReady)
	return mux
}

func (h *Hub) serveRegister(w http.ResponseWriter, r *http.Request) {
	var reg protocol.Register
	if !h.read(w, r, &reg) || h.fault(w, OpRegister) {
		return
	}
	switch {
	case len(reg.InstanceID) < 8 || reg.MaxTasks < 1:
		h.violation(w, "register needs an instance_id of 8 characters or more and max_tasks")
		return
	case api.ValidateID("agent_id", reg.AgentID) != nil, api.ValidateID("cluster", reg.Cluster) != nil:
		h.violation(w, "register with an agent_id or cluster that is not a slug")
		return
	}
	for _, running := range reg.Running {
		if running.Token == "" {
			h.violation(w, "register lists a running attempt without its token")
			return
		}
	}
	if strings.HasPrefix(r.Header.Get(protocol.SessionHeader), "session-") {
		h.mu.Lock()
		h.proven++
		h.mu.Unlock()
	}
	h.open(w, reg)
}

// serveResume opens a session for the holder of an older session of the same process.
func (h *Hub) serveResume(w http.ResponseWriter, r *http.Request) {
	var reg protocol.Register
	if !h.read(w, r, &reg) || h.fault(w, OpResume) {
		return
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer session-") || reg.AgentID != r.PathValue("id") {
		problem(w, http.StatusUnauthorized, protocol.CodeUnauthorized,
			"the session token is missing, forged or another agent's")
		return
	}
	h.open(w, reg)
}

// open opens a session.
func (h *Hub) open(w http.ResponseWriter, reg protocol.Register) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fenced[reg.InstanceID] {
		problem(w, http.StatusConflict, protocol.CodeFenced, "a newer process has this agent id")
		return
	}
	epoch := int64(1)
	if old := h.session; old != nil {
		old.gone = true
		epoch = old.epoch
		if old.instance != reg.InstanceID {
			old.fenced = true
			h.fenced[old.instance] = true
			epoch++
			h.attempts = map[attemptKey]*attempt{}
		}
	}
	h.sessions++
	h.session = &session{token: fmt.Sprintf("session-%d", h.sessions), agent: reg.AgentID, instance: reg.InstanceID,
		epoch: epoch, answerNow: len(reg.Running) > 0}
	for _, running := range reg.Running {
		key := attemptKey{running.TaskID, running.Attempt}
		if h.attempts[key] == nil {
			h.attempts[key] = &attempt{assignment: protocol.Assignment{TaskID: running.TaskID, Attempt: running.Attempt,
				Token: running.Token}}
		}
		h.attempts[key].accepted = true
	}
	h.registers = append(h.registers, reg)
	h.change()
	answer(w, protocol.Registered{
		SessionToken:      h.session.token,
		Epoch:             epoch,
		HubID:             "fake",
		HeartbeatInterval: api.Duration(h.options.HeartbeatInterval),
		FailureThreshold:  api.Duration(3 * h.options.HeartbeatInterval), Lease: api.Duration(h.options.Lease),
	})
}

func (h *Hub) servePoll(w http.ResponseWriter, r *http.Request) {
	var poll protocol.Poll
	if !h.read(w, r, &poll) || h.fault(w, OpPoll) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.authorize(w, r)
	if s == nil {
		return
	}
	if poll.Sequence <= s.sequence { // sent before a newer one, on another connection
		if poll.Sequence == s.sequence {
			h.t.Errorf("agenttest: the agent broke the protocol: two polls of a session have the same sequence")
		}
		answer(w, protocol.Polled{})
		return
	}
	s.sequence = poll.Sequence
	if why := h.take(poll); why != "" {
		h.t.Errorf("agenttest: the agent broke the protocol: %s", why)
	}
	h.polls = append(h.polls, poll)
	h.change()

	hold := time.NewTimer(h.options.HeartbeatInterval)
	defer hold.Stop()
	for held := true; ; {
		switch {
		case s.gone && s.fenced:
			problem(w, http.StatusConflict, protocol.CodeFenced, "a newer process has this agent id")
			return
		case s.gone:
			problem(w, http.StatusConflict, protocol.CodeUnknownSession, "register again")
			return
		case s.sequence != poll.Sequence: // a newer poll supersedes this one
			answer(w, protocol.Polled{})
			return
		case len(h.outbox) > 0 && !poll.Stopping, len(h.commands) > 0, s.answerNow, !held:
			s.answerNow = false
			h.say(w, poll)
			return
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-hold.C:
			held = false
		case <-r.Context().Done():
			h.mu.Lock()
			return
		}
		h.mu.Lock()
	}
}

// take applies a poll as a hub does. Attempts that it lists are accepted. A delivery that it does not list never
// arrived, so it is sent again. It returns how the poll breaks the protocol, or "". The mutex is held.
func (h *Hub) take(poll protocol.Poll) string {
	listed := map[attemptKey]bool{}
	for _, running := range poll.Running {
		key := attemptKey{running.TaskID, running.Attempt}
		if listed[key] {
			return "an attempt is listed twice"
		}
		listed[key] = true
		at := h.attempts[key]
		if at == nil {
			continue
		}
		if !at.accepted && running.Token != at.assignment.Token {
			return "the first poll that lists an attempt must have its token"
		}
		at.accepted = true
	}
	for _, back := range poll.Returned {
		key := attemptKey{back.TaskID, back.Attempt}
		if at := h.attempts[key]; at != nil && at.accepted {
			return "an attempt was handed back that had begun"
		}
		delete(h.attempts, key)
	}
	for key, at := range h.attempts {
		if !at.accepted && !listed[key] && at.deliveredIn > 0 && at.deliveredIn < poll.Sequence {
			delete(h.attempts, key)
			h.outbox = append(h.outbox, at.assignment)
		}
	}
	return ""
}

// say answers a poll with all assignments and commands. The mutex is held.
func (h *Hub) say(w http.ResponseWriter, poll protocol.Poll) {
	polled := protocol.Polled{Commands: h.commands, LeaseHeld: h.withhold}
	if lease := api.Duration(h.options.Lease); poll.Lease != 0 && poll.Lease != lease {
		polled.Lease = lease
	}
	h.commands = nil
	if !poll.Stopping {
		polled.Assignments, h.outbox = h.outbox, nil
	}
	for _, a := range polled.Assignments {
		key := attemptKey{a.TaskID, a.Attempt}
		if h.attempts[key] == nil {
			h.attempts[key] = &attempt{assignment: a, deliveredIn: poll.Sequence}
		}
	}
	answer(w, polled)
}

func (h *Hub) serveResult(w http.ResponseWriter, r *http.Request) {
	var result protocol.Result
	if !h.read(w, r, &result) || h.fault(w, OpResult) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer session-") {
		problem(w, http.StatusUnauthorized, protocol.CodeUnauthorized, "the session token is missing or forged")
		return
	}
	key := attemptKey{r.PathValue("task_id"), result.Attempt}
	at := h.attempts[key]
	if at == nil {
		at = h.forgotten[key]
	}
	switch {
	case !slices.Contains([]api.AttemptOutcome{api.AttemptCompleted, api.AttemptFailed, api.AttemptTimedOut,
		api.AttemptCancelled}, result.Outcome):
		h.violation(w, "a result's outcome must be completed, failed, timed_out or cancelled")
		return
	case result.StartedAt.IsZero() || result.EndedAt.IsZero():
		h.violation(w, "a result needs started_at and ended_at")
		return
	case at == nil:
		problem(w, http.StatusConflict, protocol.CodeSuperseded, "the attempt no longer counts")
		return
	case result.Token != at.assignment.Token:
		problem(w, http.StatusUnauthorized, protocol.CodeUnauthorized, "the attempt token is not the attempt's")
		return
	}
	delete(h.attempts, key)
	delete(h.forgotten, key)
	h.results = append(h.results, Reported{TaskID: key.task, Result: result})
	h.change()
	if h.takeFault(OpResultAnswer) != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close a connection without an answer
	}
	answer(w, protocol.ResultAccepted{Accepted: true})
}

// serveReady answers whether the hub is in touch with Temporal.
func (h *Hub) serveReady(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.withhold {
		problem(w, http.StatusServiceUnavailable, protocol.CodeUnavailable, "the hub has lost touch with Temporal")
		return
	}
	answer(w, struct{}{})
}

func (h *Hub) serveGoodbye(w http.ResponseWriter, r *http.Request) {
	if h.fault(w, OpGoodbye) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.authorize(w, r)
	if s == nil {
		return
	}
	s.gone = true
	h.session = nil
	h.goodbyes++
	h.change()
	w.WriteHeader(http.StatusNoContent)
}

// authorize finds the request's session, or answers with the problem. The mutex is held.
func (h *Hub) authorize(w http.ResponseWriter, r *http.Request) *session {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s := h.session
	switch {
	case token == "":
		problem(w, http.StatusUnauthorized, protocol.CodeUnauthorized, "the session token is missing")
	case s == nil || s.token != token || s.gone && !s.fenced:
		problem(w, http.StatusConflict, protocol.CodeUnknownSession, "register again with the same instance_id")
	case s.fenced:
		problem(w, http.StatusConflict, protocol.CodeFenced, "a newer process has this agent id")
	case s.agent != r.PathValue("id"):
		problem(w, http.StatusUnauthorized, protocol.CodeUnauthorized, "the session token is another agent's")
	default:
		return s
	}
	return nil
}

// read reads a body as strictly as a hub does.
func (h *Hub) read(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return false // the connection is gone
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		h.violation(w, fmt.Sprintf("%s: the body cannot be read: %v", r.URL.Path, err))
		return false
	}
	if r.Header.Get("Content-Type") != "application/json" {
		h.violation(w, r.URL.Path+": Content-Type must be application/json")
		return false
	}
	return true
}

// violation fails the test and answers as a hub does.
func (h *Hub) violation(w http.ResponseWriter, why string) {
	h.t.Errorf("agenttest: the agent broke the protocol: %s", why)
	problem(w, http.StatusUnprocessableEntity, protocol.CodeInvalidRequest, why)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(protocol.Problem{Title: http.StatusText(status), Status: status, Code: code,
		Detail: detail})
}

// logs are the log lines that the agent sent, and whether more are wanted.
type logs struct {
	lines    map[attemptKey][]api.LogLine
	requests int
	unwanted bool
}

func (h *Hub) serveLog(w http.ResponseWriter, r *http.Request) {
	var log protocol.Log
	if !h.read(w, r, &log) || h.fault(w, OpLog) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.authorize(w, r) == nil {
		return
	}
	size := 0
	for i, line := range log.Lines {
		size += len(line.Text)
		if line.Number < 1 || line.At.IsZero() || len(line.Text) > api.MaxLogLineBytes || i > 0 &&
			line.Number <= log.Lines[i-1].Number {
			h.violation(w, "a log line needs a number greater than the one before, a time, and at most 4 KiB of text")
			return
		}
	}
	if len(log.Lines) > api.MaxLogLines || size > api.MaxLogBytes {
		h.violation(w, "a log has more than 500 lines or 64 KiB")
		return
	}
	key := attemptKey{r.PathValue("task_id"), log.Attempt}
	if h.logs.lines == nil {
		h.logs.lines = map[attemptKey][]api.LogLine{}
	}
	h.logs.lines[key] = append(h.logs.lines[key], log.Lines...)
	h.logs.requests++
	h.change()
	answer(w, protocol.LogTaken{Watching: !h.logs.unwanted})
}

// Lines returns the log lines of an attempt as they came, with repetitions.
func (h *Hub) Lines(taskID string, number int) []api.LogLine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.logs.lines[attemptKey{taskID, number}])
}

// LogRequests counts the requests for log lines, also those without lines.
func (h *Hub) LogRequests() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logs.requests
}

// StopWatching makes the hub answer from now on that it wants no more lines.
func (h *Hub) StopWatching() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logs.unwanted = true
}

func (h *Hub) serveState(w http.ResponseWriter, r *http.Request) {
	var report protocol.StateReport
	if !h.read(w, r, &report) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.authorize(w, r) == nil {
		return
	}
	if err := report.State.Validate(); err != nil {
		h.violation(w, "a state report's summary: "+err.Error())
		return
	}
	for _, l := range report.Manifest {
		if err := l.Validate(); err != nil {
			h.violation(w, "a state report's manifest: "+err.Error())
			return
		}
	}
	for _, e := range report.Entries {
		if err := e.Validate(); err != nil {
			h.violation(w, "a state report's entry: "+err.Error())
			return
		}
	}
	h.states = append(h.states, report)
	h.change()
	answer(w, protocol.StateTaken{Awaited: true})
}

// WaitState waits for the answer to a command about the state.
func (h *Hub) WaitState(request string) protocol.StateReport {
	h.t.Helper()
	states := func() []protocol.StateReport { return copyOf(h, &h.states) }
	return waitFor(h, "the state for "+request, states, func(r protocol.StateReport) bool { return r.Request == request })
}
