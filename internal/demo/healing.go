package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/healing"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	scenarioFailover = "failover"
	scenarioHealing  = "healing"
	// healingDemoAgents are wanted throughout.
	healingDemoAgents = 3
	// healingDemoTask is how long each of its tasks works, in seconds: long enough to be caught by a fault.
	healingDemoTask = 90
	// healingDemoLimit bounds each step.
	healingDemoLimit = 90 * time.Second
	healingDemoLook  = 200 * time.Millisecond
	healingDemoCycle = 5 * time.Second
)

// healingDemo shows how the fleet looks after itself: each step waits until the fleet has mended what was broken.
type healingDemo struct {
	storyline
	dev    *dev.Run
	client *client.Client
	seen   []string // agents that were there before
}

// storyline says and keeps what happens.
type storyline struct {
	story io.Writer
	begun time.Time
	steps []demoStep
}

// demoStep is one thing that happened.
type demoStep struct {
	After demoDelay `json:"after_seconds"`
	What  string    `json:"what"`
	Why   string    `json:"why,omitempty"`
}

// healingDemoReport is its result.
type healingDemoReport struct {
	Steps   []demoStep          `json:"steps"`
	Actions []api.HealingRecord `json:"actions"`
	UIURL   string              `json:"ui_url,omitempty"`
}

func showHealing(ctx context.Context, a *app.App, keep bool) error {
	story := a.Storyteller()
	health, err := os.MkdirTemp("", "mainstay-health-")
	if err != nil {
		return fmt.Errorf("make a folder for the agents' health files: %w", err)
	}
	defer func() { _ = os.RemoveAll(health) }()
	o := dev.Aside(healingDemoAgents, demoSlots)
	o.HealthFiles, o.QuietAgents = health, true
	o.Clusters[0].DesiredAgents = healingDemoAgents
	o.Clusters[0].SelfHealing = api.HealingPolicy{
		Patience: api.Duration(3 * time.Second), CycleInterval: api.Duration(healingDemoCycle),
	}
	d, err := start(ctx, a, o)
	if err != nil {
		return err
	}
	defer d.Stop()
	looks := &activities.Control{Client: d.Client, Namespace: d.Temporal.Namespace()}
	if err := looks.TuneHealing(ctx, api.Duration(healingDemoCycle)); err != nil {
		return err
	}
	server, err := d.Connect("")
	if err != nil {
		return err
	}
	demo := &healingDemo{storyline: storyline{story: story, begun: time.Now()}, dev: d, client: server,
		seen: slices.Clone(d.IDs)}
	// Not before: it would start agents in place of those that had not come yet.
	scaling := client.Settings{"scaling": map[string]any{"mode": api.ScalingManual}}
	if _, err := server.Clusters.Update(ctx, dev.Cluster, scaling, ""); err != nil {
		return err
	}
	report := healingDemoReport{UIURL: d.WorkflowsURL()}
	if err := demo.run(ctx, health); err != nil {
		return err
	}
	if report.Actions, err = server.Healing.Actions(client.HealingQuery{}).Take(ctx, 50); err != nil {
		return err
	}
	report.Steps = demo.steps
	err = a.Print(report, func() error {
		fmt.Fprintln(a.Stdout, "\nWhat healing did, and why (mainstay healing actions):")
		if err := healing.PrintActions(a, report.Actions); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.Stdout)
		return err
	})
	if err != nil {
		return err
	}
	keepDemo(ctx, a, keep, &demoReport{UIURL: report.UIURL})
	return nil
}

// tell prints an event of the story and keeps it.
func (s *storyline) tell(what, why string) {
	step := demoStep{After: demoDelay(time.Since(s.begun)), What: what, Why: why}
	s.steps = append(s.steps, step)
	line := what
	if why != "" {
		line += ": " + why
	}
	fmt.Fprintf(s.story, "%9s  %s\n", "+"+step.After.String(), app.OneLine(line))
}

func (h *healingDemo) run(ctx context.Context, health string) error {
	if err := h.submit(ctx, 2*healingDemoAgents); err != nil {
		return err
	}
	hung, err := h.busy(ctx)
	if err != nil {
		return err
	}
	if err := h.hang(ctx, hung); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(hung.PID, syscall.SIGKILL) }() // a stopped process does not heed a gentler word
	second, err := h.replaced(ctx, hung.ID)
	if err != nil {
		return err
	}
	ill := second[slices.IndexFunc(second, func(g api.Agent) bool { return slices.Contains(h.dev.IDs, g.ID) })]
	if err := h.degrade(ctx, ill.ID, filepath.Join(health, ill.ID)); err != nil {
		return err
	}
	_, err = h.replaced(ctx, hung.ID, ill.ID)
	return err
}

func (h *healingDemo) submit(ctx context.Context, n int) error {
	for range n {
		request := api.TaskRequest{TaskSpec: api.TaskSpec{Type: "exec", Cluster: dev.Cluster,
			Payload: fmt.Appendf(nil, `{"command": ["sleep", "%d"]}`, healingDemoTask)}}
		if _, err := h.client.Tasks.Submit(ctx, &request); err != nil {
			return err
		}
	}
	h.tell(fmt.Sprintf("%d agents have %d tasks to do", healingDemoAgents, n), "")
	return nil
}

