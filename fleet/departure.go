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

// departed remembers an agent that left; the oldest departure gives way.
func (c *Cluster) departed(agent string, at time.Time) {
	c.returned(agent)
	c.Departures = append(c.Departures, Departure{agent, at})
	if extra := len(c.Departures) - maxDepartures; extra > 0 {
		c.Departures = slices.Delete(c.Departures, 0, extra)
	}
}

// returned forgets the departure of an agent that is there again.
func (c *Cluster) returned(agent string) {
	c.Departures = slices.DeleteFunc(c.Departures, func(d Departure) bool { return d.AgentID == agent })
}

// departure is when an agent that is no member left, if that is known.
func (c *Cluster) departure(agent string) (time.Time, bool) {
	for _, d := range c.Departures {
		if d.AgentID == agent {
			return d.At, true
		}
	}
	return time.Time{}, false
}
