//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// wireMode is what the network between one agent and the hubs does.
type wireMode string

const (
	wireGood   wireMode = ""
	wireCut    wireMode = "cut"    // connections are reset and new ones refused
	wireHole   wireMode = "hole"   // nothing arrives and nothing is closed
	wireDeaf   wireMode = "deaf"   // requests arrive, answers do not: each call "may have happened"
	wireDouble wireMode = "double" // assignments and results arrive twice
)

// wire is the network between one agent and the hubs: a proxy that understands the agent protocol. Connections to the
// hubs are closed when the agent's are, so that hubs see what happens to the agent.
type wire struct {
	targets   []string // base URLs of the hubs; the agent reaches hub i under /i
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	slots     int // of the agent

	mu       sync.Mutex
	mode     wireMode
	ill      api.HealthLevel // how the agent's host and handlers seem to be; empty: well
	changed  chan struct{}   // closed when mode changes
	conns    map[net.Conn]struct{}
	again    map[string]json.RawMessage // assignments to send once more, by token
	results  []capturedResult
	assigned []protocol.Assignment // all that the agent was sent
	acked    map[string]int64      // when a hub accepted that elements completed, by their task ids
	doubled  int                   // results that a hub got twice
	repeated int                   // assignments that the agent got twice
}

// capturedResult is a result as an agent sent it.
type capturedResult struct {
	target, path, token string
	body                []byte
}

// newWire makes the network of one agent. It listens where the agent can reach it.
func newWire(t testing.TB, targets []string, slots int, listener net.Listener) *wire {
	w := &wire{targets: targets, slots: slots, listener: listener, changed: make(chan struct{}),
		conns: map[net.Conn]struct{}{}, again: map[string]json.RawMessage{}, acked: map[string]int64{},
		transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext,
			MaxIdleConnsPerHost: 4}}
	w.server = &http.Server{Handler: http.HandlerFunc(w.serve), ConnState: w.connState, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.server.Serve(listener) }()
	t.Cleanup(func() {
		_ = w.server.Close()
		w.transport.CloseIdleConnections()
	})
	return w
}

// urls are the hubs as the agent knows them.
func (w *wire) urls() []string {
	var urls []string
	for i := range w.targets {
		urls = append(urls, "http://"+w.listener.Addr().String()+"/"+string(rune('0'+i)))
	}
	return urls
}

func (w *wire) set(mode wireMode) {
	w.mu.Lock()
	w.mode = mode
	close(w.changed)
	w.changed = make(chan struct{})
	var closing []net.Conn
	if mode == wireCut {
		for c := range w.conns {
			closing = append(closing, c)
		}
	}
	w.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}

func (w *wire) now() (wireMode, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode, w.changed
}

func (w *wire) connState(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	switch state {
	case http.StateNew:
		w.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(w.conns, c)
	}
	w.mu.Unlock()
	if state == http.StateClosed {
		w.transport.CloseIdleConnections()
	}
}

