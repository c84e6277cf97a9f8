package hub

import (
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// successorsAmong bounds the agents that successorsLocked chooses among: at most this number of the lost agent's group
// or zone, and at most this number of others. The hub's lock is held meanwhile, and many may be lost at once.
const successorsAmong = 100

// successorsLocked chooses, for one attempt after another that is lost with a session, who should rather have the next:
// in an active_active cluster whose strategy does not go by the load alone, which placement does in any case. It knows
// the agents of this hub.
func (h *Hub) successorsLocked(lost *session) func(*attempt) string {
	d := h.directives[lost.cluster]
	if d.Mode != api.ActiveActive || d.Selection != api.SelectAffinity && d.Selection != api.SelectRoundRobin ||
		len(lost.work.attempts) == 0 {
		return func(*attempt) string { return "" }
	}
	member := func(s *session, status api.AgentStatus) cluster.Member {
		live := s.live()
		return cluster.Member{AgentID: s.agent, Status: status, Health: &cluster.MemberHealth{Level: live.Health},
			AgentProfile: api.AgentProfile{MaxTasks: live.MaxTasks, Capabilities: live.Capabilities,
				TaskTypes: live.TaskTypes, Group: s.registration.Group, Zone: s.registration.Zone}}
	}
	c := cluster.Cluster{Config: api.ClusterConfig{ReplicationMode: d.Mode}, RoundRobin: h.turns[lost.cluster],
		Members: []cluster.Member{member(lost, api.AgentOffline)}}
	loads, chosen := map[string]int{}, map[bool]int{}
	for agent, s := range h.sessions {
		if s == lost || s.cluster != lost.cluster || s.serving.free <= 0 {
			continue
		}
		if near := s.nearTo(lost); chosen[near] < successorsAmong {
			chosen[near]++
			c.Members = append(c.Members, member(s, api.AgentOnline))
			loads[agent] = len(s.work.attempts)
		}
	}
	return func(a *attempt) string {
		next, _ := c.SelectTarget(d.Selection, cluster.FailoverNeed{FailedAgent: lost.agent,
			RequiredCapabilities: a.input.Spec.RequiredCapabilities, TaskTypes: []string{a.Type}}, loads)
		loads[next]++
		h.turns[lost.cluster] = c.RoundRobin
		return next
	}
}

func (s *session) nearTo(o *session) bool {
	a, b := &s.registration, &o.registration
	return a.Group != "" && a.Group == b.Group || a.Zone != "" && a.Zone == b.Zone
}
