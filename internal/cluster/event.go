package cluster

import (
	"cmp"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// Event is something that happened in a fleet. Fields that do not apply are left out.
type Event struct {
	// Seq counts the events of one source: a cluster, or a hub's process. It only grows.
	Seq  int64         `json:"seq,omitempty"`
	Type api.EventType `json:"type"`
	Time time.Time     `json:"time"`
	api.EventData
}

// maxEventReason bounds the text of an event in bytes, since rings hold many.
const maxEventReason = 300

// MaxEventsKept is how many events of a cluster are kept for later readers.
const MaxEventsKept = 512

// tenantEvents are types of events that one tenant can cause in large numbers. A log keeps the newest maxTenantEvents
// of each, so that they leave room for events that concern all.
var tenantEvents = []api.EventType{api.EventScheduleFailed, api.EventQuarantined, api.EventStepCorrected,
	api.EventStepEscalated,
	api.EventDeployment}

const maxTenantEvents = 64

// EventLog is a bounded ring of the newest events of one source.
type EventLog struct {
	// Seq is the number of the newest event ever.
	Seq    int64   `json:"seq"`
	Events []Event `json:"events,omitempty"`
}

// Add appends an event and numbers it; beyond limit the oldest is dropped.
func (l *EventLog) Add(e Event, limit int) {
	l.Seq++
	e.Seq = l.Seq
	e.Reason = api.Shorten(e.Reason, maxEventReason)
	if slices.Contains(tenantEvents, e.Type) {
		l.makeRoom(e.Type)
	}
	l.Events = append(l.Events, e)
	if extra := len(l.Events) - limit; extra > 0 {
		clear(l.Events[:extra]) // what they hold may be freed; the rest stays where it is until append moves it
		l.Events = l.Events[extra:]
	}
}

// makeRoom drops the oldest event of a type that has its share of the log.
func (l *EventLog) makeRoom(of api.EventType) {
	first, n := 0, 0
	for i := len(l.Events) - 1; i >= 0; i-- {
		if l.Events[i].Type == of {
			first, n = i, n+1
		}
	}
	if n >= maxTenantEvents {
		l.Events = slices.Delete(l.Events, first, first+1)
	}
}

// After returns the events after a number, and how many of these were dropped.
func (l *EventLog) After(seq int64) (events []Event, missing int64) {
	if seq >= l.Seq {
		return nil, 0
	}
	if i := slices.IndexFunc(l.Events, func(e Event) bool { return e.Seq > seq }); i >= 0 {
		events = slices.Clone(l.Events[i:])
	}
	return events, l.Seq - seq - int64(len(events))
}

// Since returns the events since a time, and whether older ones of that time may be missing.
func (l *EventLog) Since(t time.Time) (events []Event, missing bool) {
	i := slices.IndexFunc(l.Events, func(e Event) bool { return !e.Time.Before(t) })
	full := l.Seq > int64(len(l.Events))
	if i < 0 {
		return nil, full && len(l.Events) == 0
	}
	events = slices.Clone(l.Events[i:])
	return events, i == 0 && full || l.Seq-events[0].Seq >= int64(len(events)) // some were dropped between
}

// ClusterSnapshot has the parts of a cluster's state whose changes are events.
type ClusterSnapshot struct {
	members  []memberSnapshot
	leader   string
	last     string            // the leader before, while there is none
	shards   []string          // owners
	targets  map[string]string // the agent of each, in an active_active cluster
	reduced  map[string]int    // slots
	pauses   []Pause
	brakes   []BrakeHold
	revision string
}

type memberSnapshot struct {
	agent, instance, hub string
	epoch                int64
	status               api.AgentStatus
	health               api.HealthLevel
}

// Snapshot copies the state for Changes.
func (c *Cluster) Snapshot() *ClusterSnapshot {
	s := &ClusterSnapshot{targets: map[string]string{}, reduced: map[string]int{}}
	s.takeMembers(c)
	s.takeOthers(c)
	return s
}

func (m *Member) snapshot() memberSnapshot {
	return memberSnapshot{m.AgentID, m.Instance, m.Hub, m.Epoch, m.Status, m.HealthLevel()}
}

func (s *ClusterSnapshot) takeMembers(c *Cluster) {
	s.members = slices.Grow(s.members[:0], len(c.Members))
	for i := range c.Members {
		s.members = append(s.members, c.Members[i].snapshot())
	}
}

func (s *ClusterSnapshot) takeOthers(c *Cluster) {
	s.leader, s.last, s.revision = c.Leader, c.LastLeader, c.Config.Revision()
	s.shards = s.shards[:0]
	for i := range c.Shards {
		s.shards = append(s.shards, c.Shards[i].Owner)
	}
	clear(s.targets)
	for i := range c.Targets {
		s.targets[c.Targets[i].ID] = c.Targets[i].Agent
	}
	clear(s.reduced)
	for i := range c.Reductions {
		s.reduced[c.Reductions[i].AgentID] = c.Reductions[i].Slots
	}
	s.pauses, s.brakes = append(s.pauses[:0], c.Pauses...), append(s.brakes[:0], c.BrakeHolds...)
}

// Changes returns the events that lead from a snapshot to the present state, and brings the snapshot up to date. Two
// changes of one thing make one event, so call it after every step. Most steps change no member, and there may be
// thousands, so their part is written only where it differs.
func (c *Cluster) Changes(since *ClusterSnapshot, now time.Time) []Event {
	d, revision := clusterChanges{cluster: c, was: since, now: now}, since.revision
	differ := d.members()
	d.leader()
	d.shards()
	d.targets()
	d.reductions()
	d.pauses()
	d.brakes()
	if differ {
		since.takeMembers(c)
	}
	since.takeOthers(c)
	if since.revision != revision {
		d.add(api.EventClusterConfigured, api.EventData{})
	}
	if c.Scaling != nil {
		d.events, c.Scaling.Events = append(d.events, c.Scaling.Events...), nil
	}
	return d.events
}

type clusterChanges struct {
	cluster *Cluster
	was     *ClusterSnapshot
	now     time.Time
	events  []Event
}

func (d *clusterChanges) add(t api.EventType, data api.EventData) { d.addAt(t, d.now, data) }

func (d *clusterChanges) addAt(t api.EventType, at time.Time, data api.EventData) {
	data.Cluster = d.cluster.Config.Name
	d.events = append(d.events, Event{Type: t, Time: at.UTC(), EventData: data})
}

// members walks both sorted lists of members, and reports whether they differ.
func (d *clusterChanges) members() (differ bool) {
	old := d.was.members
	for i := range d.cluster.Members {
		m := &d.cluster.Members[i]
		if len(old) > 0 && old[0] == m.snapshot() {
			old = old[1:]
			continue
		}
		differ = true
		for len(old) > 0 && old[0].agent < m.AgentID {
			d.gone(&old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0].agent == m.AgentID {
			d.member(&old[0], m)
			old = old[1:]
			continue
		}
		d.add(api.EventAgentJoined, of(m))
	}
	for i := range old {
		d.gone(&old[i])
	}
	return differ || len(old) > 0
}

func of(m *Member) api.EventData {
	return api.EventData{AgentID: m.AgentID, Epoch: m.Epoch, Hub: m.Hub, Reason: m.StatusReason}
}

func (d *clusterChanges) gone(m *memberSnapshot) {
	left, known := d.cluster.Departures.Of(m.agent)
	reason := "it said goodbye"
	switch {
	case !known:
		left.At, reason = d.now, "it was offline for longest, and the cluster was full"
	case left.Forgotten:
		reason = "a person forgot it"
	}
	d.addAt(api.EventAgentLeft, left.At, api.EventData{AgentID: m.agent, Epoch: m.epoch, Hub: m.hub, Reason: reason})
}

// member adds the events of one member's changes.
func (d *clusterChanges) member(was *memberSnapshot, m *Member) {
	away := was.status == api.AgentOffline || was.hub == ""
	switch {
	case m.Epoch != was.epoch && !away:
		d.add(api.EventAgentReplaced, of(m))
	case m.Epoch != was.epoch:
		d.add(api.EventAgentJoined, of(m))
	case m.Connected() && away:
		d.add(api.EventAgentRecovered, of(m))
	case m.Hub != was.hub && m.Hub != "":
		d.add(api.EventAgentMoved, of(m))
	}
	if m.HealthLevel() != was.health && m.Connected() && m.Epoch == was.epoch {
		data := of(m)
		data.Level, data.Reason = string(m.HealthLevel()), ""
		if m.Health != nil {
			data.Reason = m.Health.Why
		}
		d.add(api.EventAgentHealth, data)
	}
	if m.Status == was.status {
		if m.Hub == "" && was.hub != "" { // in maintenance, and its process has ended
			d.addAt(api.EventAgentLeft, d.now, api.EventData{AgentID: m.AgentID, Epoch: m.Epoch, Hub: was.hub,
				Reason: "not connected any more; it stays in " + string(m.Status)})
		}
		return
	}
	switch m.Status {
	case api.AgentOffline:
		d.addAt(api.EventAgentLost, m.StatusSince, of(m))
	case api.AgentSuspect:
		d.addAt(api.EventAgentSuspect, m.StatusSince, of(m))
	case api.AgentDraining:
		d.add(api.EventAgentDraining, d.cordoned(m))
	case api.AgentMaintenance:
		d.add(api.EventAgentMaintenance, d.cordoned(m))
	case api.AgentOnline:
		switch was.status {
		case api.AgentSuspect:
			d.add(api.EventAgentRecovered, of(m))
		case api.AgentDraining, api.AgentMaintenance:
			d.add(api.EventAgentInService, of(m))
		}
	}
}

func (d *clusterChanges) cordoned(m *Member) api.EventData {
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
		d.add(api.EventLeaderVacated, api.EventData{AgentID: d.was.leader})
	default:
		d.add(
			api.EventLeaderElected,
			api.EventData{AgentID: c.Leader, Epoch: c.LeaderEpoch, PreviousAgentID: cmp.Or(d.was.leader, d.was.last)},
		)
	}
}

// shards adds, for each agent, the shards that it got and gave up.
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
	agents = api.SortedSet(agents)
	for _, agent := range agents {
		if shards := taken[agent]; len(shards) > 0 {
			d.add(api.EventShardVacated, api.EventData{AgentID: agent, Shards: shards})
		}
	}
	for _, agent := range agents {
		if shards := given[agent]; len(shards) > 0 {
			d.add(api.EventShardAssigned, api.EventData{AgentID: agent, Shards: shards})
		}
	}
}

