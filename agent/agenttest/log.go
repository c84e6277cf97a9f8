package agenttest

import (
	"net/http"
	"slices"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// logs are the log lines that the agent sent, and whether more are wanted.
type logs struct {
	lines    map[attemptKey][]fleet.LogLine
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
		if line.Number < 1 || line.At.IsZero() || len(line.Text) > fleet.MaxLogLineBytes || i > 0 &&
			line.Number <= log.Lines[i-1].Number {
			h.violation(w, "a log line needs a number greater than the one before, a time, and at most 4 KiB of text")
			return
		}
	}
	if len(log.Lines) > fleet.MaxLogLines || size > fleet.MaxLogBytes {
		h.violation(w, "a log has more than 500 lines or 64 KiB")
		return
	}
	key := attemptKey{r.PathValue("task_id"), log.Attempt}
	if h.logs.lines == nil {
		h.logs.lines = map[attemptKey][]fleet.LogLine{}
	}
	h.logs.lines[key] = append(h.logs.lines[key], log.Lines...)
	h.logs.requests++
	h.change()
	answer(w, protocol.LogTaken{Watching: !h.logs.unwanted})
}

// Lines returns the log lines of an attempt as they came, with repetitions.
func (h *Hub) Lines(taskID string, number int) []fleet.LogLine {
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
