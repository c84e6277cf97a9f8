package cluster

import (
	"slices"

	"mainstay.dev/sdk/api"
)

// Bounds of agents' profiles, in bytes of JSON. A cluster's state must fit into one message of Temporal, with all of
// its members.
const (
	// maxProfiles bounds the profiles of all members together. One of at most smallProfile always fits, so that greedy
	// agents keep no ordinary ones out.
	maxProfiles  = 512 << 10
	smallProfile = 512
	// In a cluster of more than fewMembers, small profiles are bounded as well, by maxSmallProfiles together with the
	// others.
	fewMembers       = 1000
	maxSmallProfiles = 768 << 10
	// maxTexts bounds, in these clusters, all that agents choose: profiles, ids, and the ids that join tokens count.
	maxTexts = 1 << 20
)

// ProfilesSize is about how long the profiles of all members are as JSON, in bytes.
func (c *Cluster) ProfilesSize() int {
	total := 0
	for i := range c.Members {
		total += c.Members[i].sizes().profile
	}
	return total
}

// RefuseProfile is why an agent may not join with its profile; "": it may. total is ProfilesSize at first, and updated
// for the next agent.
func (c *Cluster) RefuseProfile(j *Join, total *int) string {
	if j.Validate() != nil {
		return RefusedProfile
	}
	size, others := j.Size(), *total
	if m := c.Member(j.AgentID); m != nil {
		others -= m.sizes().profile
	}
	if size > smallProfile && others+size > maxProfiles ||
		len(c.Members) >= fewMembers && others+size > maxSmallProfiles {
		return RefusedProfiles
	}
	*total = others + size
	return ""
}

// TextsSize is about how long all texts that agents have chosen are as JSON, in bytes: profiles and ids.
func (c *Cluster) TextsSize() int {
	total := 0
	for i := range c.Members {
		total += c.Members[i].sizes().texts
	}
	for i := range c.TokenUses {
		total += c.TokenUses[i].size()
	}
	return total
}

// Crowded reports whether a cluster of many members has no room for an agent's profile and ids. There is always room
// for a member that has no more of them than before. total is TextsSize at
// first, and brought up to date for the next agent.
func (c *Cluster) Crowded(j *Join, total *int) bool {
	more := j.Size() + api.JSONSize(j.AgentID) + api.JSONSize(j.Instance)
	if m := c.Member(j.AgentID); m != nil {
		more -= m.sizes().texts
	}
	if u := c.usesOf(j.Token.ID); j.Token.MaxUses > 0 && (u == nil || !slices.Contains(u.Agents, j.AgentID)) {
		more += api.JSONSize(j.AgentID)
	}
	if more > 0 && len(c.Members) >= fewMembers && *total+more > maxTexts {
		return true
	}
	*total += more
	return false
}

// Grows reports whether an agent's profile would be larger than the one it has as a member.
func (c *Cluster) Grows(j *Join) bool {
	m := c.Member(j.AgentID)
	return m == nil || j.Size() > m.sizes().profile
}

// memberSizes are about how long a member's profile, and all texts that it has chosen, are as JSON, in bytes.
type memberSizes struct{ profile, texts int }

// sizes counts them once after each join, because each join needs the sizes of all members.
func (m *Member) sizes() memberSizes {
	if m.counted == (memberSizes{}) {
		m.counted.profile = m.Size()
		m.counted.texts = m.counted.profile + api.JSONSize(m.AgentID) + api.JSONSize(m.Instance)
	}
	return m.counted
}
