package fleet

import (
	"slices"
	"time"
)

// maxDepartures is how many agents that said goodbye are remembered, so that work pinned to one can say what it waits
// for.
const maxDepartures = 100

// Departure is an agent that said goodbye: it is no member any more.
type Departure struct {
	AgentID string    `json:"agent_id"`
	At      time.Time `json:"at"`
}

// Departures are the newest agents that said goodbye, oldest first.
type Departures []Departure

// add remembers an agent that left; the oldest departure gives way.
func (d *Departures) add(agent string, at time.Time) {
	d.remove(agent)
	*d = append(*d, Departure{agent, at})
	if extra := len(*d) - maxDepartures; extra > 0 {
		*d = slices.Delete(*d, 0, extra)
	}
}

// remove forgets the departure of an agent that is there again.
func (d *Departures) remove(agent string) {
	*d = slices.DeleteFunc(*d, func(d Departure) bool { return d.AgentID == agent })
}

// Of returns when an agent that is no member left, if that is known.
func (d Departures) Of(agent string) (time.Time, bool) {
	i := slices.IndexFunc(d, func(d Departure) bool { return d.AgentID == agent })
	if i < 0 {
		return time.Time{}, false
	}
	return d[i].At, true
}