func (w *wire) serve(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || len(r.URL.Path) < 2 || !w.through(r.Context()) {
		hangUp(out)
		return
	}
	target, path := w.targets[r.URL.Path[1]-'0'], r.URL.Path[2:]
	if strings.HasSuffix(path, "/poll") {
		body = w.hosted(body)
	}
	isResult := strings.HasSuffix(path, "/result")
	answer, status, err := w.send(r.Context(), r.Method, target+path, r.Header.Get("Authorization"), body)
	if err == nil && isResult {
		if status == http.StatusOK {
			w.acknowledge(path, body)
		}
		w.capture(r.Context(), capturedResult{target, path, r.Header.Get("Authorization"), body})
	}
	if mode, _ := w.now(); err != nil || mode == wireDeaf || !w.through(r.Context()) {
		hangUp(out)
		return
	}
	if strings.HasSuffix(path, "/poll") && status == http.StatusOK {
		answer = w.repeat(answer)
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_, _ = out.Write(answer)
}

// setHost sets how the agent's host and handlers seem to be.
func (w *wire) setHost(level api.HealthLevel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ill = level
}

// hosted gives the agent a host of its own: all agents share this machine, which a run keeps busy, and that must not
// count as theirs. A host in warning has a full disk; at critical all the agent's slots are kept by handlers that do
// not stop.
func (w *wire) hosted(body []byte) []byte {
	var poll protocol.Poll
	if json.Unmarshal(body, &poll) != nil {
		return body
	}
	w.mu.Lock()
	level := w.ill
	w.mu.Unlock()
	poll.Metrics = protocol.Metrics{CPUPercent: new(10.), MemoryPercent: new(20.), DiskPercent: new(30.)}
	switch level {
	case api.HealthWarning:
		poll.Metrics.DiskPercent = new(100.)
	case api.HealthCritical:
		for i := range w.slots {
			poll.Running = append(poll.Running, protocol.RunningAttempt{TaskID: fmt.Sprintf("hung-%d", i), Attempt: 1,
				State: protocol.RunningStuck})
		}
	}
	hosted, err := json.Marshal(poll)
	if err != nil {
		return body
	}
	return hosted
}

// through waits until the network lets something pass. False: it never will.
func (w *wire) through(ctx context.Context) bool {
	for {
		mode, changed := w.now()
		switch mode {
		case wireCut:
			return false
		case wireHole:
			select {
			case <-changed:
			case <-ctx.Done():
				return false
			}
		default:
			return ctx.Err() == nil
		}
	}
}

func (w *wire) send(ctx context.Context, method, url, authorization string, body []byte) ([]byte, int, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return answer, response.StatusCode, err
}

// capture keeps a result for a later replay, and sends it a second time at once while things arrive twice.
func (w *wire) capture(ctx context.Context, c capturedResult) {
	w.mu.Lock()
	w.results = append(w.results, c)
	double := w.mode == wireDouble
	if double {
		w.doubled++
	}
	w.mu.Unlock()
	if double {
		_, _, _ = w.send(ctx, http.MethodPost, c.target+c.path, c.token, c.body)
	}
}

// replay sends every captured result once more and returns how many were refused and how many were accepted.
func (w *wire) replay(ctx context.Context, most int) (refused, accepted int) {
	w.mu.Lock()
	results := w.results[max(0, len(w.results)-most):]
	w.mu.Unlock()
	for _, c := range results {
		_, status, err := w.send(ctx, http.MethodPost, c.target+c.path, c.token, c.body)
		switch {
		case err != nil:
		case status == http.StatusOK:
			accepted++
		case status == http.StatusConflict:
			refused++
		}
	}
	return refused, accepted
}

// repeat adds the assignments of earlier answers to this one while things arrive twice.
func (w *wire) repeat(answer []byte) []byte {
	var polled map[string]json.RawMessage
	var assignments []json.RawMessage
	if json.Unmarshal(answer, &polled) != nil {
		return answer
	}
	_ = json.Unmarshal(polled["assignments"], &assignments)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range assignments {
		var one protocol.Assignment
		if json.Unmarshal(a, &one) == nil {
			w.assigned = append(w.assigned, one)
		}
	}
	if w.mode != wireDouble {
		clear(w.again)
		return answer
	}
	fresh := len(assignments)
	for token := range maps.Keys(w.again) {
		assignments = append(assignments, w.again[token])
		delete(w.again, token)
		w.repeated++
	}
	for i, a := range assignments[:fresh] {
		w.again[w.assigned[len(w.assigned)-fresh+i].Token] = a
	}
	if len(assignments) == fresh {
		return answer
	}
	list, err := json.Marshal(assignments)
	if err != nil {
		return answer
	}
	polled["assignments"] = list
	whole, err := json.Marshal(polled)
	if err != nil {
		return answer
	}
	return whole
}

// hangUp closes the connection without an answer.
func hangUp(out http.ResponseWriter) {
	if c, _, err := out.(http.Hijacker).Hijack(); err == nil {
		_ = c.Close()
	}
}
