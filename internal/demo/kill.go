package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// killFrom and killUntil are between which shares of its elements done, in percent, the demo kills an agent.
	killFrom, killUntil = 40, 90
	// killAfter is how long no element is reported when it does so among fewer than fewElements.
	killAfter   = 100 * time.Millisecond
	fewElements = 100
	// noticeLimit is how long the demo waits for the record of the failover.
	noticeLimit = 20 * time.Second
)

// demoKill is what happened to the agent that the demo killed. Times are after the kill.
type demoKill struct {
	Agent   string    `json:"agent"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Done    int       `json:"elements_done_before"`
	Noticed demoDelay `json:"noticed_after_seconds"`
	Lost    int       `json:"bundles_lost"`
	Moved   demoDelay `json:"moved_after_seconds,omitzero"`
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
		if agents[i].Status == api.AgentOnline && running > most {
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

// reached kills an agent when about half of the elements are done. If there are few, agents report the last ones all at
// once: then it kills one when no element was reported for a while.
func (r *demoRun) reached(
	ctx context.Context, bar *app.Progress, done int, reported time.Time,
) (*demoKill, error) {
	share := 100 * done / bar.Total
	quiet := done > 0 && bar.Total < fewElements && time.Since(reported) > killAfter
	if r.kill == nil || share > killUntil || share < killFrom && !quiet {
		return nil, nil
	}
	killed, err := r.strike(ctx, done)
	if killed != nil {
		bar.Tell(fmt.Sprintf("Killed %s (pid %d), as a crash would", killed.Agent, killed.PID))
	}
	return killed, err
}

// follow completes what became of the killed agent's work, from the record of the failover.
func (k *demoKill) follow(ctx context.Context, c *client.Client) error {
	record, err := k.await(ctx, c)
	if err == nil {
		k.take(record)
	}
	return err
}

// await waits until the failover is on record, with what moved.
func (k *demoKill) await(ctx context.Context, c *client.Client) (*api.FailoverRecord, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, noticeLimit,
		fmt.Errorf("no failover of %s is on record %s after it was killed", k.Agent, noticeLimit))
	defer cancel()
	for {
		record, err := c.Failovers.Get(ctx, k.record)
		if err == nil && record.CompletedAt != nil || err != nil && ctx.Err() == nil && !client.IsNotFound(err) {
			return record, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// take takes over the facts of the record.
func (k *demoKill) take(record *api.FailoverRecord) {
	k.Reason, k.Noticed, k.Lost = record.Reason, k.after(record.NoticedAt), record.Tasks
	if record.CompletedAt != nil {
		k.Moved = k.after(*record.CompletedAt)
	}
}

func (k *demoKill) after(t time.Time) demoDelay { return demoDelay(max(0, t.Sub(k.At))) }

// write prints what the kill did; of a nil one, why no agent was killed.
func (k *demoKill) write(w io.Writer, total int) error {
	if k == nil {
		_, err := fmt.Fprintln(w,
			"No agent was killed: there is no middle in so few elements. Try a folder with more files: --path DIR.")
		return err
	}
	t := app.NewTable(w)
	row := func(at demoDelay, what, details string) { t.Row("+"+at.String(), what, details) }
	row(0, "killed", fmt.Sprintf("%s (pid %d) by SIGKILL, with %d of %d elements done", k.Agent, k.PID, k.Done, total))
	row(k.Noticed, "noticed", cmp.Or(k.Reason, "the agent was given up"))
	if k.Lost == 0 {
		t.Row("", "moved", "nothing: it had no elements under way at that moment")
		return t.Flush()
	}
	row(k.Moved, "moved", fmt.Sprintf("%s under way on %s: their elements go to the others, in smaller bundles",
		api.Count(k.Lost, "bundle"), k.Agent))
	return t.Flush()
}
