package hub

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// readTasks lists the tasks of a cluster's agents that have a session here, the oldest first.
func (c activities) readTasks(_ context.Context, in contract.ReadTasksInput) (contract.ReadTasksResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	result := contract.ReadTasksResult{Agents: map[string][]api.HeldTask{}}
	for _, s := range c.hub.sessions {
		if s.cluster != in.Cluster || in.AgentID != "" && s.agent != in.AgentID {
			continue
		}
		held := []api.HeldTask{}
		for _, a := range s.attempts {
			task := api.HeldTask{
				TaskID: a.task, Attempt: a.number, StartedAt: a.report(c.hub.id).StartedAt,
				Type: a.taskType, RequiredCapabilities: a.input.Spec.RequiredCapabilities,
				Allocation: a.allocation, Movable: a.movable(),
			}
			if a.evacuation != nil {
				task.MovingTo = a.evacuation.Target
			}
			if a.progress != nil {
				task.Percent = a.progress.Percent
			}
			held = append(held, task)
		}
		slices.SortFunc(held, func(a, b api.HeldTask) int {
			return cmp.Or(compareTimes(a, b), strings.Compare(a.TaskID, b.TaskID))
		})
		result.Agents[s.agent] = held[:min(len(held), contract.MaxHeldTasks)]
	}
	return result, nil
}

// compareTimes orders tasks by when they began; those that have not begun come last.
func compareTimes(a, b api.HeldTask) int {
	switch {
	case a.StartedAt == nil && b.StartedAt == nil:
		return 0
	case a.StartedAt == nil:
		return 1
	case b.StartedAt == nil:
		return -1
	}
	return a.StartedAt.Compare(*b.StartedAt)
}

// attemptsLocked are the attempts in this hub: with its agents, awaited with them, or waiting.
func (h *Hub) attemptsLocked() map[attemptKey]bool {
	held := map[attemptKey]bool{}
	for _, s := range h.sessions {
		for key := range s.attempts {
			held[key] = true
		}
	}
	for key := range h.awaited {
		held[key] = true
	}
	for _, l := range h.lanes {
		for _, p := range l.parked {
			held[p.attempt.attemptKey] = true
		}
	}
	return held
}

// holdsAttempts reports which attempts are in this hub: with its agents, or waiting. Healing ends those that no hub
// has.
func (c activities) holdsAttempts(
	_ context.Context, in contract.HoldsAttemptsInput,
) (contract.HoldsAttemptsResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	held := c.hub.attemptsLocked()
	var result contract.HoldsAttemptsResult
	for _, a := range in.Attempts {
		if held[attemptKey{a.TaskID, a.Attempt}] {
			result.Held = append(result.Held, cluster.HeldAttempt{TaskID: a.TaskID, Attempt: a.Attempt})
		}
	}
	return result, nil
}
