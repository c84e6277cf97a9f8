package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
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

// write prints the times as a table.
func (c *Control) write(w io.Writer) {
	t := newTable(w, "", "times", "p50", "max")
	row := func(name string, times Times) {
		t.row(name, times.Count, fmt.Sprintf("%.1f ms", times.P50), fmt.Sprintf("%.1f ms", times.Max))
	}
	row("cancel → all processes of a running command ended", c.Cancel)
	row("offline agent's process started → its pinned task began", c.Return)
	row("offline agent's registration acknowledged → its pinned task began", c.Registered)
	t.flush()
}

// commandProcesses is how many processes the command of a cancelled task has: a shell and two children.
const commandProcesses = 3

func measureControl(ctx context.Context, i *Installation, p *queuePlan, progress io.Writer) (*Control, error) {
	cancels, err := measureCancels(ctx, i, p.cancels, progress)
	if err != nil {
		return nil, err
	}
	fromStart, fromRegistered, err := measureReturns(ctx, i, p.returns, progress)
	if err != nil {
		return nil, err
	}
	return &Control{Cancel: timesOf(cancels), Return: timesOf(fromStart), Registered: timesOf(fromRegistered)}, nil
}

// measureCancels cancels running commands, one after the other, on an agent as people run it.
func measureCancels(
	ctx context.Context,
	i *Installation,
	n int,
	progress io.Writer,
) (times []time.Duration, err error) {
	c := newCrew(i, "bench-cancel", 1)
	if err := c.create(ctx, fleet.ActiveActive, nil); err != nil {
		return nil, err
	}
	id := c.ids[0]
	if c.processes[id], err = i.Start(id, "agent", "run", "--hub", c.agentsURL(), "--cluster", c.cluster, "--id", id,
		"--slots", "4", "--allow-exec"); err != nil {
		return nil, err
	}
	defer c.leave()
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
	payload, err := json.Marshal(agent.ExecPayload{
		Command: []string{"sh", "-c", `echo $$ > "$1"; sleep 600 & sleep 600; exit`, "sh", file},
	})
	if err != nil {
		return 0, err
	}
	task, err := c.Tasks.Submit(ctx, &api.TaskRequest{TaskSpec: fleet.TaskSpec{Type: agent.ExecType, Cluster: c.cluster,
		Payload: payload}})
	if err != nil {
		return 0, err
	}
	var processes []int
	if err := eventually(ctx, "the running command", settleLimit, 5*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			group := leaderIn(file)
			if group == 0 {
				return false, nil
			}
			if processes, err = groupOf(group); err != nil || len(processes) != commandProcesses {
				return false, err
			}
			now, err := c.Tasks.Get(ctx, task.ID)
			return err == nil && now.Status == fleet.TaskRunning, err
		}); err != nil {
		return 0, err
	}
	begun := time.Now()
	if _, err := c.Tasks.Cancel(ctx, task.ID, ""); err != nil {
		return 0, err
	}
	// How often it looks is what the resolution costs.
	err = eventually(ctx, "the end of a cancelled command", settleLimit, time.Millisecond,
		func(context.Context) (bool, error) { return !slices.ContainsFunc(processes, runs), nil })
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

// measureReturns has an agent come back to a task that waits for it alone.
func measureReturns(
	ctx context.Context, i *Installation, n int, progress io.Writer,
) (fromStart, fromRegistered []time.Duration, err error) {
	c := newCrew(i, "bench-return", 1)
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
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
	c.leave()
	return fromStart, fromRegistered, nil
}

// goOffline kills an agent, which a goodbye would make a stranger, and waits until the control plane shows it offline.
func (c *crew) goOffline(ctx context.Context, id string) error {
	c.processes[id].end()
	return eventually(ctx, id+" offline", settleLimit, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		members, err := c.Clusters.Members(c.cluster).Take(ctx, 0)
		return slices.ContainsFunc(members, func(member api.Agent) bool {
			return member.ID == id && member.Status == fleet.AgentOffline
		}), err
	})
}

// returnTo pins a task to an agent that is offline, starts the agent, and returns when that was, when it had
// registered, and when the task began.
func (c *crew) returnTo(ctx context.Context, id, task string) (started, registered, began time.Time, err error) {
	temporal, err := c.dial(ctx)
	if err != nil {
		return started, registered, began, err
	}
	defer temporal.Close()
	pinned := fleet.TaskSpec{Type: workType, Cluster: c.cluster, Agent: id, Payload: work(0)}
	if _, err := c.Tasks.Submit(ctx, &api.TaskRequest{ID: task, TaskSpec: pinned}); err != nil {
		return started, registered, began, err
	}
	if err := awaitBacklog(ctx, temporal, c.namespace, contract.AgentLane(c.cluster, id), 1); err != nil {
		return started, registered, began, err
	}
	started = time.Now()
	if err := c.startAgents(ctx, id); err != nil {
		return started, registered, began, err
	}
	if err := c.awaitBegun(ctx, []string{task}); err != nil {
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
