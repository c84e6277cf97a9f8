package contract

import (
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// Memo fields of Mainstay's workflows: what lists and descriptions tell without asking a worker.
const (
	// MemoConfig is a cluster's configuration.
	MemoConfig = "config"
	// MemoCapabilities are a task's required capabilities: they say why it waits.
	MemoCapabilities = "required_capabilities"
	// MemoSafety is a task's retry safety, unless it is idempotent: it, too, says why it waits.
	MemoSafety = "retry_safety"
	// MemoSchedule is the full name of the schedule that made a task.
	MemoSchedule = "schedule"
	// MemoBulk is the BulkSpec of a bulk operation, its ids left out.
	MemoBulk = "bulk"
	// MemoDigest is fleet.TaskSpec's Digest of a task as it was submitted.
	MemoDigest = "digest"
	// MemoStartAt is when a task may first be delivered, if that was not at once.
	MemoStartAt = "start_at"
	// MemoPriority is a task's priority, once a person has changed it.
	MemoPriority = "priority"
	// MemoHealing is the HealingNote of a healing action.
	MemoHealing = "healing"
	// MemoTrace is the id of the trace in which a task was submitted, if it is recorded.
	MemoTrace = "trace"
	// MemoDeadLetter is a task's newest fleet.DeadLetter, its cause shortened.
	MemoDeadLetter = "dead_letter"
)

// Decode reads a field of a memo or a search attribute. It reports whether it is there and can be read.
func Decode(field *commonpb.Payload, into any) bool {
	return field != nil && converter.GetDefaultDataConverter().FromPayload(field, into) == nil
}
