package fleet

// MovedPriority is the priority of a task that was lost with its agent: one level ahead of its own, so that it does not
// wait again behind tasks queued after it.
func MovedPriority(p Priority) Priority { return max(PriorityCritical, p.OrDefault()-1) }
