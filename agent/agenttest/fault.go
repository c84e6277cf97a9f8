package agenttest

import (
	"net/http"
)

// Op is one of the protocol's requests.
type Op string

// The requests that can be made to fail.
const (
	OpRegister Op = "register"
	OpResume   Op = "resume"
	OpPoll     Op = "poll"
	OpResult   Op = "result"
	OpGoodbye  Op = "goodbye"
	OpLog      Op = "log"
	// OpResultAnswer lets the hub take a result and then close the connection without an answer.
	OpResultAnswer Op = "result_answer"
)

// Fault describes how one request fails. The zero Fault closes the connection without an answer.
type Fault struct {
	Status int
	Code   string // "" answers without a problem body, as a proxy does
}

// Fail makes the next requests of a kind fail, one for each fault.
func (h *Hub) Fail(op Op, faults ...Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[op] = append(h.faults[op], faults...)
}

// fault carries out the next fault of a request, if there is one.
func (h *Hub) fault(w http.ResponseWriter, op Op) bool {
	h.mu.Lock()
	f := h.takeFault(op)
	h.mu.Unlock()
	switch {
	case f == nil:
		return false
	case f.Status == 0:
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close a connection without an answer
	case f.Code == "":
		http.Error(w, "bad gateway", f.Status)
	default:
		problem(w, f.Status, f.Code, "the test asked for it")
	}
	return true
}

// takeFault removes the next fault. The mutex is held.
func (h *Hub) takeFault(op Op) *Fault {
	waiting := h.faults[op]
	if len(waiting) == 0 {
		return nil
	}
	h.faults[op] = waiting[1:]
	h.change()
	return &waiting[0]
}

// FaultsLeft counts the faults that have not happened yet.
func (h *Hub) FaultsLeft(op Op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.faults[op])
}
