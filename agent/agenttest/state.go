package agenttest

import (
	"net/http"

	"mainstay.dev/mainstay/protocol"
)

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
