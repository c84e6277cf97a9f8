//go:build unix

// Package conform checks an agent in any language against the musts of docs/AGENT-PROTOCOL.md. For each check it starts
// the agent's program with a fake hub of its own.
package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Program is the agent under test. It gets the hub's URL as HUB, its own id as ID and its cluster as CLUSTER.
type Program struct {
	Command []string
	// Quick is work that ends by itself at once, and Long work that goes on until it is stopped.
	Quick, Long Work
	// Patience is how long a check waits for the agent, and four times as long for its start. Default 15 s.
	Patience time.Duration
}

// Work is a type of task and a payload for it.
type Work struct {
	Type    string
	Payload json.RawMessage
}

// Outcome is how a check ended.
type Outcome string

// The outcomes of a check.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "FAIL"
	Skipped Outcome = "skip"
)

// Result is what a check found.
type Result struct {
	Check   string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	// Must is what the protocol asks for, and Section where docs/AGENT-PROTOCOL.md has it.
	Must    string `json:"must"`
	Section string `json:"section"`
	// Problems are what went wrong, or why the check was left out. Output is the end of what the program printed.
	Problems []string `json:"problems,omitempty"`
	Output   string   `json:"output,omitempty"`
}

const (
	lease     = 2 * time.Second        // of the agent under test
	heartbeat = 200 * time.Millisecond // for which its polls are held
	outputEnd = 2 << 10                // bytes
)

// Names are the names of all checks.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Run makes the named checks, or all, one after another, and reports each. It ends early when ctx does.
func Run(ctx context.Context, p Program, only []string, report func(Result)) {
	for _, c := range checks {
		if ctx.Err() == nil && (len(only) == 0 || slices.Contains(only, c.name)) {
			report(c.run(ctx, p))
		}
	}
}

// trial is one check of one process. It is the fake hub's test.
type trial struct {
	*agenttest.Hub
	program Program
	cmd     *exec.Cmd
	ended   chan struct{} // the process has
	broken  chan struct{} // the agent broke a rule
	leaving atomic.Bool   // the process has a reason to end
	output  bytes.Buffer  // to be read when the process has ended

	mu       sync.Mutex
	problems []string
	skipped  bool
	listed   map[string]bool // by task: a poll has had it, as the check saw
	cleanups []func()
}

// Helper is of agenttest.T.
func (t *trial) Helper() {}

// Cleanup is of agenttest.T.
func (t *trial) Cleanup(end func()) { t.cleanups = append(t.cleanups, end) }

// Errorf is of agenttest.T.
func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	problem := strings.TrimPrefix(fmt.Sprintf(format, args...), "agenttest: ")
	if !slices.Contains(t.problems, problem) {
		t.problems = append(t.problems, problem)
	}
	if len(t.problems) == 1 && t.broken != nil {
		close(t.broken)
		t.broken = nil
	}
}

