package cluster

import (
	"slices"

	"mainstay.dev/sdk/api"
)

// maxOpenLanes bounds the open lanes that a cluster lists. Its members always fit.
const maxOpenLanes = api.MaxMembers + 1000

// AgentLanes are the lanes of single agents in which work may wait. A hub polls an agent's own lane only while it is
// open. Whoever puts work there opens it, also while the agent is away. A hub that found it empty for a while asks to
// close it.
type AgentLanes struct {
	// OpenLanes are sorted by agent.
	OpenLanes []OpenLane `json:"open_lanes,omitempty"`
	// LanesVersion grows with each change of OpenLanes, and LanesOpened is its value at the newest lane that was
	// opened.
	LanesVersion int64 `json:"lanes_version,omitempty"`
	LanesOpened  int64 `json:"lanes_opened,omitempty"`
	// LanesUnlisted: work may wait for agents that OpenLanes does not list, so an agent that joins anew has an open
	// lane.
	LanesUnlisted bool `json:"lanes_unlisted,omitempty"`
}

// OpenLane is the open lane of an agent.
type OpenLane struct {
	AgentID string `json:"agent_id"`
	// Asked counts the requests to open it since it is open. It is closed only for a hub that knows the newest.
	Asked int64 `json:"asked"`
}

// OpenAgentLane records that work waits, or is about to wait, in an agent's own lane. Beyond the limit the lane of an
// agent that is no member is forgotten, and opened when that agent joins.
func (c *Cluster) OpenAgentLane(agent string) {
	i, open := searchOpenLane(c.OpenLanes, agent)
	if open {
		c.OpenLanes[i].Asked++
		return
	}
	c.OpenLanes = slices.Insert(c.OpenLanes, i, OpenLane{AgentID: agent, Asked: 1})
	c.LanesVersion++
	c.LanesOpened = c.LanesVersion
	if len(c.OpenLanes) > maxOpenLanes {
		c.LanesUnlisted = true
		i := slices.IndexFunc(c.OpenLanes, func(l OpenLane) bool { return c.Member(l.AgentID) == nil })
		c.OpenLanes = slices.Delete(c.OpenLanes, i, i+1)
	}
}

// CloseAgentLanes closes those of the lanes that nobody has asked for since.
func (c *Cluster) CloseAgentLanes(empty []OpenLane) {
	for _, l := range empty {
		if i, open := searchOpenLane(c.OpenLanes, l.AgentID); open && c.OpenLanes[i].Asked == l.Asked {
			c.OpenLanes = slices.Delete(c.OpenLanes, i, i+1)
			c.LanesVersion++
		}
	}
}

func searchOpenLane(lanes []OpenLane, agent string) (int, bool) {
	return search(lanes, agent, func(l OpenLane) string { return l.AgentID })
}
