package cluster

import (
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// MaxPauses bounds how many lanes of a cluster are paused one by one.
const MaxPauses = 256

// Pause stops hubs from taking tasks from a lane, or from any lane of a cluster. Running tasks go on.
type Pause struct {
	// Lane is the lane's name; empty: the whole cluster, with the work pinned to its agents.
	Lane   string    `json:"lane,omitempty"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// Pauses are the paused lanes of a cluster, sorted by lane.
type Pauses []Pause

// Pause pauses a lane, or the whole cluster when lane is empty. It reports whether this changes which lanes are served;
// a repeated pause only changes the reason. lane has the form that ParseLane returns.
func (c *Cluster) Pause(lane, reason string, now time.Time) (changed bool, err error) {
	if err := c.MayPause(lane); err != nil {
		return false, err
	}
	i, paused := c.Pauses.search(lane)
	if paused {
		if reason != "" {
			c.Pauses[i].Reason = reason
		}
		return false, nil
	}
	c.Pauses = slices.Insert(c.Pauses, i, Pause{Lane: lane, Since: now, Reason: reason})
	return true, nil
}

// Resume ends the pause of a lane, or of the whole cluster when lane is empty; single lanes then stay paused. It
// reports whether there was a pause.
func (p *Pauses) Resume(lane string) bool {
	i, paused := p.search(lane)
	if paused {
		*p = slices.Delete(*p, i, i+1)
	}
	return paused
}

// Of returns the pause that applies to a lane, or nil. A pause of the whole cluster applies to every lane.
func (p Pauses) Of(lane string) *Pause {
	for _, name := range []string{"", lane} {
		if i, paused := p.search(name); paused {
			return &p[i]
		}
	}
	return nil
}

// Lanes reports whether the whole cluster is paused, and returns the lanes that are paused individually.
func (p Pauses) Lanes() (all bool, lanes []string) {
	for i := range p {
		if p[i].Lane == "" {
			all = true
		} else {
			lanes = append(lanes, p[i].Lane)
		}
	}
	return all, lanes
}

func (p Pauses) search(lane string) (int, bool) {
	return search(p, lane, func(p Pause) string { return p.Lane })
}

// MayPause refuses lanes that the cluster can never have, and pauses beyond MaxPauses. The whole cluster can always be
// paused.
func (c *Cluster) MayPause(lane string) error {
	if lane == "" {
		return nil
	}
	shard, isShard := task.ShardOfLane(lane)
	_, isAgent := task.AgentOfLane(lane)
	_, paused := c.Pauses.search(lane)
	switch sharded := c.Config.ReplicationMode == api.Sharded; {
	case !sharded && isShard:
		return fmt.Errorf("only a sharded cluster has lanes of shards")
	case sharded && !isAgent && (!isShard || shard >= c.Config.Shards):
		return fmt.Errorf(
			"the cluster has no such lane: it is sharded, and its tasks wait in shard/0 to shard/%d, or in agent/<id>", c.Config.Shards-1)
	case !paused && len(c.Pauses) >= MaxPauses:
		return fmt.Errorf("%d lanes are paused already: pause the whole cluster instead, or resume some", MaxPauses)
	}
	return nil
}