// Fatalf is of agenttest.T. It ends the check's goroutine.
func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// run makes one check.
func (c check) run(ctx context.Context, p Program) Result {
	p.Patience = cmp.Or(p.Patience, 15*time.Second)
	done, broken := make(chan struct{}), make(chan struct{})
	t := &trial{program: p, ended: make(chan struct{}), broken: broken, listed: map[string]bool{}}
	t.Hub = agenttest.NewHub(t, agenttest.Options{HeartbeatInterval: heartbeat, Lease: lease, Patience: p.Patience})
	ended := t.ended
	if err := t.start(ctx); err != nil {
		t.Errorf("%v", err)
		close(t.ended)
		ended = nil // it did not even begin
		close(done)
	} else {
		go func() {
			defer close(done)
			c.check(t)
		}()
	}
	select {
	case <-done:
	case <-broken:
	case <-ended:
		if t.leaving.Load() {
			<-done
		} else {
			t.Errorf("the program ended by itself: %s", t.cmd.ProcessState)
		}
	case <-ctx.Done():
		t.Errorf("interrupted")
	}
	if t.cmd.Process != nil {
		_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-t.ended
	t.mu.Lock()
	r := Result{Check: c.name, Outcome: Passed, Must: c.must, Section: c.section, Problems: slices.Clone(t.problems)}
	switch {
	case t.skipped:
		r.Outcome = Skipped
	case len(r.Problems) > 0:
		r.Outcome, r.Output = Failed, string(t.output.Bytes()[max(0, t.output.Len()-outputEnd):])
	}
	t.mu.Unlock()
	for _, end := range t.cleanups {
		end()
	}
	return r
}

// start starts the program in a process group of its own.
func (t *trial) start(ctx context.Context) error {
	t.cmd = exec.CommandContext(ctx, t.program.Command[0], t.program.Command[1:]...)
	t.cmd.Env = append(os.Environ(), "HUB="+t.URL(), "CLUSTER=conform", "ID=conform-1")
	t.cmd.Stdout, t.cmd.Stderr, t.cmd.WaitDelay = &t.output, &t.output, time.Second
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := t.cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	go func() {
		defer close(t.ended)
		_ = t.cmd.Wait()
	}()
	return nil
}

// assign gives the agent a task, changed as wanted.
func (t *trial) assign(id string, w Work, change ...func(*protocol.Assignment)) {
	a := protocol.Assignment{TaskID: id, Attempt: 1, Type: w.Type, Payload: w.Payload}
	for _, c := range change {
		c(&a)
	}
	t.Assign(a)
}

// registered waits for the first registration.
func (t *trial) registered() protocol.Register {
	for late := time.Now().Add(3 * t.program.Patience); len(t.Registrations()) == 0 && time.Now().Before(late); {
		<-time.After(10 * time.Millisecond)
	}
	return t.WaitRegistered(1)
}

// begin gives the agent long work, and returns when it is listed. For agents without long work it skips the check.
func (t *trial) begin(id string, change ...func(*protocol.Assignment)) {
	types := t.registered().TaskTypes
	if len(types) > 0 && !slices.Contains(types, t.program.Long.Type) {
		t.mu.Lock()
		t.skipped = true
		t.mu.Unlock()
		t.Fatalf("it handles no tasks of type %q: name one that goes on until it is stopped", t.program.Long.Type)
	}
	t.assign(id, t.program.Long, change...)
	t.WaitRunning(id)
	t.listed[id] = true
}

// hold gives the agent quick work whose result the hub does not take until release, and returns when it is listed.
func (t *trial) hold(id string) {
	t.registered()
	for range 500 {
		t.Fail(agenttest.OpResult, unavailable, agenttest.Fault{Status: http.StatusBadGateway}, agenttest.Fault{})
	}
	t.assign(id, t.program.Quick)
	t.WaitRunning(id)
	t.listed[id] = true
}

// release takes the result of held work.
func (t *trial) release(id string) {
	t.Heal(agenttest.OpResult)
	t.took(id, api.AttemptCompleted)
}

// completes gives the agent quick work, and waits for its result.
func (t *trial) completes(id string) {
	t.registered()
	t.assign(id, t.program.Quick)
	t.took(id, api.AttemptCompleted)
}

// took waits for the result of a task, whose outcome must be one of these.
func (t *trial) took(id string, outcomes ...api.AttemptOutcome) {
	var came []agenttest.Reported
	t.Until("the result of "+id, func() bool {
		given := t.listsNothing() && t.listed[id] // before the results are read
		came = slices.DeleteFunc(t.Results(), func(r agenttest.Reported) bool { return r.TaskID != id })
		if given && len(came) == 0 {
			t.Fatalf("it no longer lists %s, and has not reported it", id)
		}
		return len(came) > 0
	})
	if r := came[0]; !slices.Contains(outcomes, r.Outcome) {
		t.Errorf("the result of %s is %s %q, and should be %v", id, r.Outcome, r.Error, outcomes)
	}
}

// listsNothing reports whether the newest poll lists nothing.
func (t *trial) listsNothing() bool {
	polls := t.Polls()
	return len(polls) > 0 && len(polls[len(polls)-1].Running) == 0
}

// unlisted waits until the newest poll lists nothing.
func (t *trial) unlisted() {
	t.Until("a poll that no longer lists the attempt", t.listsNothing)
}

// ends waits for the end of the program.
func (t *trial) ends() {
	select {
	case <-t.ended:
	case <-time.After(t.program.Patience):
		t.Fatalf("the program still runs after %s", t.program.Patience)
	}
}

// cancel has the attempt of a task cancelled.
func (t *trial) cancel(id string) {
	t.Command(protocol.Command{Type: protocol.CommandCancel, TaskID: id, Attempt: 1})
}

// silent reports a result that must not come.
func (t *trial) silent(id, when string) {
	for _, r := range t.Results() {
		if r.TaskID == id {
			t.Errorf("it reported %s as %s %s", id, r.Outcome, when)
		}
	}
}
