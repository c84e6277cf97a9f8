package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// Control is how quickly a fleet obeys.
type Control struct {
	// Cancel is from just before the request to the end of the last process of a running command.
	Cancel Times `json:"cancel_to_stopped"`
	// Return is from the start of an agent's process to the first instruction of the task that waited for it;
	// Registered from when its registration was acknowledged.
	Return     Times `json:"return_to_begin"`
	Registered Times `json:"registered_to_begin"`
}

const (
	// commandProcesses is how many processes the command of a cancelled task has: a shell and two children.
	commandProcesses = 3
	// stopLook is how often the end of processes is looked for, in what it costs the resolution.
	stopLook = time.Millisecond
)

func measureControl(ctx context.Context, i *Installation, p *QueuePlan, progress io.Writer) (*Control, error) {
	cancels, err := measureCancels(ctx, i, p.Cancels, progress)
	if err != nil {
		return nil, err
	}
	fromStart, fromRegistered, err := measureReturns(ctx, i, p.Returns, progress)
	if err != nil {
		return nil, err
	}
	return &Control{Cancel: timesOf(cancels), Return: timesOf(fromStart), Registered: timesOf(fromRegistered)}, nil
}

// measureCancels cancels running commands, one after the other, on an agent as people run it.
func measureCancels(ctx context.Context, i *Installation, n int, progress io.Writer) ([]time.Duration, error) {
	c := newCrew(i, "bench-cancel", 1, fleet.Idempotent)
	if err := c.create(ctx, fleet.ActiveActive); err != nil {
		return nil, err
	}
	id := c.ids[0]
	process, err := i.Start(id, "agent", "run", "--hub", c.hubs, "--cluster", c.cluster, "--id", id, "--slots", "4",
		"--allow-exec")
	if err != nil {
		return nil, err
	}
	c.processes[id] = process
	defer c.stop()
	var times []time.Duration
	for k := range n {
		took, err := c.cancelOne(ctx, filepath.Join(i.dir, "command-"+strconv.Itoa(k)))
		if err != nil {
			return nil, fmt.Errorf("cancel: %w", err)
		}
		if times = append(times, took); (k+1)%10 == 0 {
			fmt.Fprintf(progress, "cancelled %d of %d\n", k+1, n)
		}
	}
	return times, nil
}

// cancelOne runs a command with children, cancels its task and waits until the last of the processes has ended.
func (c *crew) cancelOne(ctx context.Context, file string) (time.Duration, error) {
	var task struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	command := []string{"sh", "-c", `echo $$ > "$1"; sleep 600 & sleep 600; exit`, "sh", file}
	if err := c.call(ctx, http.MethodPost, "/tasks", map[string]any{
		"type": agent.ExecType, "cluster": c.cluster, "payload": agent.ExecPayload{Command: command},
	}, &task); err != nil {
		return 0, err
	}
	var processes []int
	if err := eventually(ctx, "the running command", settleLimit, 5*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			group := leaderIn(file)
			if group == 0 {
				return false, nil
			}
			var err error
			if processes, err = groupOf(group); err != nil || len(processes) != commandProcesses {
				return false, err
			}
			err = c.call(ctx, http.MethodGet, "/tasks/"+task.ID, nil, &task)
			return task.Status == string(fleet.TaskRunning), err
		}); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := c.call(ctx, http.MethodPost, "/tasks/"+task.ID+"/cancel", nil, nil); err != nil {
		return 0, err
	}
	err := eventually(ctx, "the end of a cancelled command", settleLimit, stopLook,
		func(context.Context) (bool, error) {
			for _, pid := range processes {
				if runs(pid) {
					return false, nil
				}
			}
			return true, nil
		})
	return time.Since(begun), err
}

