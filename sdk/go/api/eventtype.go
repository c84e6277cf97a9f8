package api

import (
	"strings"
	"time"
)

// EventType is the type of an event, in the form dev.mainstay.<subject>.<what>, as in CloudEvents.
type EventType string

// EventPrefix begins every type. Filters may leave it out.
const EventPrefix = "dev.mainstay."

// The types of events. EventTypes has their meanings.
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
	EventAgentEnded       EventType = EventPrefix + "agent.ended"
	EventProofRefuted     EventType = EventPrefix + "agent.proof_refuted"
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
	EventQuarantined     EventType = EventPrefix + "inbound.quarantined"

	EventRolloutStarted   EventType = EventPrefix + "rollout.started"
	EventRolloutWaiting   EventType = EventPrefix + "rollout.waiting"
	EventRolloutPromoted  EventType = EventPrefix + "rollout.promoted"
	EventRolloutSucceeded EventType = EventPrefix + "rollout.succeeded"
	EventRolloutFailed    EventType = EventPrefix + "rollout.failed"
	EventRolloutReverted  EventType = EventPrefix + "rollout.reverted"
	EventRolloutCancelled EventType = EventPrefix + "rollout.cancelled"

	EventRunStarted   EventType = EventPrefix + "run.started"
	EventRunBlocked   EventType = EventPrefix + "run.blocked"
	EventRunPaused    EventType = EventPrefix + "run.paused"
	EventRunCompleted EventType = EventPrefix + "run.completed"
	EventRunPartial   EventType = EventPrefix + "run.partial"
	EventRunFailed    EventType = EventPrefix + "run.failed"
	EventRunCancelled EventType = EventPrefix + "run.cancelled"

	EventStepBlocked   EventType = EventPrefix + "step.blocked"
	EventStepCompleted EventType = EventPrefix + "step.completed"
	EventStepPartial   EventType = EventPrefix + "step.partial"
	EventStepSkipped   EventType = EventPrefix + "step.skipped"
	EventStepFailed    EventType = EventPrefix + "step.failed"

	EventStepCorrected EventType = EventPrefix + "step.corrected"
	EventStepEscalated EventType = EventPrefix + "step.escalated"
	EventDeployment    EventType = EventPrefix + "job.deployment"

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
	EventAttemptFailed  EventType = EventPrefix + "task.attempt_failed"
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
	{EventAgentHealth, "an agent's health level changed and stayed so for a while; level is the new one"},
	{EventAgentEnded, "an agent that a spawner started has ended by itself; reason says how, such as its exit code"},
	{EventProofRefuted, "an agent lives although a proof said that it had ended; reason is the proof"},
	{EventLoadReduced, "an agent may use only count slots"},
	{EventLoadRestored, "an agent may use all its slots again"},
	{EventLeaderElected, "an agent leads its cluster, under a new epoch"},
	{EventLeaderVacated, "an agent no longer leads; another is elected when its lease has run out"},
	{EventShardAssigned, "an agent owns these shards now"},
	{EventShardVacated, "an agent no longer owns these shards; others get them when its lease has run out"},
	{EventTargetMoved, "an agent got a target (id), or several (count)"},
	{EventFailoverStarted, "the work and roles of an agent are being moved"},
	{EventFailoverEnded, "a failover has ended; outcome says how"},
	{EventDrainStarted, "agents are being taken out of service"},
	{EventDrainEnded, "a drain has ended; outcome says how"},
	{EventHealing, "a healing action began or has ended; outcome says which, reason what and why"},
	{EventScaling, "the number of agents is being changed to count, or has been; outcome says which"},
	{EventRolloutStarted, "agents that a spawner started begin to be replaced (id) because their settings have changed"},
	{EventRolloutWaiting, "the canaries of a rollout are healthy, and a person is to promote them"},
	{EventRolloutPromoted, "the other agents follow the canaries of a rollout; reason says who wanted it and why"},
	{EventRolloutSucceeded, "all agents have the settings of a rollout"},
	{EventRolloutFailed, "a rollout has failed; reason says why"},
	{EventRolloutReverted, "a rollout to the former settings began; reason says which failure or who wanted it, and why"},
	{EventRolloutCancelled, "a rollout gave way to another, or to settings without rollouts; reason says which"},
	{EventStateSync, "a state sync has ended; outcome says whether the agents' states are equal"},
	{EventScheduleFailed, "a schedule could not make a task because another task has its id; id names the schedule"},
	{EventQuarantined, "an event from outside (id) could not be dispatched, or what it started died; " +
		"it waits for a person; reason says why"},
	{EventRunStarted, "a run (id) of a job was submitted"},
	{EventRunBlocked, "a run cannot go on until a person decides; reason says about what"},
	{EventRunPaused, "a run is paused, and none of its tasks is under way; reason says why"},
	{EventRunCompleted, "a run was completed"},
	{EventRunPartial, "a run was completed, but a step of it only in part"},
	{EventRunFailed, "a run has failed; reason says why"},
	{EventRunCancelled, "a run was cancelled"},
	{EventStepBlocked, "a step of a run (task_id), or an element of its for_each, waits for a person: a review, an " +
		"approval, a failure that is held; reason says for what"},
	{EventStepCompleted, "a step of a run was completed, and its result was accepted"},
	{EventStepPartial, "a step of a run was completed only in part"},
	{EventStepSkipped, "a step of a run is skipped; reason says why"},
	{EventStepFailed, "a step of a run, or an element of its for_each, has failed for good, also because no agent took " +
		"it in time; reason says why"},
	{EventStepCorrected, "the result of a run's step (task_id) was not valid, and it runs again; count says " +
		"how often so far, reason what is wrong"},
	{EventStepEscalated, "the result of a run's step (task_id) is not valid after count tries, and a person decides"},
	{EventDeployment, "a version of a job (id) takes the place of the one before; outcome says where that stands"},
	{EventClusterCreated, "a cluster was created"},
	{EventClusterConfigured, "a cluster's configuration was changed"},
	{EventClusterDeleted, "a cluster was deleted"},
	{EventLanePaused, "nothing is taken from a lane any more, or, without a lane, from any of the cluster"},
	{EventLaneResumed, "a pause was taken back"},
	{EventBrakeEngaged, "so many agents vanished that the network is the likelier culprit: failovers wait"},
	{EventBrakeReleased, "failovers no longer wait"},
	{EventTaskQueued, "a task waits in its lane: it was submitted, or is delivered again"},
	{EventTaskRunning, "an agent has begun an attempt of a task"},
	{EventTaskProgress, "a running task reported progress; at most once a second, and only while somebody listens"},
	{EventTaskRetryWait, "a task waits before its next attempt"},
	{EventAttemptFailed, "an attempt of a task has failed, and none follows by itself; attempt_outcome says how " +
		"it ended, and another event what becomes of the task or its step"},
	{EventTaskReview, "a person must decide about a task"},
	{EventTaskDeadLetter, "a task's attempts are used up; it is kept for a retry"},
	{EventTaskCompleted, "a task was completed"},
	{EventTaskFailed, "a task has failed for good"},
	{EventTaskCancelled, "a task was cancelled"},
	{EventTaskExpired, "no agent took a task in time"},
	{EventGap, "events may be missing here; reason says which: look at the lists again"},
}

