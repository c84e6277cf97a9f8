package fleet

import (
	"slices"
	"strings"
	"time"
)

// EventType says what happened. Types are of the form dev.mainstay.<subject>.<what>, as CloudEvents wants it.
type EventType string

// EventPrefix begins every type. Filters may leave it out.
const EventPrefix = "dev.mainstay."

// The types of events. EventTypes says what each means.
const (
	EventAgentJoined      EventType = EventPrefix + "agent.joined"
	EventAgentReplaced    EventType = EventPrefix + "agent.replaced"
	EventAgentMoved       EventType = EventPrefix + "agent.moved"
	EventAgentSuspect     EventType = EventPrefix + "agent.suspect"
	EventAgentRecovered   EventType = EventPrefix + "agent.recovered"
	EventAgentLost        EventType = EventPrefix + "agent.lost"
	EventAgentLeft        EventType = EventPrefix + "agent.left"
	EventAgentDraining    EventType = EventPrefix + "agent.draining"
	EventAgentMaintenance EventType = EventPrefix + "agent.maintenance"
	EventAgentInService   EventType = EventPrefix + "agent.in_service"
	EventAgentHealth      EventType = EventPrefix + "agent.health"
	EventLoadReduced      EventType = EventPrefix + "agent.load_reduced"
	EventLoadRestored     EventType = EventPrefix + "agent.load_restored"

	EventLeaderElected EventType = EventPrefix + "leader.elected"
	EventLeaderVacated EventType = EventPrefix + "leader.vacated"
	EventShardAssigned EventType = EventPrefix + "shard.assigned"
	EventShardVacated  EventType = EventPrefix + "shard.vacated"
	EventTargetMoved   EventType = EventPrefix + "target.moved"

	EventFailoverStarted EventType = EventPrefix + "failover.started"
	EventFailoverEnded   EventType = EventPrefix + "failover.ended"
	EventDrainStarted    EventType = EventPrefix + "drain.started"
	EventDrainEnded      EventType = EventPrefix + "drain.ended"
	EventHealing         EventType = EventPrefix + "healing.action"
	EventScaling         EventType = EventPrefix + "scaling.action"
	EventStateSync       EventType = EventPrefix + "state_sync.ended"
	EventScheduleFailed  EventType = EventPrefix + "schedule.failed"

	EventClusterCreated    EventType = EventPrefix + "cluster.created"
	EventClusterConfigured EventType = EventPrefix + "cluster.configured"
	EventClusterDeleted    EventType = EventPrefix + "cluster.deleted"
	EventLanePaused        EventType = EventPrefix + "lane.paused"
	EventLaneResumed       EventType = EventPrefix + "lane.resumed"
	EventBrakeEngaged      EventType = EventPrefix + "brake.engaged"
	EventBrakeReleased     EventType = EventPrefix + "brake.released"

	EventTaskQueued     EventType = EventPrefix + "task.queued"
	EventTaskRunning    EventType = EventPrefix + "task.running"
	EventTaskProgress   EventType = EventPrefix + "task.progress"
	EventTaskRetryWait  EventType = EventPrefix + "task.retry_wait"
	EventTaskReview     EventType = EventPrefix + "task.review"
	EventTaskDeadLetter EventType = EventPrefix + "task.dead_letter"
	EventTaskCompleted  EventType = EventPrefix + "task.completed"
	EventTaskFailed     EventType = EventPrefix + "task.failed"
	EventTaskCancelled  EventType = EventPrefix + "task.cancelled"
	EventTaskExpired    EventType = EventPrefix + "task.expired"

	EventGap EventType = EventPrefix + "gap"
)

// EventMeaning is a line of the table of event types.
type EventMeaning struct {
	Type    EventType
	Meaning string
}

// EventTypes lists every type with its meaning.
var EventTypes = []EventMeaning{
	{EventAgentJoined, "an agent is a member now: a new one, or a new process of one that was away"},
	{EventAgentReplaced, "a new process took the id of an agent that was still connected; the older one is fenced"},
	{EventAgentMoved, "an agent is connected to another hub; it goes on with what it runs"},
	{EventAgentSuspect, "an agent's connection closed, or it is silent; it is not yet given up"},
	{EventAgentRecovered, "an agent that was suspect or lost is there again, as the same process"},
	{EventAgentLost, "an agent was given up; its work moves"},
	{EventAgentLeft, "an agent said goodbye, or was forgotten: it is no member any more"},
	{EventAgentDraining, "an agent is given nothing new and finishes what it has"},
	{EventAgentMaintenance, "an agent is out of service on purpose"},
	{EventAgentInService, "an agent is given work again after a drain or maintenance"},
	{EventAgentHealth, "an agent's health has had another level for a while"},
	{EventLoadReduced, "an agent may use fewer slots; count is how many"},
	{EventLoadRestored, "an agent may use all its slots again"},
	{EventLeaderElected, "an agent leads its cluster, under a new epoch"},
	{EventLeaderVacated, "an agent no longer leads; another is elected when its lease has run out"},
	{EventShardAssigned, "an agent owns these shards now"},
	{EventShardVacated, "an agent no longer owns these shards; others get them when its lease has run out"},
	{EventTargetMoved, "an agent looks after a target now, or after so many; id names it if it is one"},
	{EventFailoverStarted, "the work and roles of an agent are being moved"},
	{EventFailoverEnded, "a failover has ended; outcome says how"},
	{EventDrainStarted, "agents are being taken out of service"},
	{EventDrainEnded, "a drain has ended; outcome says how"},
	{EventHealing, "healing begins to do something, or has done it; outcome says which, reason what and why"},
	{EventScaling, "the number of agents is being changed to count, or has been; outcome says which"},
	{EventStateSync, "the agents' states were brought to the same, or could not be"},
	{EventScheduleFailed, "a schedule could not make a task because another task has its id; id names the schedule"},
	{EventClusterCreated, "a cluster was created"},
	{EventClusterConfigured, "a cluster's configuration was changed"},
	{EventClusterDeleted, "a cluster was deleted"},
	{EventLanePaused, "nothing is taken from a lane any more, or, without a lane, from any of the cluster"},
	{EventLaneResumed, "a pause was taken back"},
	{EventBrakeEngaged, "so many agents vanished that the network is the likelier culprit: failovers wait"},
	{EventBrakeReleased, "failovers no longer wait"},
	{EventTaskQueued, "a task waits in its lane: it was submitted, or is delivered again"},
	{EventTaskRunning, "an agent has begun an attempt of a task"},
	{EventTaskProgress, "a running task told how far it is; at most once a second, and only while somebody listens"},
	{EventTaskRetryWait, "a task waits before its next attempt"},
	{EventTaskReview, "a person must decide about a task"},
	{EventTaskDeadLetter, "a task's attempts are used up; it is kept for a retry"},
	{EventTaskCompleted, "a task was completed"},
	{EventTaskFailed, "a task has failed for good"},
	{EventTaskCancelled, "a task was cancelled"},
	{EventTaskExpired, "no agent took a task in time"},
	{EventGap, "events may be missing here; reason says which: look at the lists again"},
}

