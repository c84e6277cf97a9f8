package diagnosis

import (
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// Unplaced is why no agent of a lane took a task that a hub had from it. What it is about is set by its code.
type Unplaced struct {
	Code    UnplacedCode
	Lacking string    // what the agents lack: free of it, or at all
	Until   time.Time // the first end of the limits of the task's provider
	Exclude []string  // the agents that the task was taken from
}

// UnplacedCode is the kind of reason.
type UnplacedCode int

// The reasons, in the order in which a hub looks for them. From NotBundled on no agent could run the task, busy or not.
const (
	AllBusy        UnplacedCode = iota
	TooLittle                   // of what it asks for is free
	RateLimited                 // is its provider, for all agents that can run it
	NotBundled                  // takes any agent that can run its elements
	OnlyExcluded                // agents can run it
	LeaveProcesses              // do all agents that have its capabilities
	NeverFits                   // on any agent what it asks for
	NotHandled                  // is its type by an agent with its capabilities
)

// Unhandled reports whether no agent could run the task, busy or not.
func (u *Unplaced) Unhandled() bool { return u.Code >= NotBundled }

// WhyUnplaced says why no agent took a task.
func WhyUnplaced(u *Unplaced, spec *api.TaskSpec) string {
	switch u.Code {
	case AllBusy:
		return "every agent that can run it is busy"
	case TooLittle:
		return "too little is free of " + u.Lacking
	case RateLimited:
		return "provider " + spec.Provider + " limits the rate of every agent that can run it, the first until " +
			clockTime(u.Until)
	case NotBundled:
		return "no agent here that can run its elements takes them in bundles"
	case OnlyExcluded:
		return "no agent here can run it but " + strings.Join(u.Exclude, ", ") + ", which it was taken from"
	case LeaveProcesses:
		return "no agent here that has the capabilities it needs runs commands and ends all of their processes when it " +
			"is lost"
	case NeverFits:
		return "no agent here has what it asks for: it lacks " + u.Lacking
	}
	why := "no agent handles type " + spec.Type
	if len(spec.RequiredCapabilities) > 0 {
		why += " and has " + strings.Join(spec.RequiredCapabilities, ", ")
	}
	return why
}
