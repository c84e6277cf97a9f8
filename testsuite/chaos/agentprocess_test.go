//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// agentEnv makes the test binary an agent: it holds an agentSpec.
const agentEnv = "MAINSTAY_CHAOS_AGENT"

// agentSpec is what the driver tells an agent process.
type agentSpec struct {
	ID      string   `json:"id"`
	Cluster string   `json:"cluster"`
	Hubs    []string `json:"hubs"`
	Ledger  string   `json:"ledger"`
	Slots   int      `json:"slots"`
}

// work is the payload of every task.
type work struct {
	MS    int    `json:"ms"`             // how long the handler works
	Tree  bool   `json:"tree,omitempty"` // it is a command with child processes
	Fail  string `json:"fail,omitempty"` // failFirst, failAlways or nothing
	Exit  bool   `json:"exit,omitempty"` // it ends its agent's process
	Nonce string `json:"nonce"`          // comes back in the result
	// Got is what a step of a run is given of those before it.
	Got map[string]json.RawMessage `json:"got,omitempty"`
}

const (
	failFirst  = "first"  // the first attempt fails
	failAlways = "always" // every attempt fails until the cause is mended: until the file of mendedPath is there
)

// asExec is the work as a payload of type exec, which has fields of its own only.
func (w work) asExec() map[string]any {
	text, _ := json.Marshal(w) // work is always encoded
	return map[string]any{"command": []string{"tree"}, "note": string(text)}
}

// workOf reads the work of a task.
func workOf(t *agent.Task) (todo work, err error) {
	if t.Type != agent.ExecType {
		return todo, t.Decode(&todo)
	}
	var command agent.ExecPayload
	if err := t.Decode(&command); err != nil {
		return todo, err
	}
	return todo, json.Unmarshal([]byte(command.Note), &todo)
}

func mendedPath(ledger string) string { return ledger + ".mended" }

func (w *worker) fails(t *agent.Task, todo work) bool {
	switch todo.Fail {
	case failFirst:
		return t.Attempt == 1
	case failAlways:
		_, err := os.Stat(mendedPath(w.spec.Ledger))
		return err != nil
	}
	return false
}

// done is the result of every task.
type done struct {
	Agent   string `json:"agent"`
	PID     int    `json:"pid"`
	Attempt int    `json:"attempt"`
	Nonce   string `json:"nonce"`
}

// leadLook is how often an agent looks whether it leads.
const leadLook = 10 * time.Millisecond

// runAgent is the agent process. It never returns.
func runAgent(text string) {
	var spec agentSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = workAsAgent(spec)
	}
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, agent.ErrFenced):
		os.Exit(3)
	}
	fmt.Fprintln(os.Stderr, "agent:", err)
	os.Exit(1)
}

