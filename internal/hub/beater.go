package hub

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// Each attempt heartbeat is a write in Temporal, so they are rare: one soon after the attempt begins, so that observers
// see its agent; one after a change of checkpoint or progress; otherwise one every third of the backstop.
const (
	beatTick       = 50 * time.Millisecond
	beatSweep      = 5 // ticks between two looks at all attempts
	beatFirst      = 200 * time.Millisecond
	beatCheckpoint = time.Second
	beatProgress   = 5 * time.Second
	beatRenew      = api.AttemptBackstop / 3
	beaters        = 8
	// keepFirst is how old an attempt is when its agent is first asked for its log.
	keepFirst = time.Second
	// beatCheckpointBytes bounds the checkpoint in a heartbeat of a run's task. Temporal keeps the newest heartbeat of
	// each attempt under way in the state of its workflow, and ends a workflow whose state has more than 8 MiB, 2 of
	// which may be events that wait for it. Of a run, 100 attempts may be under way: 100 × (40 KiB checkpoint + 8 KiB
	// marks + 5 KiB progress + 1 KiB who has it) = 5.3 MiB. Of an array, 512: 512 × (5 KiB progress + 1 KiB) = 3 MiB.
	beatCheckpointBytes = 40 << 10
)

// beater renews the attempts' heartbeats.
type beater struct{ hub *Hub }

// Run sends the heartbeats that are due until the context ends.
func (b beater) Run(ctx context.Context) {
	ticks := 0
	part.Every(ctx, beatTick, func(now time.Time) {
		due := b.first(now)
		if ticks++; ticks%beatSweep == 0 {
			due = append(due, b.due(now)...)
		}
		parallel.Each(len(due), beaters, func(i int) { b.send(ctx, due[i]) })
	})
}

// dueBeat is one heartbeat to send.
type dueBeat struct {
	attempt *attempt
	report  contract.AttemptReport
}

// first are the first heartbeats that are due. Attempts that have ended by then cost no write. Those that agents bring
// with them are due at once: the hub that had them asks Temporal before it gives them up.
func (b beater) first(now time.Time) []dueBeat {
	h := b.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []dueBeat
	for len(h.fresh) > 0 && (h.fresh[0].takenAt.IsZero() || now.Sub(h.fresh[0].assignedAt) >= beatFirst) {
		a := h.fresh[0]
		h.fresh = h.fresh[1:]
		if a.session.work.attempts[a.key()] == a && a.beatAt.IsZero() {
			due = append(due, b.beat(a, now))
		}
	}
	return due
}

// due are the heartbeats of all attempts that are due.
func (b beater) due(now time.Time) []dueBeat {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	var due []dueBeat
	for _, s := range b.hub.sessions {
		for _, a := range s.work.attempts {
			beats := a.beatDue(now)
			if beats {
				due = append(due, b.beat(a, now))
			}
			if a.accepted && (beats || !a.kept) && now.Sub(a.assignedAt) >= keepFirst {
				a.kept = true
				b.keepLog(a, now)
			}
		}
	}
	return due
}

func (b beater) beat(a *attempt, now time.Time) dueBeat {
	a.beatAt, a.beatNeeds, a.beatCheck = now, false, false
	return dueBeat{a, a.heartbeat(b.hub.id)}
}

// heartbeat is the report that Temporal keeps while the attempt runs. With many attempts in a workflow it lacks large
// parts, and most of a cancelled attempt, which may never end: the next begins beside it. Its hub has the rest.
func (a *attempt) heartbeat(hub string) contract.AttemptReport {
	r := a.report(hub)
	if a.accepted {
		r.AliveAt, r.DeadlineAt = new(a.aliveAt.UTC()), a.input.DeadlineAt
		spec := &a.input.Spec // not known of an attempt that was taken over from another process of the hub
		end := a.startedAt.Add(spec.AttemptTimeout()).UTC()
		if a.input.TaskID != "" && (!spec.KeepRunning || spec.Timeout > 0) &&
			(r.DeadlineAt == nil || end.Before(*r.DeadlineAt)) {
			r.DeadlineAt = &end
		}
	}
	if _, key := contract.Locate(a.Task); key == "" {
		return r
	}
	if a.cancelling {
		r.Progress, r.Marks = nil, nil
	}
	if r.Checkpoint != nil && (a.cancelling || len(r.Checkpoint) > beatCheckpointBytes) {
		r.CheckpointDigest = cmp.Or(r.CheckpointDigest, api.JSONDigest(r.Checkpoint)) // so that its loss is noticed
		r.Checkpoint = nil
	}
	return r
}

// keepLog makes the agent send its log of the attempt, in case that the agent is lost.
func (b beater) keepLog(a *attempt, now time.Time) {
	if c := b.hub.logs.Keep(a.session.agent, a.Task, a.Attempt, now); c != nil {
		a.session.command(*c)
	}
}

func (a *attempt) beatDue(now time.Time) bool {
	if a.beatAt.IsZero() {
		return now.Sub(a.assignedAt) >= beatFirst
	}
	since := now.Sub(a.beatAt)
	return since >= beatRenew || a.beatCheck && since >= beatCheckpoint || a.beatNeeds && since >= beatProgress
}

func (b beater) send(ctx context.Context, d dueBeat) {
	h := b.hub
	details, err := store.AttemptPayloads(d.report, nil)
	if err != nil {
		h.log.Error("A heartbeat cannot be encoded", zap.Error(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cancelled, err := h.store.Heartbeat(ctx, d.attempt.Temporal, details)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case store.KindOf(err) == store.NotFound:
		h.dropLocked(d.attempt, "the attempt no longer counts")
	case err != nil:
		d.attempt.beatNeeds = true // tries again later; the backstop is long
		h.log.Debug("A heartbeat was not taken", zap.Error(err))
	case cancelled:
		h.cancelAttemptLocked(d.attempt)
	default:
		d.attempt.session.work.ever = d.attempt.session.work.ever || d.attempt.accepted
	}
}
