// Package cluster decides about the members of a cluster: who is one, who leads, who has which shards, targets and
// lanes, and who counts as lost. Decisions are pure functions of (state, facts, now); the Cluster workflow calls them.
package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// maxFencedKept is how many replaced instances of an agent id are remembered; they are refused if they come back.
const maxFencedKept = 4

// Member returns the member with the given id, or nil.
func (c *Cluster) Member(agentID string) *Member {
	if i, found := SearchMember(c.Members, agentID); found {
		return &c.Members[i]
	}
	return nil
}

// search finds an entry of a list that is sorted by its key.
func search[T any](list []T, key string, of func(T) string) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(t T, key string) int { return strings.Compare(of(t), key) })
}

// SearchMember is where a member is, or would be, among members in the order of their ids, and whether it is there.
func SearchMember(members []Member, agentID string) (int, bool) {
	return search(members, agentID, func(m Member) string { return m.AgentID })
}

// ServingCount is the number of members that may get work.
func (c *Cluster) ServingCount() int { return count(c.Members, (*Member).Serving) }

func count[T any](all []T, pass func(*T) bool) int {
	n := 0
	for i := range all {
		if pass(&all[i]) {
			n++
		}
	}
	return n
}

// maxNotes bounds the notes in the view of a cluster, in bytes of JSON together: why its members are as they are,
// according to hubs, agents and people. Equal ones count once: packed they take little room.
const maxNotes = 192 << 10

// View is the cluster without replaced processes, which only its workflow needs, and with shorter notes where there are
// many and long ones.
func (c Cluster) View() Cluster {
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		c.Members[i].FencedInstances = nil
	}
	if c.NotesSize() > maxNotes {
		c.Cordons, c.Reductions = slices.Clone(c.Cordons), slices.Clone(c.Reductions)
		c.cutNotes(maxNotes)
	}
	return c
}

// Shorten drops parts of a crowded cluster's state that is larger than Temporal takes: of the replaced processes of
// each agent all but the newest, what members say of their health, and the ends of other notes.
func (c *Cluster) Shorten() {
	for i := range c.Members {
		m := &c.Members[i]
		m.FencedInstances = slices.Clone(m.FencedInstances[max(0, len(m.FencedInstances)-1):])
		if m.Health != nil {
			m.Health = new(*m.Health)
			m.Health.Why = ""
		}
	}
	c.cutNotes(maxNotes)
}

// ForgetReplaced drops all replaced processes and notes, where the state is more than Temporal takes even after
// Shorten. One of the processes that registers again then counts as a new one.
func (c *Cluster) ForgetReplaced() {
	for i := range c.Members {
		c.Members[i].FencedInstances = nil
	}
	c.cutNotes(0)
}

// eachNote calls do with all texts that say why a member is as it is.
func (c *Cluster) eachNote(do func(note *string)) {
	for i := range c.Members {
		m := &c.Members[i]
		do(&m.StatusReason)
		if m.Health != nil {
			do(&m.Health.Why)
		}
	}
	for i := range c.Cordons {
		do(&c.Cordons[i].Reason)
	}
	for i := range c.Reductions {
		do(&c.Reductions[i].Reason)
	}
}

// NotesSize is how long the different notes about members are as JSON, in bytes.
func (c *Cluster) NotesSize() int {
	total := 0
	for _, size := range c.noteSizes() {
		total += size
	}
	return total
}

func (c *Cluster) noteSizes() []int {
	seen, sizes := map[string]bool{}, []int(nil)
	c.eachNote(func(note *string) {
		if *note != "" && !seen[*note] {
			seen[*note], sizes = true, append(sizes, api.JSONSize(*note))
		}
	})
	return sizes
}

