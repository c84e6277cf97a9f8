package contract

// Memo fields of Mainstay's workflows: what lists and descriptions tell without asking a worker.
const (
	// MemoConfig is a cluster's configuration.
	MemoConfig = "config"
	// MemoDigest is fleet.TaskSpec's Digest of a task as it was submitted.
	MemoDigest = "digest"
	// MemoStartAt is when a task may first be delivered, if that was not at once.
	MemoStartAt = "start_at"
	// MemoPriority is a task's priority, once a person has changed it.
	MemoPriority = "priority"
	// MemoDeadLetter is a task's newest fleet.DeadLetter, its cause shortened.
	MemoDeadLetter = "dead_letter"
)
