package spawner

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// lastWordsLimit bounds how much of a log is quoted.
const lastWordsLimit = 300

// Ends has the agents whose ends need no report. Its zero value is ready.
type Ends struct {
	mu       sync.Mutex
	asked    map[string]int  // by agent: calls of Terminate under way
	reported map[string]bool // by handle
}

// Ask records that an agent is being ended until done is called.
func (e *Ends) Ask(id string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]int{}
	}
	e.asked[id]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.asked[id]--; e.asked[id] == 0 {
			delete(e.asked, id)
		}
	}
}

// Take reports whether the end of an agent is to be reported: nobody asked for it, and it was not reported before.
// handle names the agent on its platform.
func (e *Ends) Take(id, handle string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked[id] > 0 || e.reported[handle] {
		return false
	}
	e.mark(handle)
	return true
}

// Mark records that the end of a handle needs no report.
func (e *Ends) Mark(handle string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mark(handle)
}

func (e *Ends) mark(handle string) {
	if e.reported == nil {
		e.reported = map[string]bool{}
	}
	e.reported[handle] = true
}

// Retain forgets all handles but these.
func (e *Ends) Retain(handles map[string]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.reported, func(handle string, _ bool) bool { return !handles[handle] })
}

// Forget drops the record of a handle that is gone.
func (e *Ends) Forget(handle string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.reported, handle)
}

// Look calls look again and again until ctx ends, with a pause between two calls. Looks outlive restarts of the
// platform, whose name is for the log.
func Look(ctx context.Context, logger *zap.Logger, platform string, pause time.Duration, look func() error) {
	away := false
	for ctx.Err() == nil {
		err := look()
		if (err != nil) != away && ctx.Err() == nil {
			if away = err != nil; away {
				logger.Sugar().Warnw(platform+" does not answer", "error", err)
			} else {
				logger.Info(platform + " answers again")
			}
		}
		_ = Pause(ctx, pause)
	}
}

// ContainerEnd says in words how a container ended. memory is its limit in bytes; words are the last ones of its log.
func ContainerEnd(what string, exit int, oom bool, memory int64, words func() string) string {
	switch {
	case oom && exit == 128+int(unix.SIGKILL):
		return fmt.Sprintf("its %s was killed: it used more than its %d MiB of memory", what, memory>>20)
	case exit > 128 && unix.SignalName(unix.Signal(exit-128)) != "":
		return fmt.Sprintf("its %s was ended by %s", what, unix.SignalName(unix.Signal(exit-128)))
	}
	return fmt.Sprintf("its %s ended with exit code %d%s", what, exit, words())
}

// LastWords is the last line of a log, as the end of a sentence; empty where there is none.
func LastWords(log string) string {
	log = strings.TrimSpace(log)
	line := log[strings.LastIndexByte(log, '\n')+1:]
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line[:min(len(line), lastWordsLimit)], "?")
}