// await looks again and again until something is so.
func (h *healingDemo) await(ctx context.Context, what string, look func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, healingDemoLimit,
		fmt.Errorf("%s did not happen within %s", what, healingDemoLimit))
	defer cancel()
	for {
		done, err := look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(healingDemoLook):
		}
	}
}

func (h *healingDemo) agents(ctx context.Context, status api.AgentStatus) ([]api.Agent, error) {
	return h.client.Agents.List(client.AgentQuery{Cluster: dev.Cluster, Status: status}).Take(ctx, 0)
}

// busy waits for an agent of ours that works.
func (h *healingDemo) busy(ctx context.Context) (agent api.Agent, err error) {
	err = h.await(ctx, "the begin of the tasks", func(ctx context.Context) (bool, error) {
		agents, err := h.agents(ctx, api.AgentOnline)
		i := slices.IndexFunc(agents, func(g api.Agent) bool { return g.Running != nil && *g.Running > 0 })
		if i >= 0 {
			agent = agents[i]
		}
		return i >= 0, err
	})
	return agent, err
}

// hang stops an agent's process, as a hanging machine would, and waits until its work is with others.
func (h *healingDemo) hang(ctx context.Context, agent api.Agent) error {
	if err := syscall.Kill(agent.PID, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the process of %s: %w", agent.ID, err)
	}
	h.tell(fmt.Sprintf("%s (pid %d) hangs", agent.ID, agent.PID),
		"the demo stopped its process with SIGSTOP; it answers nothing, and its connection stays open")
	id := fmt.Sprintf("%s:%s:%d", dev.Cluster, agent.ID, agent.Epoch)
	noticed := false
	return h.await(ctx, "the failover of "+agent.ID, func(ctx context.Context) (bool, error) {
		record, err := h.client.Failovers.Get(ctx, id)
		if client.IsNotFound(err) {
			return false, nil
		}
		if err == nil && !noticed {
			noticed = true
			h.tell("noticed: "+agent.ID+" is given up", record.Reason)
		}
		if err != nil || record.Status == api.FailoverRunning {
			return false, err
		}
		to := make([]string, 0, len(record.Transfers))
		for _, t := range record.Transfers {
			to = append(to, t.To)
		}
		slices.Sort(to)
		h.tell(fmt.Sprintf("failed over: %s moved to %s", api.Count(record.TasksTransferred, "task"),
			strings.Join(slices.Compact(to), " and ")), "")
		return true, nil
	})
}

// replaced waits until the wanted number of agents is online although some are gone.
func (h *healingDemo) replaced(ctx context.Context, gone ...string) (online []api.Agent, err error) {
	err = h.await(ctx, "the replacement of "+gone[len(gone)-1], func(ctx context.Context) (bool, error) {
		var err error
		online, err = h.agents(ctx, api.AgentOnline)
		return len(online) >= healingDemoAgents, err
	})
	if err != nil {
		return nil, err
	}
	var added []string
	for _, g := range online {
		if !slices.Contains(h.seen, g.ID) {
			added = append(added, fmt.Sprintf("%s (pid %d)", g.ID, g.PID))
			h.seen = append(h.seen, g.ID)
		}
	}
	h.tell("replaced: "+gone[len(gone)-1], fmt.Sprintf("%d agents are wanted, so scaling has started %s",
		healingDemoAgents, strings.Join(added, " and ")))
	return online, nil
}

// degrade makes an agent report that it does badly, and waits until healing has drained it.
func (h *healingDemo) degrade(ctx context.Context, agent, file string) error {
	if err := os.WriteFile(file, []byte("0.45 disk errors\n"), 0o600); err != nil {
		return fmt.Errorf("write the health file of %s: %w", agent, err)
	}
	h.tell(agent+" is degraded", "it reports health 0.45, \"disk errors\"; it lives and works")
	told := map[api.HealingOutcome]bool{}
	return h.await(ctx, "the drain of "+agent, func(ctx context.Context) (bool, error) {
		records, err := h.client.Healing.Actions(client.HealingQuery{Cluster: dev.Cluster, Agent: agent,
			Type: api.HealDrain}).Take(ctx, 10)
		for i := range records {
			r := &records[i]
			if told[r.Status] {
				continue
			}
			told[r.Status] = true
			switch r.Status {
			case api.HealingRunning:
				h.tell("noticed: healing drains "+agent, r.Reason)
				if err := h.letFinish(ctx, agent); err != nil {
					return false, err
				}
			case api.HealingSucceeded:
				h.tell("drained: "+agent, r.Outcome)
				return true, nil
			case api.HealingFailed:
				return false, fmt.Errorf("healing could not drain %s: %s", agent, r.Outcome)
			}
		}
		return false, err
	})
}

// letFinish cancels what a drained agent still works at, as the tasks of the demo are longer than anybody wants to
// wait.
func (h *healingDemo) letFinish(ctx context.Context, agent string) error {
	tasks, err := h.client.Tasks.List(client.TaskQuery{Cluster: dev.Cluster, Status: api.TaskRunning}).Take(ctx, 0)
	if err != nil {
		return err
	}
	for i := range tasks {
		task, err := h.client.Tasks.Get(ctx, tasks[i].ID)
		if err != nil {
			return err
		}
		if n := len(task.Attempts); n > 0 && task.Attempts[n-1].AgentID == agent {
			if _, err := h.client.Tasks.Cancel(ctx, task.ID, "the demo does not wait for it"); err != nil {
				return err
			}
		}
	}
	return nil
}