// cutNotes cuts the notes about members to most bytes of JSON together: the longest ones, to the same length.
func (c *Cluster) cutNotes(most int) {
	sizes := c.noteSizes()
	slices.Sort(sizes)
	share := 0
	for i, size := range sizes { // short notes leave room for the others
		if share = most / (len(sizes) - i); size > share {
			break
		}
		most -= size
		share = size
	}
	for i := range c.Members {
		if m := &c.Members[i]; m.Health != nil {
			m.Health = new(*m.Health) // a view has the same one
		}
	}
	const ellipsis = "…" // of Shorten
	c.eachNote(func(note *string) {
		if size := api.JSONSize(*note); size > share {
			*note = api.Shorten(*note, max(0, (share-api.JSONSize(ellipsis))*len(*note)/size))
		}
		if *note == ellipsis {
			*note = ""
		}
	})
}

// maxNote bounds a note about a member, in bytes.
const maxNote = 512

// noteOf is a text of an agent or a person as it is kept about a member.
func noteOf(text string) string { return api.Shorten(api.Printable(text), maxNote) }

// Join admits one agent process. The same instance re-attaches and keeps its epoch. A new instance under a known id
// gets a new epoch and fences the older process. It refuses a fenced instance, a credential that no longer counts, and
// a registration that arrives after a later one of the same process.
func (c *Cluster) Join(j Join, hub string, now time.Time) Joined {
	if why := c.refuseToken(j); why != "" {
		return Joined{AgentID: j.AgentID, Refused: why}
	}
	i, known := SearchMember(c.Members, j.AgentID)
	if !known {
		if len(c.Members) >= c.Config.MaxAgents && !dropLongestOffline(c) {
			return Joined{AgentID: j.AgentID, Refused: RefusedFull}
		}
		i, _ = SearchMember(c.Members, j.AgentID)
		c.Members = slices.Insert(c.Members, i, Member{AgentID: j.AgentID, JoinedAt: now})
		c.Reductions.resume(j.AgentID, now)
		if c.LanesUnlisted {
			c.OpenAgentLane(j.AgentID)
		}
	}
	c.Departures.remove(j.AgentID)
	c.Vanished.Back(j.AgentID)
	m := &c.Members[i]
	answer := Joined{AgentID: j.AgentID}
	if death := c.Deaths.Of(j.AgentID, j.Instance); death != nil {
		answer.Refuted = death.Reason
	}
	switch {
	case m.Instance == j.Instance && j.Registration != 0 && j.Registration < m.Registration:
		return Joined{AgentID: j.AgentID, Refused: RefusedLate}
	case m.Instance == j.Instance:
		if answer.GivenUp = m.Status == api.AgentOffline; answer.GivenUp {
			m.Mistakes++
		}
	case slices.Contains(m.FencedInstances, j.Instance):
		return Joined{AgentID: j.AgentID, Refused: RefusedFenced}
	default:
		if m.Instance != "" {
			answer.Replaced = m.Instance
			if m.Hub != hub {
				answer.ReplacedHub = m.Hub
			}
			m.FencedInstances = append(m.FencedInstances, m.Instance)
			if extra := len(m.FencedInstances) - maxFencedKept; extra > 0 {
				m.FencedInstances = slices.Delete(m.FencedInstances, 0, extra)
			}
		}
		c.LastEpoch++
		m.Instance, m.Epoch, m.Relieved, m.Mistakes, m.Failovers = j.Instance, c.LastEpoch, false, 0, 0
	}
	c.Deaths.remove(j.AgentID)
	m.JoinToken, m.Revoked, m.Registration, m.Stopping = j.Token.ID, false, j.Registration, false
	if !j.Resume {
		c.countUse(j.Token, j.AgentID, now)
	}
	answer.Epoch, answer.Mistakes, m.Health = m.Epoch, m.Mistakes, nil // its hub reports its health again
	m.Hub, m.HubLostAt, m.AwaitedUntil, m.AgentProfile = hub, time.Time{}, time.Time{}, j.AgentProfile
	m.Capabilities, m.TaskTypes = api.SortedSet(j.Capabilities), api.SortedSet(j.TaskTypes)
	m.counted = memberSizes{}
	if c.Cordons.Of(m.AgentID) == nil || m.Status == api.AgentOffline {
		m.SetStatus(api.AgentOnline, "", now)
	}
	m.settleCordon(c, now)
	return answer
}

