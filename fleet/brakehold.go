package fleet

import (
	"slices"
	"strings"
	"time"
)

// BrakeHold says that a hub's mass-loss brake is engaged: the failovers of the cluster's agents that it lost wait.
type BrakeHold struct {
	Hub string `json:"hub"`
	// Process is the hub's process: its successor knows nothing of the hold.
	Process string    `json:"process"`
	Since   time.Time `json:"since"`
	// Lost is how many agents had vanished when the hub last told.
	Lost int `json:"lost"`
}

// SetBrake notes how a hub's brake stands; nil: it is not engaged.
func (c *Cluster) SetBrake(hub string, hold *BrakeHold) {
	i, known := slices.BinarySearchFunc(c.BrakeHolds, hub, func(b BrakeHold, name string) int { return strings.Compare(b.Hub, name) })
	switch {
	case hold == nil && known:
		c.BrakeHolds = slices.Delete(c.BrakeHolds, i, i+1)
	case hold == nil:
	case known:
		c.BrakeHolds[i] = *hold
	default:
		c.BrakeHolds = slices.Insert(c.BrakeHolds, i, *hold)
	}
}

// HubProcess notes which process plays a hub now: what an earlier one held is over.
func (c *Cluster) HubProcess(hub, process string, now time.Time) {
	c.HubStarts.add(hub, process, now)
	c.BrakeHolds = slices.DeleteFunc(c.BrakeHolds, func(b BrakeHold) bool { return b.Hub == hub && b.Process != process })
}
