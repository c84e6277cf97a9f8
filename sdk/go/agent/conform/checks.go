//go:build unix

package conform

import (
	"net/http"
	"slices"
	"syscall"
	"time"

	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// check is one must of the protocol. The fake hub itself finds malformed requests and missing tokens.
type check struct {
	name, section, must string
	check               func(*trial)
}

var unavailable = agenttest.Fault{Status: http.StatusServiceUnavailable, Code: protocol.CodeUnavailable}

var checks = []check{{
	"register", "#register", "register with agent_id, cluster, instance_id and max_tasks; then poll again and again",
	func(t *trial) {
		t.registered()
		t.WaitPoll("three", func(p protocol.Poll) bool { return p.Sequence >= 3 })
	},
}, {
	"acknowledge", "#the-loop", "list an assignment under running, with its token, in the next poll",
	func(t *trial) {
		t.hold("t1")
		t.release("t1")
	},
}, {
	"result", "#result", "repeat a result until a hub takes or refuses it; list the attempt until then, and no longer",
	func(t *trial) {
		t.hold("t1")
		held := t.FaultsLeft(agenttest.OpResult)
		t.Until("the repetition of a result", func() bool {
			return t.FaultsLeft(agenttest.OpResult) < held-1 || t.listsNothing()
		})
		t.release("t1")
		t.unlisted()
		t.Fail(agenttest.OpResultAnswer, agenttest.Fault{}) // it is taken, and its repetition refused
		t.completes("t2")
		t.unlisted()
		t.completes("t3")
	},
}, {
	"twice", "#poll", "run an assignment once, even if it arrives twice",
	func(t *trial) {
		t.begin("t1")
		t.assign("t1", t.program.Long)
		t.cancel("t1")
		t.took("t1", api.AttemptCancelled)
		t.completes("t2")
		if n := len(t.Results()); n != 2 {
			t.Errorf("it reported %d results of two tasks", n)
		}
	},
}, {
	"errors", "#errors", "go on polling, with all that runs, after no answer, a 5xx or the answer of something else",
	func(t *trial) {
		t.begin("t1")
		t.Fail(agenttest.OpPoll, unavailable, agenttest.Fault{Status: http.StatusBadGateway}, agenttest.Fault{})
		t.Until("polls after three that failed", func() bool { return t.FaultsLeft(agenttest.OpPoll) == 0 })
		before := len(t.Polls())
		t.Until("a poll after those that failed", func() bool { return len(t.Polls()) > before })
		if t.listsNothing() {
			t.Errorf("it gave its work up")
		}
	},
}, {
	"unknown_session", "#errors", "after it register again with the same instance_id and all that runs, with tokens",
	func(t *trial) {
		t.hold("t1")
		t.ForgetSession()
		again := t.WaitRegistered(2)
		if again.InstanceID != t.registered().InstanceID {
			t.Errorf("it registered again with another instance_id, which fences itself")
		}
		if !slices.ContainsFunc(again.Running, func(r protocol.RunningAttempt) bool { return r.TaskID == "t1" }) {
			t.Errorf("it registered again without what runs")
		}
		t.release("t1")
	},
}, {
	"restart", "#out-of-touch", "try until the hub is back, then register again",
	func(t *trial) {
		t.completes("t1")
		t.Stop()
		t.ForgetSession()
		t.Start()
		t.WaitRegistered(2)
		t.completes("t2")
	},
}, {
	"unknown_command", "#poll", "ignore commands that you do not know, or whose attempt has ended",
	func(t *trial) {
		t.completes("t1")
		t.Command(protocol.Command{Type: "dance"})
		t.cancel("t1")
		t.completes("t2") // its assignment may come with the commands
		t.completes("t3")
	},
}, {
	"cancel", "#poll", "at cancel, stop the attempt and report what came of it",
	func(t *trial) {
		t.begin("t1")
		t.cancel("t1")
		t.took("t1", api.AttemptCancelled)
		t.unlisted()
	},
}, {
	"drop", "#poll", "at drop, stop the attempt and report nothing",
	func(t *trial) {
		t.begin("t1")
		t.Command(protocol.Command{Type: protocol.CommandDrop, TaskID: "t1", Attempt: 1})
		t.unlisted()
		t.completes("t2")
		t.silent("t1", "after the drop")
	},
}, {
	"timeout", "#poll", "stop the work after its timeout and report it timed_out",
	func(t *trial) {
		t.begin("t1", func(a *protocol.Assignment) { a.Timeout = api.Duration(time.Second) })
		t.took("t1", api.AttemptTimedOut)
	},
}, {
	"lease", "#out-of-touch", "stop fenced work when the lease runs out, and do not report success after that",
	func(t *trial) {
		t.begin("t1", func(a *protocol.Assignment) { a.RetrySafety = api.Fenced })
		t.Stop()
		<-time.After(lease + heartbeat)
		t.Start()
		t.took("t1", api.AttemptCancelled, api.AttemptFailed, api.AttemptTimedOut)
	},
}, {
	"fenced", "#errors", "at fenced, stop all work, report nothing and exit",
	func(t *trial) {
		t.hold("t1")
		t.leaving.Store(true)
		t.Fence()
		t.ends()
		if t.Goodbyes() > 0 {
			t.Errorf("it said goodbye")
		}
	},
}, {
	"revoked", "#errors", "at session_revoked, stop all work, report nothing and exit",
	func(t *trial) {
		t.begin("t1")
		t.leaving.Store(true)
		for range 100 {
			t.Fail(agenttest.OpPoll, agenttest.Fault{Status: http.StatusForbidden, Code: protocol.CodeSessionRevoked})
		}
		t.ends()
		t.silent("t1", "after its session was revoked")
	},
}, {
	"goodbye", "#stop", "at SIGTERM poll with stopping, end or hand back what runs, end the session, exit",
	func(t *trial) {
		t.hold("t1")
		t.leaving.Store(true)
		_ = t.cmd.Process.Signal(syscall.SIGTERM)
		t.Heal(agenttest.OpResult)
		t.took("t1", api.AttemptCompleted, api.AttemptCancelled)
		t.WaitGoodbye()
		polls := t.Polls()
		if last := polls[len(polls)-1]; !last.Stopping || len(last.Running) > 0 {
			t.Errorf("its last poll was not one with stopping that lists nothing")
		}
		t.ends()
	},
}}
