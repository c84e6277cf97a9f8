package mesh

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// MaxProblem bounds in bytes why an event was not dispatched, which is kept for each try.
const MaxProblem = 1 << 10

const (
	kept     = 20 // tries, and decisions
	tries    = 5
	firstTry = 500 * time.Millisecond // the wait after it; then twice as long each time
)

// NextTry is how long to wait after the nth try failed; again is false where the event goes into quarantine.
func NextTry(n int) (wait time.Duration, again bool) { return firstTry << (n - 1), n < tries }

// FailEvent notes a try that failed.
func FailEvent(i *api.InboundEvent, why string, now time.Time) {
	i.Tries = append(i.Tries, api.DispatchTry{At: now, Why: why})
	i.Tries = i.Tries[max(0, len(i.Tries)-kept):]
}

// DecideEvent notes what a person decided.
func DecideEvent(i *api.InboundEvent, d api.InboundDecision) {
	i.Decisions = append(i.Decisions, d)
	i.Decisions = i.Decisions[max(0, len(i.Decisions)-kept):]
}

// AddDispatches adds the work that the event has started. Known entries stay as they were.
func AddDispatches(i *api.InboundEvent, dispatches []api.Dispatch) {
	for _, d := range dispatches {
		if !slices.ContainsFunc(i.Dispatches, func(known api.Dispatch) bool { return known.ID == d.ID }) {
			i.Dispatches = append(i.Dispatches, d)
		}
	}
}

// SettleDispatch notes why something that the event started has died; empty: it lives after all. It reports whether the
// event has started it.
func SettleDispatch(i *api.InboundEvent, id, died string) bool {
	at := slices.IndexFunc(i.Dispatches, func(d api.Dispatch) bool { return d.ID == id })
	if at >= 0 {
		i.Dispatches[at].Died = died
	}
	return at >= 0
}

// DeadDispatches are the things that the event started and that have died.
func DeadDispatches(i *api.InboundEvent) (dead []api.Dispatch) {
	for _, d := range i.Dispatches {
		if d.Died != "" {
			dead = append(dead, d)
		}
	}
	return dead
}

// ReviveDispatches records what lives again: the same task, or the run that repeats one.
func ReviveDispatches(i *api.InboundEvent, dispatches []api.Dispatch) {
	for _, d := range dispatches {
		SettleDispatch(i, cmp.Or(d.RetryOf, d.ID), "")
	}
	AddDispatches(i, dispatches)
}

// DispatchKey is the idempotency key with which an event starts something.
func DispatchKey(eventID, target string) string {
	sum := sha256.Sum256([]byte(eventID + ":AgentTaskDispatch:" + target))
	return hex.EncodeToString(sum[:])
}

// RunID is the id of the run that an event starts of a job, by the job's full name. With a key, all events that have it
// start one run.
func RunID(job string, e *api.Envelope, key string) string {
	tenant, name := api.CutTenant(job)
	parts := []string{tenant, e.Attr("source"), e.Attr("id"), name}
	if key != "" {
		parts = []string{tenant, name, key}
	}
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return api.Qualify(tenant, name+"-"+hex.EncodeToString(h.Sum(nil)[:12]))
}