func workAsAgent(spec agentSpec) error {
	out, err := openLedger(spec.Ledger, os.O_SYNC)
	if err != nil {
		return err
	}
	w := &worker{spec: spec, out: out}
	a, err := agent.New(agent.Options{
		HubURLs:     spec.Hubs,
		JoinToken:   os.Getenv("MAINSTAY_JOIN_TOKEN"),
		Cluster:     spec.Cluster,
		ID:          spec.ID,
		Slots:       spec.Slots,
		StopTimeout: 2 * time.Second,
		OnEvent:     w.event,
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	a.Handle("work", w.handle)
	a.Handle(agent.ExecType, w.handleExec)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() { w.watchRole(a, ended) })
	looking.Go(func() { w.watchIllness(a, ended) })
	err = a.Run(ctx)
	close(ended)
	looking.Wait()
	return err
}

// worker writes what the agent does into the ledger.
type worker struct {
	spec  agentSpec
	out   *ledgerWriter
	epoch atomic.Int64 // of the session
	lead  atomic.Int64 // of the leadership; 0: does not lead
	// reported is what was reported of each attempt: fenced work that outlived its lease is done, and reported as
	// failed.
	reported sync.Map
}

func (w *worker) event(e agent.Event) {
	switch e.Kind {
	case agent.EventRegistered:
		w.epoch.Store(e.Epoch)
		w.out.write(line{Kind: lineRegistered, Agent: w.spec.ID, Epoch: e.Epoch})
	case agent.EventRole:
		if e.Role == api.RoleLeader {
			w.lead.Store(e.Epoch)
		} else {
			w.lead.Store(0)
		}
	case agent.EventFinished:
		w.reported.Store(fmt.Sprint(e.TaskID, e.Attempt), string(e.Outcome))
	case agent.EventResultAccepted:
		outcome, _ := w.reported.Load(fmt.Sprint(e.TaskID, e.Attempt))
		w.out.write(line{Kind: lineAccepted, Agent: w.spec.ID, Task: e.TaskID, Attempt: e.Attempt,
			Note: fmt.Sprint(outcome)})
	case agent.EventResultDropped:
		w.out.write(line{Kind: lineStale, Agent: w.spec.ID, Task: e.TaskID, Attempt: e.Attempt})
	}
}

func (w *worker) handle(ctx context.Context, t *agent.Task) (any, error) {
	return w.attempt(ctx, t, func(todo work) error {
		timer := time.NewTimer(time.Duration(todo.MS) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// attempt does the work of an attempt and writes down when it began and ended.
func (w *worker) attempt(ctx context.Context, t *agent.Task, do func(work) error) (any, error) {
	todo, err := workOf(t)
	if err != nil {
		return nil, err
	}
	mark := line{Kind: lineBegin, Agent: w.spec.ID, Task: t.ID, Attempt: t.Attempt, Epoch: w.epoch.Load(),
		Got: todo.Got}
	if strings.HasPrefix(w.spec.Cluster, "ap") {
		mark.Note = fmt.Sprintf("lead %d", w.lead.Load())
	}
	w.out.write(mark)
	if todo.Exit {
		os.Exit(1)
	}
	end := func(how string) {
		w.out.write(line{Kind: lineEnd, Agent: w.spec.ID, Task: t.ID, Attempt: t.Attempt, Note: how})
	}
	if err := do(todo); err != nil {
		end("stopped")
		return nil, err
	}
	if w.fails(t, todo) {
		end("failed")
		return nil, fmt.Errorf("attempt %d fails, as it was asked to", t.Attempt)
	}
	end("done")
	return done{Agent: w.spec.ID, PID: w.out.pid, Attempt: t.Attempt, Nonce: todo.Nonce}, nil
}

// illLook is how often an agent looks whether it is to be ill.
const illLook = 100 * time.Millisecond

// watchIllness has the agent say of itself what it is told to, and notes when it began and ended to.
func (w *worker) watchIllness(a *agent.Agent, ended <-chan struct{}) {
	tick := time.NewTicker(illLook)
	defer tick.Stop()
	was := ""
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		text, err := os.ReadFile(illnessPath(w.spec.Ledger, w.spec.ID))
		level := string(text)
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist), level == was:
			continue
		case level == "":
			a.ReportHealth(1, "")
			w.out.write(line{Kind: lineWell, Agent: w.spec.ID})
		default:
			a.ReportHealth(ownOpinions[api.HealthLevel(level)], "as it was told")
			w.out.write(line{Kind: lineIll, Agent: w.spec.ID, Note: level})
		}
		was = level
	}
}

// watchRole notes from when to when the agent takes itself for the leader. The begin is read after the role and the end
// before it, so the ledger never makes a leadership longer than it was, however long this goroutine waits in between.
func (w *worker) watchRole(a *agent.Agent, ended <-chan struct{}) {
	tick := time.NewTicker(leadLook)
	defer tick.Stop()
	var epoch, last int64
	finish := func() {
		if epoch != 0 {
			w.out.write(line{Kind: lineLeadEnd, Agent: w.spec.ID, Epoch: epoch, NS: last})
		}
		epoch = 0
	}
	defer finish()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		now, leads := monotonic(), w.lead.Load()
		if a.Role() != api.RoleLeader {
			leads = 0
		}
		if leads != epoch {
			finish()
			if leads != 0 {
				w.out.write(line{Kind: lineLead, Agent: w.spec.ID, Epoch: leads, NS: monotonic()})
			}
			epoch = leads
		}
		last = now
	}
}