func (d *clusterChanges) pauses() {
	same := func(a, b Pause) bool { return a.Lane == b.Lane }
	for _, p := range missing(d.cluster.Pauses, d.was.pauses, same) {
		d.add(api.EventLanePaused, api.EventData{Lane: p.Lane, Reason: p.Reason})
	}
	for _, p := range missing(d.was.pauses, d.cluster.Pauses, same) {
		d.add(api.EventLaneResumed, api.EventData{Lane: p.Lane})
	}
}

func (d *clusterChanges) brakes() {
	same := func(a, b BrakeHold) bool { return a.Hub == b.Hub }
	for _, b := range missing(d.cluster.BrakeHolds, d.was.brakes, same) {
		d.add(api.EventBrakeEngaged, api.EventData{Hub: b.Hub, Count: b.Lost})
	}
	for _, b := range missing(d.was.brakes, d.cluster.BrakeHolds, same) {
		d.add(api.EventBrakeReleased, api.EventData{Hub: b.Hub})
	}
}

// missing returns the items of a list that from does not have.
func missing[T any](list, from []T, same func(a, b T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(t T) bool {
		return slices.ContainsFunc(from, func(o T) bool { return same(t, o) })
	})
}

// targets adds, for each agent, the target that it got, or their number.
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
	for _, agent := range api.SortedSet(agents) {
		data := api.EventData{AgentID: agent, Count: len(got[agent])}
		if len(got[agent]) == 1 {
			data.ID = got[agent][0]
			data.PreviousAgentID = d.was.targets[data.ID]
		}
		d.add(api.EventTargetMoved, data)
	}
}

func (d *clusterChanges) reductions() {
	for i := range d.cluster.Reductions {
		if r := &d.cluster.Reductions[i]; d.was.reduced[r.AgentID] != r.Slots {
			d.add(api.EventLoadReduced, api.EventData{AgentID: r.AgentID, Count: r.Slots, Reason: r.Reason})
		}
	}
	for i := 0; i < len(d.cluster.Members) && len(d.was.reduced) > 0; i++ {
		agent := d.cluster.Members[i].AgentID
		if _, was := d.was.reduced[agent]; was && !slices.ContainsFunc(d.cluster.Reductions,
			func(r LoadReduction) bool { return r.AgentID == agent }) {
			d.add(api.EventLoadRestored, api.EventData{AgentID: agent})
		}
	}
}
