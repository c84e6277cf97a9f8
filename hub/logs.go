package hub

import (
	"context"
	"slices"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

const (
	// logInterest is how long after a reading the agent goes on sending lines, and the hub keeps them for the next.
	logInterest = time.Minute
	// logAskAgain spaces the commands that ask an agent for its lines.
	logAskAgain = 10 * time.Second
	// logAnswer is how long an agent has to answer the first of them.
	logAnswer = 3 * time.Second
	// logGather is the least time of a reading that waited: what comes at once is one answer.
	logGather = 250 * time.Millisecond
	// logLook is how often a reading looks whether the attempt is still there.
	logLook = 200 * time.Millisecond
)

// logWatch is what the hub keeps of the log of one attempt while somebody reads it. The hub's mutex guards it.
type logWatch struct {
	agent    string
	tail     fleet.LogTail
	answered bool // the agent sent lines, or that there are none
	askedAt  time.Time
	until    time.Time
	changed  chan struct{} // closed and replaced when lines came
}

// readLog answers lines of an attempt's log that come after a number. It waits for a line, or until the attempt has ended
// or the time is over.
func (h *Hub) readLog(ctx context.Context, in contract.ReadLogInput) (contract.ReadLogResult, error) {
	key := attemptKey{in.TaskID, in.Attempt}
	begun := time.Now()
	look := time.NewTicker(logLook)
	defer look.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		w := h.watchLog(key, time.Now())
		if w == nil {
			return contract.ReadLogResult{Gone: true}, nil
		}
		result := contract.ReadLogResult{AgentID: w.agent, Lines: w.tail.After(in.After), Gone: h.attempt(key) == nil, Silent: !w.answered}
		passed, wait := time.Since(begun), in.Wait.Std()
		enough := len(result.Lines) > 0 && (in.After == 0 || passed >= min(logGather, wait))
		answered := w.answered || passed >= logAnswer
		if result.Gone || enough || passed >= wait && answered {
			return result, nil
		}
		changed := w.changed
		if len(result.Lines) > 0 {
			changed = nil // what comes at once is one answer
			look.Reset(max(time.Millisecond, min(logGather, wait)-passed))
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
		case <-h.run.Done():
		}
		h.mu.Lock()
		if ctx.Err() != nil || h.run.Err() != nil {
			return contract.ReadLogResult{AgentID: w.agent, Gone: true}, nil
		}
	}
}

// watchLog notes that somebody reads an attempt's log, and asks its agent for what is missing; nil when nothing of the
// attempt is here. The mutex is held.
func (h *Hub) watchLog(key attemptKey, now time.Time) *logWatch {
	w, a := h.watches[key], h.attempt(key)
	if w == nil && a == nil {
		return nil
	}
	if w == nil {
		w = &logWatch{agent: a.session.agent, changed: make(chan struct{})}
		h.watches[key] = w
	}
	w.until = now.Add(logInterest)
	if a != nil && now.Sub(w.askedAt) >= logAskAgain {
		w.askedAt = now
		a.session.command(protocol.Command{Type: protocol.CommandLog, TaskID: key.task, Attempt: key.number, After: w.tail.Last(), Hold: fleet.Duration(logInterest)})
	}
	return w
}

// attempt is the attempt, whichever session has it; nil when none has. The mutex is held.
func (h *Hub) attempt(key attemptKey) *attempt {
	for _, s := range h.sessions {
		if a := s.attempts[key]; a != nil {
			return a
		}
	}
	return nil
}

// forgetLogs drops what nobody reads any more. The mutex is held.
func (h *Hub) forgetLogs(now time.Time) {
	for key, w := range h.watches {
		if now.After(w.until) {
			delete(h.watches, key)
		}
	}
}

// takeLog takes lines that an agent sends because somebody reads them.
func (h *Hub) takeLog(_ context.Context, in *logInput) (*logOutput, error) {
	claims, err := h.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.find(claims)
	if err != nil {
		return nil, err
	}
	w := h.watches[attemptKey{in.TaskID, in.Body.Attempt}]
	if w == nil || w.agent != s.agent || time.Now().After(w.until) {
		return &logOutput{}, nil
	}
	slices.SortStableFunc(in.Body.Lines, func(a, b fleet.LogLine) int { return int(min(1, max(-1, a.Number-b.Number))) })
	for _, line := range in.Body.Lines {
		if line.Number > w.tail.Last() { // else it came before
			w.tail.Add(line)
		}
	}
	w.answered = true
	close(w.changed)
	w.changed = make(chan struct{})
	return &logOutput{Body: protocol.LogTaken{Watching: true}}, nil
}
