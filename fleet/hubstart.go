package fleet

import (
	"slices"
	"strings"
	"time"
)

// maxHubStarts is how many hubs' starts a cluster remembers.
const maxHubStarts = 50

// HubStart says since when a process plays a hub, as far as the cluster has seen: from its agents' first join through
// it.
type HubStart struct {
	Hub     string    `json:"hub"`
	Process string    `json:"process"`
	Since   time.Time `json:"since"`
}

// HubStarts are the newest processes of the hubs that brought agents, sorted by hub.
type HubStarts []HubStart

// add remembers a hub's process if it is new. Beyond maxHubStarts the oldest is forgotten.
func (l *HubStarts) add(hub, process string, now time.Time) {
	i, known := slices.BinarySearchFunc(*l, hub, func(s HubStart, id string) int { return strings.Compare(s.Hub, id) })
	switch start := (HubStart{hub, process, now}); {
	case !known:
		*l = slices.Insert(*l, i, start)
	case (*l)[i].Process != process:
		(*l)[i] = start
	}
	if len(*l) > maxHubStarts {
		oldest := 0
		for j := range *l {
			if (*l)[j].Since.Before((*l)[oldest].Since) {
				oldest = j
			}
		}
		*l = slices.Delete(*l, oldest, oldest+1)
	}
}

// LastUpset is when the cluster last saw something after which attempts may be left that nobody runs: an agent that
// came or went, or a hub's new process.
func (c *Cluster) LastUpset() time.Time {
	var last time.Time
	for i := range c.Members {
		last = later(last, later(c.Members[i].StatusSince, c.Members[i].JoinedAt))
	}
	for i := range c.HubStarts {
		last = later(last, c.HubStarts[i].Since)
	}
	for i := range c.Departures {
		last = later(last, c.Departures[i].At)
	}
	return last
}