// Apply applies one transition that a hub saw and reports whether it changed anything. It ignores transitions of
// another instance, epoch or earlier registration than the member's present one, and those from a hub that the agent
// left.
func (c *Cluster) Apply(t Transition, hub string) bool {
	i, known := SearchMember(c.Members, t.AgentID)
	if !known {
		return false
	}
	m := &c.Members[i]
	if m.Instance != t.Instance || m.Epoch != t.Epoch || m.Hub != hub || t.Registration != 0 &&
		t.Registration < m.Registration {
		return false
	}
	if t.Status == "" && t.Health != nil {
		return m.setHealth(t.Health)
	}
	if t.Status == api.AgentStopping {
		changed := !m.Stopping
		m.Stopping = true
		return changed
	}
	cordoned := c.Cordons.Of(t.AgentID) != nil
	if t.Left && !cordoned {
		c.Members = slices.Delete(c.Members, i, i+1)
		c.Departures.add(Departure{AgentID: t.AgentID, At: t.At})
		return true
	}
	if t.Left || t.Status == api.AgentOffline {
		changed := m.Connected()
		m.disconnect(c, t.Reason, t.At)
		m.AwaitedUntil = t.AwaitedUntil
		return changed
	}
	if m.Status == t.Status || cordoned {
		return false
	}
	m.SetStatus(t.Status, t.Reason, t.At)
	return true
}

// setHealth records a member's new health and reports whether it changed. A healthy member only has the time since
// when.
func (m *Member) setHealth(h *MemberHealth) bool {
	if m.Health == nil && h.Level == api.HealthHealthy || m.Health != nil && m.Health.Level == h.Level {
		return false
	}
	m.Health = new(*h)
	return true
}

// HealthLevel is the member's level; healthy without a report.
func (m *Member) HealthLevel() api.HealthLevel {
	if m.Health == nil {
		return api.HealthHealthy
	}
	return m.Health.Level
}

// disconnect records that no hub has a session of the agent any more.
func (m *Member) disconnect(c *Cluster, reason string, at time.Time) {
	m.SetStatus(api.AgentOffline, reason, at)
	m.Health, m.HubLostAt = nil, time.Time{}
	if c.Cordons.Of(m.AgentID) != nil {
		m.Hub = ""
		m.settleCordon(c, at)
	}
}

// Hubs are the hubs that have sessions of members now, sorted.
func (c *Cluster) Hubs() []string {
	var hubs []string
	for i := range c.Members {
		if m := &c.Members[i]; m.Connected() && m.HubLostAt.IsZero() {
			hubs = append(hubs, m.Hub)
		}
	}
	return api.SortedSet(hubs)
}

// LoseHub marks the members that are still attached to a lost hub as offline and returns their ids. Where the brake
// held members of the hub, these are all: the others have come back with the hub.
func (c *Cluster) LoseHub(hub string, now time.Time) []string {
	var lost []string
	c.SetBrake(hub, nil)
	held := slices.ContainsFunc(c.Members, func(m Member) bool { return m.Hub == hub && !m.HubLostAt.IsZero() })
	for i := range c.Members {
		m := &c.Members[i]
		if m.Hub == hub && m.Status != api.AgentOffline && (!held || !m.HubLostAt.IsZero()) {
			m.disconnect(c, "its hub was lost and it did not re-attach to another", now)
			lost = append(lost, m.AgentID)
		}
	}
	return lost
}

// SetStatus notes a status, its reason, and since when the member has it.
func (m *Member) SetStatus(s api.AgentStatus, reason string, at time.Time) {
	if m.Status != s {
		m.StatusSince = at
	}
	m.Status, m.StatusReason = s, noteOf(reason)
}

