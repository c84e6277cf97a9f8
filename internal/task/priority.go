package task

import (
	"mainstay.dev/sdk/api"
)

// MovedPriority is the priority of a task that was lost with its agent: one level ahead of its own, so that it does not
// wait again behind tasks queued after it.
func MovedPriority(p api.Priority) api.Priority { return max(api.PriorityCritical, p.OrDefault()-1) }
