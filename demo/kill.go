package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/controlplane/dev"
	"mainstay.dev/mainstay/fleet"
)

const (
	// killFrom and killUntil are between which shares of its tasks done, in percent, the demo kills an agent.
	killFrom, killUntil = 40, 90
	// noticeLimit is how long the demo waits for the record of the failover.
	noticeLimit = 20 * time.Second
)

// demoKill is what happened to the agent that the demo killed. Times are after the kill.
type demoKill struct {
	Agent   string    `json:"agent"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Done    int       `json:"tasks_done_before"`
	Noticed demoDelay `json:"noticed_after_seconds"`
	Lost    int       `json:"attempts_lost"`
	Moved   demoDelay `json:"first_moved_attempt_began_after_seconds,omitzero"`
	To      []string  `json:"moved_to,omitempty"`
	Behind  int       `json:"tasks_begun_before_them,omitempty"`
	Finish  demoDelay `json:"moved_tasks_done_after_seconds,omitzero"`
	Reason  string    `json:"reason"`
	record  string    // id of the failover
}

// demoDelay is a time span in seconds in JSON.
type demoDelay time.Duration

// MarshalJSON implements json.Marshaler.
func (d demoDelay) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).Round(time.Millisecond).Seconds())
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *demoDelay) UnmarshalJSON(data []byte) error {
	var seconds float64
	err := json.Unmarshal(data, &seconds)
	*d = demoDelay(seconds * float64(time.Second))
	return err
}

func (d demoDelay) String() string { return fmt.Sprintf("%.2f s", time.Duration(d).Seconds()) }

// busiest is the online agent that was last seen with most tasks; nil when there is none.
func busiest(agents []api.Agent) *api.Agent {
	var best *api.Agent
	most := -1
	for i := range agents {
		running := 0
		if agents[i].Running != nil {
			running = *agents[i].Running
		}
		if agents[i].Status == fleet.AgentOnline && running > most {
			best, most = &agents[i], running
		}
	}
	return best
}

// strike kills the busiest agent; it returns nil when there is none.
func (r *demoRun) strike(ctx context.Context, done int) (*demoKill, error) {
	agents, err := r.client.Agents.List(client.AgentQuery{Cluster: dev.Cluster}).Take(ctx, 0)
	if err != nil {
		return nil, err
	}
	agent := busiest(agents)
	if agent == nil {
		return nil, nil
	}
	at := time.Now()
	pid, killed := r.kill(agent.ID)
	if !killed {
		return nil, nil
	}
	return &demoKill{Agent: agent.ID, PID: pid, At: at, Done: done,
		record: fmt.Sprintf("%s:%s:%d", dev.Cluster, agent.ID, agent.Epoch)}, nil
}

// demoMiddle waits for the middle of the demo, to kill an agent then.
type demoMiddle struct {
	run *demoRun
	bar *app.Progress

	mu     sync.Mutex
	killed *demoKill
}

// reached kills an agent when enough tasks are done and none was killed yet.
func (m *demoMiddle) reached(ctx context.Context, done int) error {
	if share := 100 * done / m.bar.Total; m.run.kill == nil || share < killFrom || share > killUntil ||
		!m.mu.TryLock() {
		return nil
	}
	defer m.mu.Unlock()
	if m.killed != nil {
		return nil
	}
	var err error
	if m.killed, err = m.run.strike(ctx, done); m.killed != nil {
		m.bar.Tell(fmt.Sprintf("Killed %s (pid %d), as a crash would", m.killed.Agent, m.killed.PID))
	}
	return err
}

// follow completes what became of the killed agent's work from the record of the failover and from the tasks' attempts.
func (k *demoKill) follow(ctx context.Context, c *client.Client, tasks []*api.Task) error {
	record, err := k.await(ctx, c)
	if err != nil {
		return err
	}
	k.Reason = record.Reason
	k.take(tasks, record.NoticedAt)
	return nil
}

// await waits until the failover is on record.
func (k *demoKill) await(ctx context.Context, c *client.Client) (*fleet.FailoverRecord, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, noticeLimit,
		fmt.Errorf("no failover of %s is on record %s after it was killed", k.Agent, noticeLimit))
	defer cancel()
	for {
		record, err := c.Failovers.Get(ctx, k.record)
		if err == nil || ctx.Err() == nil && !client.IsNotFound(err) {
			return record, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// take finds the attempts that ended with the agent, and those that came after them.
func (k *demoKill) take(tasks []*api.Task, noticed time.Time) {
	k.Noticed = k.after(noticed)
	var began, finished time.Time
	for _, task := range tasks {
		i := slices.IndexFunc(task.Attempts, func(a fleet.Attempt) bool {
			return a.AgentID == k.Agent && a.Outcome == fleet.AttemptLost
		})
		if i < 0 {
			continue
		}
		k.Lost++
		for _, next := range task.Attempts[i+1:] {
			if next.Outcome != fleet.AttemptCompleted || next.StartedAt == nil || next.EndedAt == nil {
				continue
			}
			if began.IsZero() || next.StartedAt.Before(began) {
				began = *next.StartedAt
			}
			if next.EndedAt.After(finished) {
				finished = *next.EndedAt
			}
			k.To = append(k.To, next.AgentID)
		}
	}
	slices.Sort(k.To)
	k.To = slices.Compact(k.To)
	if !began.IsZero() {
		k.Moved, k.Finish = k.after(began), k.after(finished)
	}
	for _, task := range tasks {
		if at := task.Attempts; len(at) == 1 && at[0].StartedAt != nil && at[0].StartedAt.After(noticed) &&
			at[0].StartedAt.Before(began) {
			k.Behind++
		}
	}
}

func (k *demoKill) after(t time.Time) demoDelay { return demoDelay(max(0, t.Sub(k.At))) }

// write tells it to a person.
func (k *demoKill) write(w io.Writer, total int) error {
	if k == nil {
		_, err := fmt.Fprintln(w,
			"No agent was killed: there is no middle in so few tasks. Try a folder with more files: --path DIR.")
		return err
	}
	t := app.NewTable(w)
	row := func(at demoDelay, what, details string) { t.Row("+"+at.String(), what, details) }
	row(0, "killed", fmt.Sprintf("%s (pid %d) by SIGKILL, with %d of %d tasks done", k.Agent, k.PID, k.Done, total))
	row(k.Noticed, "noticed", cmp.Or(k.Reason, "the agent was given up"))
	if k.Lost == 0 {
		t.Row("", "moved", "nothing: it had no task under way at that moment")
		return t.Flush()
	}
	moved := fmt.Sprintf("%s under way on %s to %s", fleet.Count(k.Lost, "task"), k.Agent, strings.Join(k.To, " and "))
	if k.Behind > 0 {
		moved += fmt.Sprintf(", after %d that waited already", k.Behind)
	}
	row(k.Moved, "moved", moved)
	row(k.Finish, "done", lastOf(k.Lost))
	return t.Flush()
}

func lastOf(n int) string {
	if n == 1 {
		return "it"
	}
	return "the last of them"
}
