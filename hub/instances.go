package hub

import (
	"context"
	"net"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// readInstances lists the instances of jobs that agents with a session here run.
func (c activities) readInstances(
	_ context.Context, in contract.ReadInstancesInput,
) (contract.ReadInstancesResult, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	var result contract.ReadInstancesResult
	for _, s := range c.hub.sessions {
		for _, a := range s.attempts {
			if a.instance == nil || !a.accepted || in.Job != "" && a.instance.Job != in.Job {
				continue
			}
			found := contract.FoundInstance{InstanceOf: *a.instance, TaskID: a.task, Attempt: a.number, Agent: s.agent,
				Zone: s.registration.Zone, Checked: a.healthNow(), Since: a.startedAt.UTC(), Cluster: s.cluster}
			found.Host = s.registration.Address
			if host, _, err := net.SplitHostPort(found.Host); err == nil {
				found.Host = host
			}
			found.InstanceOf.Health = nil
			result.Instances = append(result.Instances, found)
		}
	}
	return result, nil
}

// healthNow is how well an instance is, by its agent's last word. One whose agent is out of touch, or that is being
// stopped, does not pass.
func (a *attempt) healthNow() fleet.InstanceHealth {
	switch {
	case !a.session.disconnectedAt.IsZero() || a.cancelling || a.session.stopping:
		return fleet.InstanceFailing
	case a.instance.Health == nil:
		return fleet.InstancePassing
	case a.health == "":
		return fleet.InstanceStarting
	}
	return a.health
}

// sealedInstance is what another hub must know of an instance that it takes over: not how it is checked.
func sealedInstance(i *fleet.InstanceOf) *fleet.InstanceOf {
	if i == nil || i.Health == nil {
		return i
	}
	sealed := *i
	sealed.Health = &fleet.ServiceCheck{}
	return &sealed
}
