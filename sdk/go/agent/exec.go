package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// ExecType is the task type that ExecHandler is meant for.
const ExecType = api.ExecType

// maxExecError bounds the end of stderr in a failure's text, in bytes.
const maxExecError = 2 << 10

// ExecPayload is the payload of an exec task.
type ExecPayload = payload.Exec

// ExecResult is the result of an exec task. Of longer outputs it has the beginning and the end, with a mark between.
type ExecResult struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// ExecHandler runs commands without a shell. A non-zero exit code is a failure with a type like "exit_3". When ctx
// ends, the command's process groups get SIGTERM. Everything that it has started gets SIGKILL after 30 s, or the time
// that the task says; at once when the lease has run out, after 5 s at most when the agent stops. The command's output
// is the attempt's log. The command is a beacon as long as it lives. Whoever may submit tasks can run anything as the
// agent's user.
//
// A command inherits from the agent's environment what CommandEnvironment gives for the names.
//
// On Linux nothing that a command has started outlives its attempt or its agent, background processes included: the
// handler runs each command below a guard process. That is the calling program, started again, and it runs one command
// after the other. Package proctree stops that program in an init function, before main. Init functions of other
// packages that Go runs earlier run in the guard, too, so they must not do anything but initialise.
func ExecHandler(names ...string) Handler {
	return func(ctx context.Context, task *Task) (any, error) {
		command, err := payload.ReadExec(task.Payload)
		if err != nil {
			return nil, NonRetryable(err)
		}
		return runCommand(ctx, command, task, CommandEnvironment(names...))
	}
}

func runCommand(ctx context.Context, p ExecPayload, task *Task, inherited []string) (any, error) {
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	cmd.Dir = p.Dir
	cmd.Env = inherited
	for name, value := range TraceHeaders(ctx) {
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+value)
	}
	if n := len(p.Feedback); n > 0 {
		cmd.Env = append(cmd.Env, "MAINSTAY_FEEDBACK="+string(p.Feedback[n-1]),
			"MAINSTAY_NOTE="+strings.ReplaceAll(p.Note, "\x00", ""))
	}
	for name, value := range p.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, task.Environment()...)
	cmd.Env = append(cmd.Env, task.facts(ctx)...)
	kept := task.keepCheckpoint()
	defer kept.remove()
	if kept != nil {
		cmd.Env = append(cmd.Env, "MAINSTAY_CHECKPOINT="+kept.path)
	}
	if err := find(cmd); err != nil {
		return nil, NonRetryable(fmt.Errorf("exec: %w", whyNot(cmd, err)))
	}
	stdout, stderr := &headTail{limit: maxExecOutput}, &headTail{limit: maxExecOutput}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if task.attempt != nil {
		out, errs := task.attempt.lines("stdout"), task.attempt.lines("stderr")
		out.report = task.ReportProgress
		defer out.end()
		defer errs.end()
		cmd.Stdout, cmd.Stderr = io.MultiWriter(stdout, out), io.MultiWriter(stderr, errs)
	}
	stop, unwatch := task.beaconWhile(), kept.watch()
	end, err := runTree(ctx, cmd, task, kept.folder())
	stop()
	unwatch()
	if cause := ended(ctx); cause != nil && !errors.Is(cause, errLivesOn) {
		return nil, fmt.Errorf("exec: the command was stopped: %w", cause)
	}
	if end.left {
		fmt.Fprintln(cmd.Stderr, leftNote)
	}
	switch {
	case err != nil:
		if err = whyNot(cmd, err); errors.As(err, new(errCannotStart)) {
			return nil, NonRetryable(fmt.Errorf("exec: %w", err))
		}
		return nil, fmt.Errorf("exec: %w", err)
	case end.code == 0:
		return fitResult(stdout, stderr, task.resultLimit()), nil
	}
	text := "exec: " + end.String()
	if tail := stderr.tail(maxExecError); tail != "" {
		text += ": " + tail
	}
	failure := Typed(end.errorType(), errors.New(text))
	if noInterpreter(cmd, end) {
		return nil, NonRetryable(fmt.Errorf("%w. The first line of the script ends with CR LF: convert it with dos2unix",
			failure))
	}
	return nil, failure
}

// usualSign spaces the signs of life of commands that nobody watches: people see the last.
const usualSign = 15 * time.Second

// beaconWhile gives signs of life for a command that lives, until it is stopped. A quiet command is none that hangs.
func (t *Task) beaconWhile() (stop func()) {
	if t.attempt == nil {
		return func() {}
	}
	every := usualSign
	if b := t.attempt.beacon; b > 0 {
		every = b / 3
	}
	tick, done := time.NewTicker(every), make(chan struct{})
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.Beacon()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// commandEnd is how a command ended.
type commandEnd struct {
	code int    // the exit code; -1: a signal ended it
	text string // as "exit status 3" or "signal: killed"
	left bool   // what it left in the background held its output, and was ended
}

// leftNote stands at the end of stderr where that was so.
const leftNote = "[what the command left in the background was ended with it: run what goes on as a service]"

// String is how the command ended, and what that may mean.
func (e commandEnd) String() string {
	if e.text == "signal: killed" || e.code == 128+9 { // a shell exits so for a command that was killed
		return e.text + " (SIGKILL: the system sends it when memory runs out)"
	}
	return e.text
}

// errorType names the failure of a command: "exit_3", or "signal" when a signal ended it.
func (e commandEnd) errorType() string {
	if e.code >= 0 {
		return fmt.Sprintf("exit_%d", e.code)
	}
	return "signal"
}
