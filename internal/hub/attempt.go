package hub

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/event"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// attemptKey names an attempt within a hub.
type attemptKey struct {
	task   string
	number int
}

// attempt is one delivery that a session has or is about to get. The hub's mutex guards it, too.
type attempt struct {
	attemptClaims // as far as known before it is assigned
	session       *session
	sealed        string                // the claims, for the agent
	input         contract.RunTaskInput // empty of one that was taken over from another process of the hub

	span             trace.Span             // of the delivery; nil: none
	trace            propagation.MapCarrier // the trace that the agent gets
	takenAt          time.Time              // when the lane's poll brought it; zero if the agent brought it
	inLane           time.Duration          // how long it had waited in the lane, by Temporal's clock
	assignedAt       time.Time
	deliveredIn      int64       // sequence of the poll whose answer carried it; 0: none yet
	deliveredOn      *connection // that the answer went over
	accepted         bool        // the agent listed it as running
	startedAt        time.Time
	progress         *api.Progress
	marks            []contract.ProgressMark
	checkpoint       json.RawMessage
	checkpointDigest string
	cancelling       bool
	successor        string // who should rather have the next attempt, when this one is lost with its agent
	contested        bool   // a newer process took the agent id from its living agent
	beacons          int64  // the agent's count
	// when the hub last saw a sign of life of the handler, for agents that do not report its age
	aliveAt    time.Time
	evacuation *contract.EvacuateInput // set while a failover by hand or a rebalance takes it off the agent

	health        api.InstanceHealth // by the agent's checks
	healthChanges int64              // as it reports, or as the hub has seen
	healthTurns   int64

	queuedAt  time.Time // when it was queued in its lane; zero: unknown
	published event.Progress

	beatAt    time.Time // last heartbeat sent to Temporal
	beatNeeds bool      // progress or checkpoint changed since
	beatCheck bool      // the checkpoint changed since
	kept      bool      // its agent was asked for what it writes
}

// report is the hub's report of an attempt, for a heartbeat or for its end.
func (a *attempt) report(hub string) contract.AttemptReport {
	r := contract.AttemptReport{Hub: hub, Progress: a.progress, Marks: slices.Clone(a.marks), Begun: a.accepted,
		Awaits: a.Grace > 0}
	r.Checkpoint, r.CheckpointDigest = a.newCheckpoint()
	if a.session != nil {
		r.AgentID, r.Instance, r.Epoch = a.session.agent, a.session.instance, a.session.epoch
	}
	if !a.startedAt.IsZero() {
		r.StartedAt = new(a.startedAt.UTC())
	}
	return r
}

// newCheckpoint is the attempt's checkpoint with its digest, unless it began with the same.
func (a *attempt) newCheckpoint() (json.RawMessage, string) {
	if bytes.Equal(a.checkpoint, a.input.Checkpoint) && a.checkpointDigest == a.input.CheckpointDigest {
		return nil, ""
	}
	return a.checkpoint, a.checkpointDigest
}

// held is the attempt as clusters note that an agent has it.
func (a *attempt) held() cluster.HeldAttempt {
	return cluster.HeldAttempt{TaskID: a.Task, Attempt: a.Attempt}
}

// about is what events of the attempt are about.
func (a *attempt) about() api.EventData {
	about := api.EventData{TaskID: a.Task, Attempt: a.Attempt, TaskType: a.Type, Tenant: a.Tenant}
	if s := a.session; s != nil {
		about.Cluster, about.AgentID, about.Epoch = s.cluster, s.agent, s.epoch
	}
	return about
}

// mayHaveBegun reports whether the agent could have begun the attempt.
func (a *attempt) mayHaveBegun() bool { return a.accepted || a.deliveredIn > 0 }

// apply applies the agent's report of one running attempt; the first report is its acceptance.
func (a *attempt) apply(r protocol.RunningAttempt, now time.Time) {
	if !a.accepted {
		a.accepted, a.startedAt, a.aliveAt = true, now, now
		if r.StartedAt != nil && api.ValidateTime("started_at", *r.StartedAt) == nil {
			a.startedAt = *r.StartedAt
		}
	}
	if a.health != r.Health {
		a.healthChanges++
	}
	a.health, a.healthChanges, a.healthTurns = r.Health, max(a.healthChanges, r.HealthChanges), r.HealthTurns
	if r.Beacons != a.beacons {
		a.beacons, a.aliveAt = r.Beacons, now
	}
	if r.BeaconAge != nil {
		a.aliveAt = now.Add(-max(0, r.BeaconAge.Std()))
	}
	_, key := contract.Locate(r.TaskID)
	ofArray := strings.HasPrefix(key, ".") // these keep neither marks nor checkpoints: an array has many attempts
	if r.Progress != nil {
		p := *r.Progress
		p.Step, p.Message = api.Printable(p.Step), api.Printable(p.Message)
		if a.progress == nil || *a.progress != p {
			a.progress, a.beatNeeds, a.aliveAt = &p, true, now
			if !ofArray {
				a.marks = contract.AddMark(a.marks, p, now)
			}
		}
	}
	if len(r.Checkpoint) > 0 && len(r.Checkpoint) <= api.MaxCheckpointBytes {
		a.aliveAt = now
		if !ofArray {
			a.checkpoint, a.checkpointDigest = r.Checkpoint, r.CheckpointDigest
			a.beatNeeds, a.beatCheck = true, true
		}
	}
}

// beaconAge is the time since the handler's last sign of life, by the agent's report or else by what the hub has seen.
func (a *attempt) beaconAge(r protocol.RunningAttempt, now time.Time) time.Duration {
	if r.BeaconAge != nil {
		return max(0, r.BeaconAge.Std())
	}
	return now.Sub(a.aliveAt)
}
