// Package protocol is what agents and hubs say to each other, as JSON over HTTP. It imports only api, so the agent
// library stays free of the hub and of the Temporal SDK. docs/AGENT-PROTOCOL.md describes the same messages for authors
// of agents in other languages.
package protocol

import (
	"encoding/json"
	"iter"
	"time"

	"mainstay.dev/sdk/api"
)

// Paths. {id} is the agent's id.
const (
	RegisterPath = "/api/v1/agents/register"                    // POST Register → Registered
	PollPath     = "/api/v1/agents/{id}/poll"                   // POST Poll → Polled
	ResultPath   = "/api/v1/agents/{id}/tasks/{task_id}/result" // POST Result → ResultAccepted
	LogPath      = "/api/v1/agents/{id}/tasks/{task_id}/log"    // POST Log → LogTaken
	SessionPath  = "/api/v1/agents/{id}/session"                // POST Register → Registered: go on; DELETE: goodbye
	ReadyPath    = "/readyz"                                    // GET: 200 while the hub is in touch with Temporal
)

// SessionHeader has the session token of an agent that registers again.
const SessionHeader = "Mainstay-Session"

// Register opens or re-attaches a session. The same InstanceID re-attaches: it keeps its epoch and its running
// attempts. A new InstanceID under the same AgentID fences the older process.
type Register struct {
	AgentID      string `json:"agent_id" doc:"Lower-case slug, unique in the namespace."`
	InstanceID   string `json:"instance_id" minLength:"8" maxLength:"64" pattern:"^[0-9A-Za-z._:-]+$" doc:"Random, new for each process."`
	Registration int64  `json:"registration,omitempty" minimum:"1" doc:"Counts the registrations that this process sends, from 1. One that arrives after a later one is refused."`
	Cluster      string `json:"cluster"`
	api.AgentProfile
	Providers api.Providers    `json:"providers,omitempty" doc:"Access to outside services that tasks may name as provider."`
	Running   []RunningAttempt `json:"running,omitempty" maxItems:"10000" doc:"Attempts this process still runs, when it re-attaches."`
	// Bundles: the agent knows assignments with elements. One that does not is given elements one by one.
	Bundles bool `json:"bundles,omitempty" doc:"The agent takes assignments with elements. Left out: it is given the elements of arrays one by one."`
}

// Registered is the hub's answer to Register.
type Registered struct {
	SessionToken string `json:"session_token" doc:"Send as Authorization: Bearer on poll, result and goodbye."`
	Epoch        int64  `json:"epoch"`
	HubID        string `json:"hub_id"`
	// HeartbeatInterval is the longest a poll is held, and so the longest between two polls.
	HeartbeatInterval api.Duration `json:"heartbeat_interval"`
	// FailureThreshold is the silence after which the hub gives the session up.
	FailureThreshold api.Duration `json:"failure_threshold"`
	// Lease is how long after *sending* a poll that was answered the agent may go on with fenced work.
	Lease api.Duration `json:"lease"`
}

