package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/proctree"
	"mainstay.dev/sdk/backoff"
)

const (
	// supervisedEnv is set for the child of a supervisor. The child writes its sessions to sessionsFile, and stops when
	// stopFile ends.
	supervisedEnv          = "MAINSTAY_SUPERVISED"
	sessionsFile, stopFile = 3, 4
	// proofTimeout bounds how long a supervisor tries to reach a hub.
	proofTimeout = 10 * time.Second
)

// supervise runs this command as a child and proves to the hub that it died, when it does. It starts the child again
// after the pause restart; 0: it ends with the child's exit code.
func supervise(ctx context.Context, a *app.App, o agent.Options, restart time.Duration) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// The child's orphans become this process's children.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("supervise the agent: %w", err)
	}
	for {
		exit, err := superviseOnce(ctx, a, o, program)
		if err != nil || exit == app.ExitOK {
			return err
		}
		ended := app.WithExit(exit, fmt.Errorf("the agent ended with exit code %d", exit))
		decided := slices.Contains([]int{app.ExitNotFound, app.ExitConflict, app.ExitRefused}, exit)
		if restart == 0 || decided || ctx.Err() != nil {
			return ended
		}
		o.Logger.Warn("The agent is started again", "after", restart)
		if backoff.Pause(ctx, restart); ctx.Err() != nil {
			return ended
		}
	}
}

// superviseOnce runs the child until it and all that it started have ended, and returns its exit code.
func superviseOnce(ctx context.Context, a *app.App, o agent.Options, program string) (exit int, err error) {
	sessions, tell, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	stop, release, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	child := exec.Command(program, append(os.Args[1:len(os.Args):len(os.Args)], "--id", o.ID)...)
	child.Stdin, child.Stdout, child.Stderr, child.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{tell, stop}
	child.Env = append(os.Environ(), supervisedEnv+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals come here
	err = child.Start()
	_, _ = tell.Close(), stop.Close()
	if err != nil {
		return 0, fmt.Errorf("start the agent: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = release.Close() })()
	over := make(chan struct{})
	defer close(over)
	force := func() {
		_ = child.Process.Kill()
		<-over
	}
	a.AtForce.Store(&force)
	newest := make(chan agent.Session, 1)
	go func() {
		var s agent.Session
		for read := json.NewDecoder(sessions); read.Decode(&s) == nil; {
		}
		newest <- s
	}()

	status, left := proctree.AwaitChild(child.Process.Pid)
	_ = release.Close()
	_ = sessions.SetReadDeadline(time.Now().Add(time.Second))
	session := <-newest
	_ = sessions.Close()
	exit = status.ExitStatus()
	how := fmt.Sprintf("its process ended with exit code %d", exit)
	if status.Signaled() {
		exit, how = 128+int(status.Signal()), "its process was ended by "+unix.SignalName(status.Signal())
	}
	if exit == app.ExitOK || session.Token == "" {
		return exit, nil
	}
	if left {
		o.Logger.Error("The agent has ended, and something that it started lives on: no proof of its death", "how", how)
		return exit, nil
	}
	proving, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofTimeout)
	defer cancel()
	if err := agent.ProveDeath(proving, o, session, how); err != nil {
		o.Logger.Warn("The hub did not take the proof of the agent's death", "how", how, "error", err)
	} else {
		o.Logger.Warn("The agent has died; its hub knows", "how", how)
	}
	return exit, nil
}

// superviseMe reports the sessions of a supervised agent to its supervisor. The context that it returns ends when the
// supervisor wants a stop, or dies.
func superviseMe(ctx context.Context, getenv func(string) string, o *agent.Options) context.Context {
	if getenv(supervisedEnv) == "" {
		return ctx
	}
	_ = os.Unsetenv(supervisedEnv)
	for _, f := range []int{sessionsFile, stopFile} {
		syscall.CloseOnExec(f)
	}
	tell, stop := json.NewEncoder(os.NewFile(sessionsFile, "sessions")), os.NewFile(stopFile, "stop")
	o.OnSession = func(s agent.Session) { _ = tell.Encode(s) } // a supervisor that is gone needs none
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = stop.Read(make([]byte, 1))
		cancel()
	}()
	return ctx
}
