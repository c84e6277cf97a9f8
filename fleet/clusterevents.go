package fleet

import (
	"slices"
	"time"
)

// ClusterSnapshot is what of a cluster changes with an event.
type ClusterSnapshot struct {
	members  []memberSnapshot
	leader   string
	shards   []string          // owners
	targets  map[string]string // who has each, in an active_active cluster
	reduced  map[string]int    // slots
	pauses   []Pause
	brakes   []BrakeHold
	revision string
}

type memberSnapshot struct {
	agent, instance, hub string
	epoch                int64
	status               AgentStatus
	health               HealthLevel
}

// Snapshot remembers how the cluster stands, for Changes.
func (c *Cluster) Snapshot() *ClusterSnapshot {
	s := &ClusterSnapshot{
		members: make([]memberSnapshot, len(c.Members)), leader: c.Leader, shards: make([]string, len(c.Shards)),
		pauses: slices.Clone(c.Pauses), brakes: slices.Clone(c.BrakeHolds), revision: c.Config.Revision(),
		targets: make(map[string]string, len(c.Targets)), reduced: make(map[string]int, len(c.Reductions)),
	}
	for i := range c.Members {
		m := &c.Members[i]
		s.members[i] = memberSnapshot{m.AgentID, m.Instance, m.Hub, m.Epoch, m.Status, m.HealthLevel()}
	}
	for i := range c.Shards {
		s.shards[i] = c.Shards[i].Owner
	}
	for i := range c.Targets {
		s.targets[c.Targets[i].ID] = c.Targets[i].Agent
	}
	for i := range c.Reductions {
		s.reduced[c.Reductions[i].AgentID] = c.Reductions[i].Slots
	}
	return s
}

// Changes are the events that lead from a snapshot to how the cluster stands now, and the snapshot of that. Two changes
// of one thing between the two are one event, so it is asked after every step.
func (c *Cluster) Changes(was *ClusterSnapshot, now time.Time) ([]Event, *ClusterSnapshot) {
	d, is := clusterChanges{cluster: c, was: was, now: now}, c.Snapshot()
	d.members()
	d.leader()
	d.shards()
	d.targets()
	d.reductions()
	d.pauses()
	d.brakes()
	if is.revision != was.revision {
		d.add(EventClusterConfigured, EventData{})
	}
	return d.events, is
}

type clusterChanges struct {
	cluster *Cluster
	was     *ClusterSnapshot
	now     time.Time
	events  []Event
}

func (d *clusterChanges) add(t EventType, data EventData) { d.addAt(t, d.now, data) }

func (d *clusterChanges) addAt(t EventType, at time.Time, data EventData) {
	data.Cluster = d.cluster.Config.Name
	d.events = append(d.events, Event{Type: t, Time: at.UTC(), EventData: data})
}

