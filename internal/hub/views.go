package hub

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/sdk/api"
)

// Status is the state of a hub.
type Status struct {
	// Agents have a session here. Leases are the leaderships and shards that they hold.
	Agents, Leases int
	// RenewedAt is when Temporal last took the heartbeat of the hub's own lease; Fresh: recently enough for the hub to
	// renew its agents' leases.
	RenewedAt time.Time
	Fresh     bool
}

// Status returns the present state of the hub.
func (h *Hub) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := Status{Agents: len(h.sessions), RenewedAt: h.lease.RenewedAt(), Fresh: h.lease.Fresh(time.Now())}
	for _, s := range h.sessions {
		d := h.directives[s.cluster]
		status.Leases += len(s.owns(d))
		if s.leads(d) {
			status.Leases++
		}
	}
	return status
}

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
		for _, a := range s.work.attempts {
			task := api.HeldTask{
				TaskID: a.Task, Attempt: a.Attempt, StartedAt: a.report(c.hub.id).StartedAt,
				Type: a.Type, RequiredCapabilities: a.input.Spec.RequiredCapabilities,
				Allocation: a.Allocation, Movable: a.movable(),
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
		for key := range s.work.attempts {
			held[key] = true
		}
	}
	for key := range h.awaited {
		held[key] = true
	}
	for _, l := range h.lanes {
		for _, p := range l.parked {
			held[p.attempt.key()] = true
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

// readInstances lists the instances of jobs that agents with a session here run.
func (c activities) readInstances(
	_ context.Context, in contract.ReadInstancesInput,
) (contract.ReadInstancesResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	var result contract.ReadInstancesResult
	for _, s := range c.hub.sessions {
		for _, a := range s.work.attempts {
			if a.JobInstance == nil || !a.accepted || in.Job != "" && a.JobInstance.Job != in.Job || a.Task <= in.After {
				continue
			}
			found := contract.FoundInstance{InstanceOf: *a.JobInstance, TaskID: a.Task, Attempt: a.Attempt,
				Agent: s.agent, Cluster: s.cluster, Zone: s.registration.Zone, Checked: a.healthNow(),
				Since: a.startedAt.UTC()}
			found.Host = s.registration.Address
			if host, _, err := net.SplitHostPort(found.Host); err == nil {
				found.Host = host
			}
			found.InstanceOf.Health = nil
			result.Instances = append(result.Instances, found)
		}
	}
	slices.SortFunc(result.Instances, func(a, b contract.FoundInstance) int {
		return strings.Compare(a.TaskID, b.TaskID)
	})
	const most = 1 << 20 // Temporal bounds an answer
	if n := part.Fitting(result.Instances, most, instanceSize); n < len(result.Instances) {
		result.Instances, result.More = result.Instances[:n], true
	}
	return result, nil
}

// instanceSize counts what agents and tenants write with the most that it may take as JSON.
func instanceSize(i *contract.FoundInstance) int {
	const names, escaped = 1 << 10, 6
	bytes := names + escaped*len(i.Host+i.Zone)
	if i.Service != nil {
		bytes += escaped * len(strings.Join(i.Service.Tags, ""))
	}
	return bytes
}
