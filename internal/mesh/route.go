package mesh

import (
	"encoding/json"
	"math"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// The types of failures of a call to a model.
const (
	ErrorRateLimited = "rate_limited"
	ErrorUnavailable = "unavailable"
	ErrorTimeout     = "timeout"
	ErrorContext     = "context_too_long"
	ErrorInvalid     = "invalid_request"
	ErrorAuth        = "auth"
	ErrorRefused     = "refused" // of the content; the agent reports it as final
)

// Cooldown is how long a route rests after its first failure; then twice as long each time.
const Cooldown = 30 * time.Second

// returned is how long a route rests when no agent took its attempt: all are busy, or the provider limits their rate.
const returned = 5 * time.Second

// maxCooldown bounds the rest of a route.
const maxCooldown = 10 * time.Minute

// NextRoute is the route of the next attempt of a task: the first that is not out for the task and does not rest. Where
// all rest, it is the one that is back first, after wait. none says why no route is left; else it is empty.
func NextRoute(
	routes []api.Route, history []api.Attempt, now time.Time,
) (route api.Route, wait time.Duration, none string) {
	tooSmall := 0 // the largest window that was too small
	for i := range history {
		if a := &history[i]; a.Route != nil && a.ErrorType == ErrorContext {
			tooSmall = max(tooSmall, a.Route.Window)
		}
	}
	found := false
	for _, r := range routes {
		rest, out := standing(r, history, now)
		if out || r.Window > 0 && r.Window <= tooSmall {
			continue
		}
		if !found || rest < wait {
			route, wait, found = r, rest, true
		}
		if rest == 0 {
			break
		}
	}
	if !found {
		return route, 0, "no route is left: each provider refused the request or its key, or the conversation is too long"
	}
	return route, wait, ""
}

// standing is how long a route still rests, and whether it is out for the task.
func standing(r api.Route, history []api.Attempt, now time.Time) (rest time.Duration, out bool) {
	pause := Cooldown
	for i := range history {
		a := &history[i]
		if a.Route == nil || a.Route.Provider != r.Provider || a.Route.Model != r.Model {
			continue
		}
		switch a.ErrorType {
		case ErrorInvalid, ErrorAuth, ErrorContext:
			return 0, true
		}
		ended := a.EndedAt
		if ended == nil {
			ended = a.StartedAt // it was lost with its agent
		}
		if a.Outcome == api.AttemptReturned && i == len(history)-1 {
			rest = max(rest, returned)
		}
		switch a.Outcome {
		case api.AttemptFailed, api.AttemptTimedOut, api.AttemptLost:
		default:
			continue // it is not the provider that failed
		}
		if ended == nil {
			continue
		}
		rest = max(0, ended.Add(pause).Sub(now))
		pause = min(2*pause, maxCooldown)
	}
	return rest, false
}

// Reroute decides what follows an attempt without a result, for a task with routes and this history: the next route
// that works, or the end. next is what would follow without routes.
func Reroute(
	spec *api.TaskSpec, history []api.Attempt, next task.Redelivery, now time.Time,
) task.Redelivery {
	if len(spec.Routes) == 0 || next.Status != api.TaskRetryWait && next.Status != api.TaskQueued {
		return next
	}
	last := &history[len(history)-1]
	if next.Wait > 0 && last.Outcome != api.AttemptFailed && spec.Safety() == api.Fenced {
		return next // its agent may go on for so long
	}
	_, wait, none := NextRoute(spec.Routes, history, now)
	switch began := last.Outcome != api.AttemptReturned; {
	case none != "":
		next.Status, next.Why = api.TaskFailed, none+"; last: "+last.Reason
	case began && wait > 0:
		next.Status, next.Wait = api.TaskRetryWait, wait
	case wait == 0 && (began || next.Tally.Returns <= len(spec.Routes)):
		next.Status, next.Wait = api.TaskQueued, 0
	}
	return next
}

// RouteWait is how long an attempt waits for an agent before the next route is tried, after this number of deliveries
// in a row that no agent took; 0: as long as the task may.
func RouteWait(spec *api.TaskSpec, returns int) time.Duration {
	if len(spec.Routes) < 2 {
		return 0
	}
	return min(Cooldown<<min(returns/len(spec.Routes), 8), maxCooldown)
}

// WithRoute is a task's payload with the route of an attempt, as "route".
//
//workflowcheck:ignore
func WithRoute(payload json.RawMessage, route api.Route) json.RawMessage {
	var object map[string]json.RawMessage
	text, err := json.Marshal(route)
	if err != nil || json.Unmarshal(payload, &object) != nil || object == nil {
		return payload // the agent reports what is wrong with it
	}
	object["route"] = text
	if text, err = json.Marshal(object); err != nil {
		return payload
	}
	return text
}

// Usage is what a call of a model took.
type Usage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	CachedTokens int `json:"cached_tokens,omitempty"` // of those in
	// USD is what it cost, where the agent knows the model's prices.
	USD float64 `json:"usd,omitempty"`
}

// mostTaken bounds the usage that a call may report, so that sums of calls stay numbers.
const mostTaken = 1 << 40

// Taken is what a call took, by the result of its task: tokens, in and out, and millionths of a dollar; of each at most
// mostTaken.
//
//workflowcheck:ignore
func Taken(result json.RawMessage) (tokens, microUSD int) {
	var r struct {
		Invocation Usage `json:"invocation"`
	}
	_ = json.Unmarshal(result, &r) // a result that says nothing of tokens counts none
	counted := func(n int) int { return min(max(0, n), mostTaken) }
	tokens = counted(counted(r.Invocation.InputTokens) + counted(r.Invocation.OutputTokens))
	return tokens, int(math.Round(min(max(0, r.Invocation.USD*1e6), mostTaken))) // whole, so that sums are exact
}