// members walks both sorted lists of members.
func (d *clusterChanges) members() {
	old := d.was.members
	for i := range d.cluster.Members {
		m := &d.cluster.Members[i]
		for len(old) > 0 && old[0].agent < m.AgentID {
			d.gone(&old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0].agent == m.AgentID {
			d.member(&old[0], m)
			old = old[1:]
			continue
		}
		d.add(EventAgentJoined, of(m))
	}
	for i := range old {
		d.gone(&old[i])
	}
}

func of(m *Member) EventData {
	return EventData{AgentID: m.AgentID, Epoch: m.Epoch, Hub: m.Hub, Reason: m.StatusReason}
}

func (d *clusterChanges) gone(m *memberSnapshot) {
	at, left := d.cluster.Departures.Of(m.agent)
	reason := "it said goodbye"
	if !left {
		at, reason = d.now, "it was offline for longest, and the cluster was full"
	}
	d.addAt(EventAgentLeft, at, EventData{AgentID: m.agent, Epoch: m.epoch, Hub: m.hub, Reason: reason})
}

// member tells how one member has changed.
func (d *clusterChanges) member(was *memberSnapshot, m *Member) {
	away := was.status == AgentOffline || was.hub == ""
	switch {
	case m.Epoch != was.epoch && !away:
		d.add(EventAgentReplaced, of(m))
	case m.Epoch != was.epoch:
		d.add(EventAgentJoined, of(m))
	case m.Connected() && away:
		d.add(EventAgentRecovered, of(m))
	case m.Hub != was.hub && m.Hub != "":
		d.add(EventAgentMoved, of(m))
	}
	if m.HealthLevel() != was.health && m.Connected() && m.Epoch == was.epoch {
		data := of(m)
		data.Level, data.Reason = string(m.HealthLevel()), ""
		if m.Health != nil {
			data.Reason = m.Health.Why
		}
		d.add(EventAgentHealth, data)
	}
	if m.Status == was.status {
		if m.Hub == "" && was.hub != "" { // in maintenance, and its process has ended
			d.addAt(EventAgentLeft, d.now, EventData{AgentID: m.AgentID, Epoch: m.Epoch, Hub: was.hub,
				Reason: "not connected any more; it stays in " + string(m.Status)})
		}
		return
	}
	switch m.Status {
	case AgentOffline:
		d.addAt(EventAgentLost, m.StatusSince, of(m))
	case AgentSuspect:
		d.addAt(EventAgentSuspect, m.StatusSince, of(m))
	case AgentDraining:
		d.add(EventAgentDraining, d.cordoned(m))
	case AgentMaintenance:
		d.add(EventAgentMaintenance, d.cordoned(m))
	case AgentOnline:
		switch was.status {
		case AgentSuspect:
			d.add(EventAgentRecovered, of(m))
		case AgentDraining, AgentMaintenance:
			d.add(EventAgentInService, of(m))
		}
	}
}

func (d *clusterChanges) cordoned(m *Member) EventData {
	data := of(m)
	if k := d.cluster.Cordons.Of(m.AgentID); k != nil {
		data.ID, data.Reason = k.Drain, k.Reason
	}
	return data
}

func (d *clusterChanges) leader() {
	c := d.cluster
	switch {
	case c.Leader == d.was.leader:
	case c.Leader == "":
		d.add(EventLeaderVacated, EventData{AgentID: d.was.leader})
	default:
		d.add(EventLeaderElected, EventData{AgentID: c.Leader, Epoch: c.LeaderEpoch, PreviousAgentID: d.was.leader})
	}
}

// shards tells of each agent which shards it got and which it gave up.
func (d *clusterChanges) shards() {
	given, taken := map[string][]int{}, map[string][]int{}
	var agents []string
	for i := range d.cluster.Shards {
		was, owner := "", d.cluster.Shards[i].Owner
		if i < len(d.was.shards) {
			was = d.was.shards[i]
		}
		if was == owner {
			continue
		}
		if was != "" {
			taken[was] = append(taken[was], i)
			agents = append(agents, was)
		}
		if owner != "" {
			given[owner] = append(given[owner], i)
			agents = append(agents, owner)
		}
	}
	agents = SortedSet(agents)
	for _, agent := range agents {
		if shards := taken[agent]; len(shards) > 0 {
			d.add(EventShardVacated, EventData{AgentID: agent, Shards: shards})
		}
	}
	for _, agent := range agents {
		if shards := given[agent]; len(shards) > 0 {
			d.add(EventShardAssigned, EventData{AgentID: agent, Shards: shards})
		}
	}
}

func (d *clusterChanges) pauses() {
	paused := func(list []Pause, lane string) bool {
		return slices.ContainsFunc(list, func(p Pause) bool { return p.Lane == lane })
	}
	for _, p := range d.cluster.Pauses {
		if !paused(d.was.pauses, p.Lane) {
			d.add(EventLanePaused, EventData{Lane: p.Lane, Reason: p.Reason})
		}
	}
	for _, p := range d.was.pauses {
		if !paused(d.cluster.Pauses, p.Lane) {
			d.add(EventLaneResumed, EventData{Lane: p.Lane})
		}
	}
}

func (d *clusterChanges) brakes() {
	held := func(list []BrakeHold, hub string) bool {
		return slices.ContainsFunc(list, func(b BrakeHold) bool { return b.Hub == hub })
	}
	for _, b := range d.cluster.BrakeHolds {
		if !held(d.was.brakes, b.Hub) {
			d.add(EventBrakeEngaged, EventData{Hub: b.Hub, Count: b.Lost})
		}
	}
	for _, b := range d.was.brakes {
		if !held(d.cluster.BrakeHolds, b.Hub) {
			d.add(EventBrakeReleased, EventData{Hub: b.Hub})
		}
	}
}

// targets tells of each agent which target it got, or how many.
func (d *clusterChanges) targets() {
	got := map[string][]string{}
	var agents []string
	for i := range d.cluster.Targets {
		t := &d.cluster.Targets[i]
		if t.Agent != "" && d.was.targets[t.ID] != t.Agent {
			got[t.Agent] = append(got[t.Agent], t.ID)
			agents = append(agents, t.Agent)
		}
	}
	for _, agent := range SortedSet(agents) {
		data := EventData{AgentID: agent, Count: len(got[agent])}
		if len(got[agent]) == 1 {
			data.ID = got[agent][0]
			data.PreviousAgentID = d.was.targets[data.ID]
		}
		d.add(EventTargetMoved, data)
	}
}

func (d *clusterChanges) reductions() {
	for i := range d.cluster.Reductions {
		if r := &d.cluster.Reductions[i]; d.was.reduced[r.AgentID] != r.Slots {
			d.add(EventLoadReduced, EventData{AgentID: r.AgentID, Count: r.Slots, Reason: r.Reason})
		}
	}
	for i := range d.cluster.Members {
		agent := d.cluster.Members[i].AgentID
		if _, was := d.was.reduced[agent]; was && !slices.ContainsFunc(d.cluster.Reductions,
			func(r LoadReduction) bool { return r.AgentID == agent }) {
			d.add(EventLoadRestored, EventData{AgentID: agent})
		}
	}
}