// leaderIn reads the process id that a command has written to a file; 0 before it has.
func leaderIn(file string) int {
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(text), "\n") {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// groupOf are the processes of a process group. Linux only.
func groupOf(group int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var members []int
	for _, file := range files {
		if state, of := processState(file); of == group && state != zombie {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return nil, err
			}
			members = append(members, pid)
		}
	}
	return members, nil
}

const zombie = "Z" // it has ended, and its parent has not asked how

// runs reports whether a process has not ended yet.
func runs(pid int) bool {
	state, _ := processState(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != zombie
}

// processState reads state and process group of /proc/PID/stat; empty when there is no such process any more.
func processState(file string) (state string, group int) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 3 {
		return "", 0
	}
	group, err = strconv.Atoi(fields[2])
	if err != nil {
		return "", 0
	}
	return fields[0], group
}

// measureReturns has an agent come back to a task that waits for it alone.
func measureReturns(
	ctx context.Context, i *Installation, n int, progress io.Writer,
) (fromStart, fromRegistered []time.Duration, err error) {
	c := newCrew(i, "bench-return", 1, fleet.Idempotent)
	if err := c.create(ctx, fleet.ActiveActive); err != nil {
		return nil, nil, err
	}
	if err := c.start(ctx, c.ids...); err != nil {
		return nil, nil, err
	}
	for k := range n {
		if err := c.goOffline(ctx, c.ids[0]); err != nil {
			return nil, nil, err
		}
		started, registered, began, err := c.returnTo(ctx, c.ids[0], "bench-return-task-"+strconv.Itoa(k))
		if err != nil {
			return nil, nil, err
		}
		fromStart, fromRegistered = append(fromStart, began.Sub(started)), append(fromRegistered, began.Sub(registered))
		if (k+1)%10 == 0 {
			fmt.Fprintf(progress, "returned %d of %d\n", k+1, n)
		}
	}
	c.stop()
	return fromStart, fromRegistered, nil
}

// goOffline kills an agent, which a goodbye would make a stranger, and waits until the control plane shows it offline.
func (c *crew) goOffline(ctx context.Context, id string) error {
	c.processes[id].Kill()
	<-c.processes[id].Done()
	return eventually(ctx, id+" offline", settleLimit, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		var page struct {
			Members []struct {
				ID     string `json:"id"`
				Status string `json:"status"`
			} `json:"members"`
		}
		err := c.call(ctx, http.MethodGet, "/clusters/"+c.cluster+"/members", nil, &page)
		for _, member := range page.Members {
			if member.ID == id && member.Status == string(fleet.AgentOffline) {
				return true, err
			}
		}
		return false, err
	})
}

// returnTo pins a task to an agent that is offline, starts the agent, and returns when that was, when it had
// registered, and when the task began.
func (c *crew) returnTo(ctx context.Context, id, task string) (started, registered, began time.Time, err error) {
	client, err := c.installation.Dial(ctx)
	if err != nil {
		return started, registered, began, err
	}
	defer client.Close()
	pinned := queuedTask{ID: task, Type: WorkType, Cluster: c.cluster, Agent: id, Payload: trivialWork}
	if err := c.call(ctx, http.MethodPost, "/tasks", pinned, nil); err != nil {
		return started, registered, began, err
	}
	if err := awaitBacklog(ctx, client, c.installation.Namespace, contract.AgentLane(id), 1); err != nil {
		return started, registered, began, err
	}
	started = time.Now()
	if err := c.start(ctx, id); err != nil {
		return started, registered, began, err
	}
	if err := c.awaitBegun(ctx, []queuedTask{pinned}); err != nil {
		return started, registered, began, err
	}
	pid := c.processes[id].PID()
	for _, e := range c.ledger.entries {
		switch {
		case e.Event == ledgerOnline && e.PID == pid && registered.IsZero():
			registered = e.time()
		case e.Event == ledgerBegin && e.Task == task:
			began = e.time()
		}
	}
	if registered.IsZero() || began.IsZero() {
		err = errors.New("the ledger does not show the agent's return")
	}
	return started, registered, began, err
}