// Forget removes a member that no hub has a session of, with its cordon. A process of it that comes back joins anew. It
// refuses an agent that is no member or is connected.
func (c *Cluster) Forget(agentID string, now time.Time) error {
	i, known := SearchMember(c.Members, agentID)
	switch {
	case !known:
		return fmt.Errorf("the agent is not a member of the cluster")
	case c.Members[i].Connected():
		return fmt.Errorf("the agent is connected: stop it first, or take it out of service with a drain")
	}
	c.Members = slices.Delete(c.Members, i, i+1)
	c.Deaths.remove(agentID)
	c.Cordons = slices.DeleteFunc(c.Cordons, func(k Cordon) bool { return k.AgentID == agentID })
	c.Departures.add(Departure{AgentID: agentID, At: now, Forgotten: true})
	return nil
}

// dropLongestOffline makes room in a full cluster by forgetting the member that has been offline longest.
func dropLongestOffline(c *Cluster) bool {
	oldest := -1
	for i := range c.Members {
		m := &c.Members[i]
		if m.Status == api.AgentOffline && (oldest < 0 || m.StatusSince.Before(c.Members[oldest].StatusSince)) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	c.Members = slices.Delete(c.Members, oldest, oldest+1)
	return true
}

// maxDepartures is how many agents that left are remembered, for the reasons of tasks that are pinned to them.
const maxDepartures = 100

// Departure is an agent that said goodbye, or that a person forgot: it is no member any more.
type Departure struct {
	AgentID   string    `json:"agent_id"`
	At        time.Time `json:"at"`
	Forgotten bool      `json:"forgotten,omitempty"`
}

// Departures are the newest agents that left, oldest first.
type Departures []Departure

// add records an agent that left; beyond the limit the oldest departure is dropped.
func (d *Departures) add(left Departure) {
	d.remove(left.AgentID)
	*d = append(*d, left)
	if extra := len(*d) - maxDepartures; extra > 0 {
		*d = slices.Delete(*d, 0, extra)
	}
}

// remove forgets the departure of an agent that is back.
func (d *Departures) remove(agent string) {
	*d = slices.DeleteFunc(*d, func(d Departure) bool { return d.AgentID == agent })
}

// Of returns how a former member left, if that is known.
func (d Departures) Of(agent string) (Departure, bool) {
	i := slices.IndexFunc(d, func(d Departure) bool { return d.AgentID == agent })
	if i < 0 {
		return Departure{}, false
	}
	return d[i], true
}

// maxHubStarts is how many hubs' starts a cluster remembers.
const maxHubStarts = 50

// HubStart is when a hub's process started, as far as the cluster has seen: at its agents' first join through it.
type HubStart struct {
	Hub     string    `json:"hub"`
	Process string    `json:"process"`
	Since   time.Time `json:"since"`
}

// HubStarts are the newest processes of hubs with agents here, sorted by hub.
type HubStarts []HubStart

// add remembers a hub's process if it is new. Beyond maxHubStarts the oldest is forgotten.
func (l *HubStarts) add(hub, process string, now time.Time) {
	i, known := search(*l, hub, func(s HubStart) string { return s.Hub })
	switch start := (HubStart{hub, process, now}); {
	case !known:
		*l = slices.Insert(*l, i, start)
	case (*l)[i].Process != process:
		(*l)[i] = start
	}
	if len(*l) > maxHubStarts {
		oldest := 0
		for j := range *l {
			if (*l)[j].Since.Before((*l)[oldest].Since) {
				oldest = j
			}
		}
		*l = slices.Delete(*l, oldest, oldest+1)
	}
}

// LastUpset is when the cluster last saw an event that may leave attempts without an agent: an agent that came or went,
// or a hub's new process.
func (c *Cluster) LastUpset() time.Time {
	var last time.Time
	for i := range c.Members {
		last = Later(last, Later(c.Members[i].StatusSince, c.Members[i].JoinedAt))
	}
	for i := range c.HubStarts {
		last = Later(last, c.HubStarts[i].Since)
	}
	for i := range c.Departures {
		last = Later(last, c.Departures[i].At)
	}
	return last
}