// EventAliases are other names by which filters may ask for events: the types without their prefix; with "@" and a type
// of tasks, only where they are the end of an attempt that an agent had.
var EventAliases = map[string][]string{
	"AgentExecutionStarted": {"task.running"},
	"AgentTaskFailed":       {"task.failed", "task.dead_letter", "task.expired", "step.failed", "step.escalated"},
	"AgentHealthChanged":    {"agent.health"},
	"CorrectionAttempted":   {"step.corrected"},
	"ModelInvoked":          endsOf("model"),
	"ToolInvoked":           endsOf("mcp-tool"),
}

func endsOf(taskType string) []string {
	return []string{"task.completed@" + taskType, "task.queued@" + taskType, "task.retry_wait@" + taskType,
		"task.attempt_failed@" + taskType}
}

// TaskEvent is the type of the event for a task's new status.
func TaskEvent(s TaskStatus) EventType { return EventPrefix + "task." + EventType(s) }

// RunEvent is the type of the event for a run's new status.
func RunEvent(status string) EventType { return EventPrefix + "run." + EventType(status) }

// StepEvent is the type of the event for a new status of a run's step.
func StepEvent(status string) EventType { return EventPrefix + "step." + EventType(status) }

// OfRun reports whether an event is about a run itself.
func OfRun(t EventType) bool { return strings.HasPrefix(string(t), EventPrefix+"run.") }

// EventData has the details of an event; the type decides which fields it has.
type EventData struct {
	Cluster string `json:"cluster,omitempty"`
	Tenant  string `json:"tenant,omitempty" doc:"Of a task or a schedule."`
	AgentID string `json:"agent_id,omitempty" doc:"The agent that it is about, or that has the task."`
	Epoch   int64  `json:"epoch,omitempty" doc:"Of the agent's session, or of the role."`
	Hub     string `json:"hub,omitempty"`
	// PreviousAgentID is the previous holder of the leadership, shards or task.
	PreviousAgentID string `json:"previous_agent_id,omitempty" doc:"Who had it before."`
	TargetAgentID   string `json:"target_agent_id,omitempty" doc:"Who takes over."`
	Shards          []int  `json:"shards,omitempty"`

	Job           string         `json:"job,omitempty" doc:"Of a run and its steps."`
	TaskID        string         `json:"task_id,omitempty"`
	TaskType      string         `json:"task_type,omitempty"`
	Attempt       int            `json:"attempt,omitempty" doc:"The attempt's number."`
	AttemptEnd    AttemptOutcome `json:"attempt_outcome,omitempty" doc:"How the attempt before ended."`
	QueuedAt      *time.Time     `json:"queued_at,omitempty" doc:"Of a running task: since when this attempt waited in its lane."`
	NextAttemptAt *time.Time     `json:"next_attempt_at,omitempty" doc:"When the wait ends."`
	Progress      *Progress      `json:"progress,omitempty"`

	// ID is the id of the record: of a failover, a drain or an action; or the target, or the schedule.
	ID string `json:"id,omitempty" doc:"The failover, drain, action, rollout or run that it is part of, or the target, or the schedule."`
	// Lane is the lane that was paused or resumed; empty: the whole cluster.
	Lane    string `json:"lane,omitempty"`
	Count   int    `json:"count,omitempty" doc:"How many: tasks that moved, agents that vanished, slots, events that are missing."`
	Of      int    `json:"of,omitempty" doc:"Of a failover: how many tasks were under way, of which count moved."`
	Level   string `json:"level,omitempty" doc:"The health's level."`
	Outcome string `json:"outcome,omitempty" doc:"How it ended."`
	Reason  string `json:"reason,omitempty" doc:"Why, for people."`
}

// Shorten cuts the end of a text that has more than limit bytes.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