// RunningAttempt is one attempt the agent has, as it reports it in every poll.
type RunningAttempt struct {
	TaskID     string          `json:"task_id" maxLength:"127"`
	Attempt    int             `json:"attempt"`
	Token      string          `json:"token,omitempty" doc:"The attempt token. Required in register and in the first poll that lists the attempt."`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	Progress   *api.Progress   `json:"progress,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty" doc:"Newest checkpoint, when it changed since the last poll."`
	// CheckpointDigest goes with the checkpoint wherever that goes.
	CheckpointDigest string `json:"checkpoint_digest,omitempty" maxLength:"64" doc:"The SHA-256, in hex, of the checkpoint with sorted keys and without blanks. It comes back with it, and an agent that finds another gives the attempt up with the error_type checkpoint_damaged. Left out: nobody looks."`
	// Beacons counts signs of life from the handler itself, and BeaconAge is how long ago the last one was. A task's
	// beacon_timeout watches them.
	Beacons   int64         `json:"beacons,omitempty"`
	BeaconAge *api.Duration `json:"beacon_age,omitempty" least:"0s" doc:"For a task with a beacon_timeout: how long ago its handler last gave a sign of life."`
	// Unreadable belongs to Poll.Returned: why the agent cannot read the assignment. It does not repeat what stood
	// there.
	Unreadable string `json:"unreadable,omitempty" maxLength:"512" doc:"Under returned: why the agent cannot read the assignment. A task that agents cannot read becomes a dead letter."`
	// Health is what the checks of an instance have found.
	Health api.InstanceHealth `json:"health,omitempty" enum:"starting,passing,failing" doc:"Of an instance with a health check: how well it is."`
	// HealthChanges shows that health has changed and changed back between two polls.
	HealthChanges int64 `json:"health_changes,omitempty" minimum:"0" doc:"How often health has changed since the attempt began. Left out: what happens between two polls is not known."`
	// HealthTurns shows single checks, which health does not show at once.
	HealthTurns int64 `json:"health_turns,omitempty" minimum:"0" doc:"How often its checks began to fail or to pass again since they first passed; odd while they fail. Left out: they pass while health is passing."`
	// PortInUse belongs to Poll.Returned: a port of the assignment's allocation that cannot be listened on.
	PortInUse int `json:"port_in_use,omitempty" minimum:"1" maximum:"65535" doc:"Under returned: a port of the allocation that the agent cannot listen on. The hub gives the task another, and this one to nobody for a while."`
	// State is set once the handler must end.
	State RunningState `json:"state,omitempty" enum:"ending,stuck" doc:"Absent: it runs. ending: it was told to stop. stuck: it was told to stop and does not; its slot stays in use."`
}

// RunningState is the state of an attempt's handler that was asked to stop.
type RunningState string

// The states of an attempt that an agent has. It runs while there is none.
const (
	RunningEnding RunningState = "ending"
	RunningStuck  RunningState = "stuck"
)

// Metrics is the agent's report on its own process and host, 0 to 100. Absent values are unknown.
type Metrics struct {
	CPUPercent    *float64 `json:"cpu_percent,omitempty"`
	MemoryPercent *float64 `json:"memory_percent,omitempty"`
	DiskPercent   *float64 `json:"disk_percent,omitempty"`
}

// Bound makes the numbers from 0 to 100. Larger ones could add up to one that JSON does not have.
func (m *Metrics) Bound() {
	for _, percent := range []*float64{m.CPUPercent, m.MemoryPercent, m.DiskPercent} {
		if percent != nil {
			*percent = min(max(*percent, 0), 100)
		}
	}
}