// TaskEvent is the type of the event that a task has this status now.
func TaskEvent(s TaskStatus) EventType { return EventPrefix + "task." + EventType(s) }

// Event is something that happened in a fleet. Fields that do not apply are left out.
type Event struct {
	// Seq counts the events of one source: a cluster, or a hub's process. It only grows.
	Seq  int64     `json:"seq,omitempty"`
	Type EventType `json:"type"`
	Time time.Time `json:"time"`
	EventData
}

// EventData says more of an event. Which fields there are goes by its type.
type EventData struct {
	Cluster string `json:"cluster,omitempty"`
	Tenant  string `json:"tenant,omitempty" doc:"Of a task or a schedule."`
	AgentID string `json:"agent_id,omitempty" doc:"The agent that it is about, or that has the task."`
	Epoch   int64  `json:"epoch,omitempty" doc:"Of the agent's session, or of the role."`
	Hub     string `json:"hub,omitempty"`
	// PreviousAgentID is who had it before: the leadership, shards, or a task.
	PreviousAgentID string `json:"previous_agent_id,omitempty" doc:"Who had it before."`
	TargetAgentID   string `json:"target_agent_id,omitempty" doc:"Who takes over."`
	Shards          []int  `json:"shards,omitempty"`

	TaskID        string         `json:"task_id,omitempty"`
	TaskType      string         `json:"task_type,omitempty"`
	Attempt       int            `json:"attempt,omitempty" doc:"The attempt's number."`
	AttemptEnd    AttemptOutcome `json:"attempt_outcome,omitempty" doc:"How the attempt before ended."`
	QueuedAt      *time.Time     `json:"queued_at,omitempty" doc:"Of a running task: since when this attempt waited in its lane."`
	NextAttemptAt *time.Time     `json:"next_attempt_at,omitempty" doc:"When the wait ends."`
	Progress      *Progress      `json:"progress,omitempty"`

	// ID is the record that tells more: of a failover, a drain, an action; or the target, or the schedule.
	ID string `json:"id,omitempty" doc:"The failover, drain or action that it is part of, or the target, or the schedule."`
	// Lane is the lane that was paused or resumed; empty: the whole cluster.
	Lane    string `json:"lane,omitempty"`
	Count   int    `json:"count,omitempty" doc:"How many: tasks that moved, agents that vanished, slots, events that are missing."`
	Level   string `json:"level,omitempty" doc:"The health's level."`
	Outcome string `json:"outcome,omitempty" doc:"How it ended."`
	Reason  string `json:"reason,omitempty" doc:"Why, for people."`
}

// maxEventReason bounds the text of an event in bytes: rings hold many.
const maxEventReason = 300

// MaxEventsKept is how many events of a cluster are kept for whoever comes later.
const MaxEventsKept = 512

// EventLog is a bounded ring of the newest events of one source.
type EventLog struct {
	// Seq is that of the newest event ever.
	Seq    int64   `json:"seq"`
	Events []Event `json:"events,omitempty"`
}

// Add appends an event and gives it its number; the oldest of more than limit gives way.
func (l *EventLog) Add(e Event, limit int) {
	l.Seq++
	e.Seq = l.Seq
	if len(e.Reason) > maxEventReason {
		e.Reason = strings.ToValidUTF8(e.Reason[:maxEventReason], "") + "…"
	}
	l.Events = append(l.Events, e)
	if extra := len(l.Events) - limit; extra > 0 {
		l.Events = slices.Delete(l.Events, 0, extra)
	}
}

// After returns the events after a number, and how many of these are no longer kept.
func (l *EventLog) After(seq int64) (events []Event, missing int64) {
	oldest := l.Seq - int64(len(l.Events)) // the number before the oldest that is kept
	if seq < oldest {
		missing, seq = oldest-seq, oldest
	}
	if seq >= l.Seq {
		return nil, missing
	}
	return slices.Clone(l.Events[seq-oldest:]), missing
}

// Since returns the events from a time on, and whether older ones of that time may be missing.
func (l *EventLog) Since(t time.Time) (events []Event, missing bool) {
	i := slices.IndexFunc(l.Events, func(e Event) bool { return !e.Time.Before(t) })
	full := l.Seq > int64(len(l.Events))
	if i < 0 {
		return nil, full && len(l.Events) == 0
	}
	return slices.Clone(l.Events[i:]), i == 0 && full
}