// Counters are totals since the process started.
type Counters struct {
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// Poll asks for work and is the heartbeat. An agent always has exactly one open.
type Poll struct {
	// Sequence grows by one with each poll of a session, so the hub can distinguish a late duplicate from the newest.
	Sequence int64 `json:"sequence"`
	// Answered is the sequence of the newest poll whose answer the agent has read; 0: of none yet. A hub repeats the
	// commands of an answer that was not read. Absent: each poll shows that the answer before it was read.
	Answered *int64           `json:"answered,omitempty" minimum:"0" doc:"The newest poll whose answer was read; 0: none. Absent: the last one was."`
	Running  []RunningAttempt `json:"running,omitempty" maxItems:"10000"`
	Metrics  Metrics          `json:"metrics,omitzero"`
	Counters Counters         `json:"counters,omitzero"`
	// Providers are the outside services that the agent reports; absent: as before.
	Providers api.Providers `json:"providers,omitempty" doc:"Access to outside services, by name; absent: as before."`
	// Health is the agent's own opinion of itself, 0 (failed) to 1 (healthy); absent means 1.
	Health *float64 `json:"health,omitempty" minimum:"0" maximum:"1"`
	// HealthNote says why, in a line for people.
	HealthNote string `json:"health_note,omitempty" maxLength:"200"`
	// Stopping says the agent takes nothing new; it finishes what it runs and then says goodbye.
	Stopping bool `json:"stopping,omitempty"`
	// State describes the state that the agent keeps for its cluster; absent: as before, or it keeps none.
	State *api.StateSummary `json:"state,omitempty" doc:"Of the state that it shares with its cluster; absent: as before."`
	// Returned lists attempts the agent hands back without having begun them.
	Returned []RunningAttempt `json:"returned,omitempty" maxItems:"10000"`
	// Lease is the length that the agent counts with: the newest that it has read.
	Lease api.Duration `json:"lease,omitempty" doc:"The lease that the agent counts with, the newest that it read. Absent: that of its registration for good; then no answer has another."`
}

// Polled is the hub's answer: at once when there is something to say, else empty after the heartbeat interval.
type Polled struct {
	Assignments []Assignment `json:"assignments,omitempty"`
	Commands    []Command    `json:"commands,omitempty"`
	// LeaseHeld is true when this answer does not renew the agent's lease: the hub itself has lost touch with Temporal.
	LeaseHeld bool `json:"lease_held,omitempty" doc:"This answer does not renew the lease; fenced work must stop when it runs out."`
	// Lease is the new length of the lease: the cluster's settings have changed.
	Lease api.Duration `json:"lease,omitempty" doc:"The lease has another length from the renewal by this answer on. Absent: as before. Only for agents whose polls name their lease."`
}

// Assignment gives one attempt to the agent. It counts as accepted when the agent's next poll lists it as running.
type Assignment struct {
	TaskID           string            `json:"task_id"`
	Attempt          int               `json:"attempt"`
	Type             string            `json:"type"`
	Cluster          string            `json:"cluster"`
	Payload          json.RawMessage   `json:"payload,omitempty"`
	Token            string            `json:"token" doc:"Opaque and sealed: only this agent, in this session, can use it."`
	RetrySafety      api.RetrySafety   `json:"retry_safety"`
	Timeout          api.Duration      `json:"timeout,omitempty" doc:"How long the handler may run."`
	Beacon           api.Duration      `json:"beacon_timeout,omitempty"`
	Checkpoint       json.RawMessage   `json:"checkpoint,omitempty" doc:"Newest checkpoint of an earlier attempt."`
	CheckpointDigest string            `json:"checkpoint_digest,omitempty" doc:"What the agent that made the checkpoint sent with it."`
	Labels           map[string]string `json:"labels,omitempty"`
	Tenant           string            `json:"tenant,omitempty"`
	Shard            *int              `json:"shard,omitempty" doc:"The shard of a sharded cluster that the task belongs to."`
	TransferredFrom  string            `json:"transferred_from,omitempty" doc:"The agent that had the attempt before."`
	// Allocation is what the task gets of what it asks for; absent: it asks for nothing.
	Allocation *api.Allocation `json:"allocation,omitempty" doc:"What it gets of the agent's resources, devices, volumes and ports."`
	// Elements make the assignment a bundle: the handler of the type runs for each of them, one after another.
	Elements []api.Element `json:"elements,omitempty" maxItems:"100" doc:"A bundle: run the handler for each of these, one after another, each with the timeout. Only for agents that registered with bundles."`
	// ResultLimit is how many bytes the result may have, or the results of the elements together.
	ResultLimit int `json:"result_limit,omitempty" doc:"How many bytes the output may have as JSON; of a bundle, those of its elements together. Left out: 1 MiB."`
	// Element is the place in its array of an assignment's task that is one element.
	Element        *int          `json:"element,omitempty" doc:"Of a task that is an element of an array: its place there, from 0."`
	StopGrace      *api.Duration `json:"stop_grace,omitempty" least:"0s" doc:"How long the work has to end once it was asked to. Absent: as the agent does by itself."`
	IdempotencyKey string        `json:"idempotency_key,omitempty" doc:"The same for every attempt of the work: the step's of its run, or what the task was submitted with. Absent: the task's id is."`
	DeadlineAt     *time.Time    `json:"deadline_at,omitempty" doc:"When the work ends in any case: the deadline of its step or run. Absent: only the timeout holds."`
	// Instance is set of an assignment whose task is an instance of a job.
	Instance    *api.InstanceOf `json:"instance,omitempty" doc:"Of a task that is an instance of a job: which, and how the agent checks its health."`
	TraceParent string          `json:"traceparent,omitempty" doc:"The W3C trace that the attempt is part of."`
	TraceState  string          `json:"tracestate,omitempty"`
}

// CommandType names what the hub asks of an agent.
type CommandType string

// The commands.
const (
	// CommandCancel stops one attempt: its context is cancelled; report what came of it.
	CommandCancel CommandType = "cancel"
	// CommandDrop stops one attempt whose result no longer counts: report nothing.
	CommandDrop CommandType = "drop"
	// CommandRole gives the agent its role in the cluster.
	CommandRole CommandType = "role"
	// CommandLog asks for the log lines of one attempt that come after a number, with LogPath, and for new ones: as
	// they come for as long as Hold, or once in Every until the hub says that it wants no more.
	CommandLog CommandType = "log"
)

// Command asks something of the agent. Commands may arrive twice.
type Command struct {
	Type    CommandType `json:"type"`
	TaskID  string      `json:"task_id,omitempty"`
	Attempt int         `json:"attempt,omitempty"`
	Role    api.Role    `json:"role,omitempty"`
	Leader  string      `json:"leader,omitempty"`
	Epoch   int64       `json:"epoch,omitempty"`
	Shards  []int       `json:"shards,omitempty"`
	// Targets belong to CommandRole: the deployment targets that the agent looks after.
	Targets []string `json:"targets,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// After, Hold and Every belong to CommandLog.
	After int64        `json:"after,omitempty"`
	Hold  api.Duration `json:"hold,omitempty"`
	Every api.Duration `json:"every,omitempty"`
	// Request, Refs and Entries belong to CommandState and CommandSync.
	Request string           `json:"request,omitempty"`
	Refs    []api.StateRef   `json:"refs,omitempty"`
	Entries []api.StateEntry `json:"entries,omitempty"`
}

// Result reports how an attempt ended. Outcome is completed, failed, timed_out or cancelled. Send it again until it is
// answered:
// 200 accepted, 409 superseded (drop it), other 4xx (drop it and log), 5xx or no answer (retry).
type Result struct {
	Token        string             `json:"token"`
	Attempt      int                `json:"attempt"`
	Outcome      api.AttemptOutcome `json:"outcome" enum:"completed,failed,timed_out,cancelled"`
	Output       json.RawMessage    `json:"output,omitempty" doc:"The result, any JSON up to 1 MiB."`
	Error        string             `json:"error,omitempty" maxLength:"8192"`
	ErrorType    string             `json:"error_type,omitempty" maxLength:"128" doc:"What kind of failure it is; a task may list types that must not be tried again."`
	NonRetryable bool               `json:"non_retryable,omitempty" doc:"The failure is final: do not try again."`
	Stuck        bool               `json:"stuck,omitempty" doc:"With timed_out: the handler ignores that it must stop and may still be at work."`
	// Elements are the results of a bundle, with the outcome completed. Elements that are not listed did not end here,
	// and are delivered again.
	Elements  []api.ElementResult `json:"elements,omitempty" maxItems:"100" doc:"Of a bundle, with the outcome completed: how its elements ended. Those left out were not done, and are delivered again."`
	StartedAt time.Time           `json:"started_at"`
	EndedAt   time.Time           `json:"ended_at"`
	// Log is the end of what the attempt wrote; it is kept with the task. Absent: what the hub has of it is kept.
	Log []api.LogLine `json:"log,omitempty" maxItems:"500" doc:"The end of what the attempt wrote, at most 64 KiB of text. It is kept with the task."`
}

// Outcomes are the outcomes in the result: of the elements of a bundle, or the attempt's own.
func (r *Result) Outcomes() iter.Seq[api.AttemptOutcome] {
	return func(yield func(api.AttemptOutcome) bool) {
		if len(r.Elements) == 0 {
			yield(r.Outcome)
			return
		}
		for i := range r.Elements {
			if !yield(r.Elements[i].Outcome) {
				return
			}
		}
	}
}

// ResultAccepted answers a Result that Temporal has accepted.
type ResultAccepted struct {
	Accepted bool `json:"accepted"`
}

// Problem is an RFC 9457 error body. Code is stable; Detail is for people and never repeats the submitted value.
type Problem struct {
	Type   string             `json:"type,omitempty"`
	Title  string             `json:"title"`
	Status int                `json:"status"`
	Detail string             `json:"detail,omitempty"`
	Code   string             `json:"code"`
	Errors []api.ProblemField `json:"errors,omitempty"`
}

// Codes of problems. A code never changes its meaning.
const (
	CodeInvalidRequest = "invalid_request" // 400 or 422: the body or a parameter is wrong; errors[] says where
	CodeUnauthorized   = "invalid_token"   // 401: the token is missing, forged, revoked, expired or not yours
	CodeForbidden      = "forbidden"       // 403: you are known, and may not do this
	// 403: a web page from elsewhere asks, or by a name that this machine does not have
	CodeCrossOrigin     = "cross_origin"
	CodeRateLimited     = "rate_limited"     // 429: too many requests; Retry-After says when to come back
	CodeUnknownToken    = "unknown_token"    // 404
	CodeNotFound        = "not_found"        // 404
	CodeUnknownCluster  = "unknown_cluster"  // 404
	CodeUnknownTask     = "unknown_task"     // 404
	CodeUnknownAgent    = "unknown_agent"    // 404
	CodeUnknownFailover = "unknown_failover" // 404
	CodeUnknownDrain    = "unknown_drain"    // 404
	CodeUnknownSchedule = "unknown_schedule" // 404
	CodeUnknownBulk     = "unknown_bulk"     // 404
	CodeUnknownJob      = "unknown_job"      // 404
	CodeUnknownRun      = "unknown_run"      // 404
	CodeUnknownArray    = "unknown_array"    // 404
	CodeUnknownEvent    = "unknown_event"    // 404
	CodeUnknownScaling  = "unknown_scaling"  // 404
	CodeUnknownSession  = "unknown_session"  // 409: register again with the same instance_id; running work is kept
	// 403: the agent's join token was revoked, and with it this session; stop
	CodeSessionRevoked   = "session_revoked"
	CodeFenced           = "fenced"               // 409: a newer process has this agent id; stop
	CodeAgentIDInUse     = "agent_id_in_use"      // 409: another cluster has this agent id online
	CodeClusterFull      = "cluster_full"         // 409
	CodeClusterExists    = "cluster_exists"       // 409
	CodeScheduleExists   = "schedule_exists"      // 409
	CodeClusterNotEmpty  = "cluster_not_empty"    // 409
	CodeSuperseded       = "attempt_superseded"   // 409: the attempt no longer counts; drop the result
	CodeIdempotency      = "idempotency_conflict" // 409: the id or idempotency key is that of a task with another body
	CodeConflict         = "conflict"             // 409: not possible in the present state
	CodeMethodNotAllowed = "method_not_allowed"   // 405
	CodePrecondition     = "precondition_failed"  // 412: it was changed since the revision that If-Match names
	CodePayloadTooLarge  = "payload_too_large"    // 413
	CodeNotSupported     = "not_supported"        // 501: this Temporal lacks something that the request needs
	CodeUnavailable      = "temporal_unavailable" // 503: Temporal cannot be reached; retry
	CodeInternal         = "internal"             // 500
)

// Log has lines of an attempt that a hub asked for. It may have none: that says that there are no more yet.
type Log struct {
	Attempt int           `json:"attempt"`
	Lines   []api.LogLine `json:"lines,omitempty" maxItems:"500"`
}

// LogTaken answers a Log.
type LogTaken struct {
	// Watching is false when nobody wants more lines.
	Watching bool `json:"watching"`
}

// StatePath takes what an agent answers to CommandState and CommandSync: POST StateReport → StateTaken.
const StatePath = "/api/v1/agents/{id}/state"

// Commands about the state that the agents of a cluster share. Only an agent that reports its state in its polls gets
// them.
const (
	// CommandState asks for the state, with StatePath: for the manifest, or for the entries that Refs names.
	CommandState CommandType = "state"
	// CommandSync hands the agent Entries to take, and Refs of entries to forget. It answers with StatePath.
	CommandSync CommandType = "sync"
)

// StateReport answers a CommandState or a CommandSync.
type StateReport struct {
	// Request is the command's.
	Request    string           `json:"request" maxLength:"64"`
	State      api.StateSummary `json:"state"`
	CapturedAt time.Time        `json:"captured_at"`
	Manifest   []api.StateLine  `json:"manifest,omitempty" maxItems:"2000" doc:"All entries without their values, when no refs were named."`
	Entries    []api.StateEntry `json:"entries,omitempty" maxItems:"2000" doc:"The entries that were asked for."`
	Error      string           `json:"error,omitempty" maxLength:"1024" doc:"Why entries could not be taken."`
}

// StateTaken answers a StateReport.
type StateTaken struct {
	// Awaited is false when nobody waits for it any more.
	Awaited bool `json:"awaited"`
}
