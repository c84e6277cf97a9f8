package cluster

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// MaxCapabilitySets bounds how many different sets of required capabilities a cluster's tasks may name at a time,
	// and maxCapabilityText the length of their lanes' names together, in bytes.
	MaxCapabilitySets = 256
	maxCapabilityText = 128 << 10
	// LaneIdle is how long a lane of capabilities must be without a task before it is given back.
	LaneIdle = time.Hour
	// laneLooks spaces the looks at lanes, so that one look serves many.
	laneLooks = 10 * time.Minute
	// laneCloses is how long a lane that is to be given back is still served: for tasks of those who believe it open.
	laneCloses = time.Minute
)

// CapabilityLanes are the lanes of a cluster's tasks that require capabilities or resources.
type CapabilityLanes struct {
	// CapabilitySets are the sets of capabilities that tasks required; each has a lane of its own. Every set is sorted.
	CapabilitySets [][]string `json:"capability_sets,omitempty"`
	// Fits are the lanes of tasks that ask for resources, and those of types.
	Fits []task.Fit `json:"fits,omitempty"`
	// LaneUses are those of the sets' lanes that are given back when no task uses them, sorted by lane.
	LaneUses []LaneUse `json:"lane_uses,omitempty"`
}

// LaneUse is a lane of capabilities that is given back when no task uses it.
type LaneUse struct {
	Lane string `json:"lane"`
	// Tenant asked for it first; empty: none.
	Tenant string    `json:"tenant,omitempty"`
	LookAt time.Time `json:"look_at"` // when to look whether a task uses it
	// Closing: nobody used it at the last look. It is served until the next, and whoever needs it must ask again.
	Closing bool `json:"closing,omitempty"`
}

// OpenLane opens the lane of tasks with these needs for a tenant (empty: none), so that hubs poll it until no task uses
// it. It reports whether the lane is open. A tenant may have at most as many lanes as are still free, so that there is
// always one for the next tenant.
func (l *CapabilityLanes) OpenLane(needs api.LaneNeeds, tenant string, now time.Time) bool {
	needs.Capabilities = api.SortedSet(needs.Capabilities)
	lane := task.LaneFor(&needs)
	next := now.Add(LaneIdle).Truncate(laneLooks).Add(laneLooks)
	i, known := searchLaneUse(l.LaneUses, lane)
	if known {
		l.LaneUses[i].LookAt, l.LaneUses[i].Closing = next, false
		return true
	}
	own, text := 0, len(lane)
	fit := task.IsFitLane(lane) || needs.Type != ""
	if fit {
		text += len(needs.Words())
	}
	for j := range l.LaneUses {
		text += len(l.LaneUses[j].Lane)
		if l.LaneUses[j].Tenant == tenant {
			own++
		}
	}
	for i := range l.Fits {
		text += len(l.Fits[i].Words())
	}
	free := MaxCapabilitySets - len(l.CapabilitySets) - len(l.Fits)
	if free == 0 || tenant != "" && own >= free || text > maxCapabilityText {
		return false
	}
	if fit {
		l.Fits = append(l.Fits, task.Fit{Lane: lane, LaneNeeds: needs})
	} else {
		l.CapabilitySets = append(l.CapabilitySets, needs.Capabilities)
	}
	l.LaneUses = slices.Insert(l.LaneUses, i, LaneUse{Lane: lane, Tenant: tenant, LookAt: next})
	return true
}

func searchLaneUse(uses []LaneUse, lane string) (int, bool) {
	return search(uses, lane, func(u LaneUse) string { return u.Lane })
}

// LaneOpen reports whether a lane of capabilities is open, and is not about to be given back.
func (l *CapabilityLanes) LaneOpen(lane string) bool {
	if i, known := searchLaneUse(l.LaneUses, lane); known {
		return !l.LaneUses[i].Closing
	}
	return l.FitOf(lane) != nil ||
		slices.ContainsFunc(l.CapabilitySets, func(set []string) bool { return task.CapabilityLane(set) == lane })
}

// NextLaneLook is when to look whether lanes are used; zero: never.
func (l *CapabilityLanes) NextLaneLook() time.Time {
	var next time.Time
	for i := range l.LaneUses {
		if at := l.LaneUses[i].LookAt; next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// LanesToLookAt are the lanes whose time to be looked at has come.
func (l *CapabilityLanes) LanesToLookAt(now time.Time) []string {
	var lanes []string
	for i := range l.LaneUses {
		if !l.LaneUses[i].LookAt.After(now) {
			lanes = append(lanes, l.LaneUses[i].Lane)
		}
	}
	return lanes
}

// SettleLanes applies what a look that began at a time has found: used are the lanes with tasks. A lane that nobody
// uses is given back if that was so at the look before.
func (l *CapabilityLanes) SettleLanes(used []string, at time.Time) {
	next := at.Add(LaneIdle).Truncate(laneLooks).Add(laneLooks)
	l.LaneUses = slices.DeleteFunc(l.LaneUses, func(u LaneUse) bool {
		if u.LookAt.After(at) || slices.Contains(used, u.Lane) || !u.Closing {
			return false
		}
		l.CapabilitySets = slices.DeleteFunc(l.CapabilitySets, func(set []string) bool {
			return task.CapabilityLane(set) == u.Lane
		})
		l.Fits = slices.DeleteFunc(l.Fits, func(f task.Fit) bool { return f.Lane == u.Lane })
		return true
	})
	for i := range l.LaneUses {
		switch u := &l.LaneUses[i]; {
		case u.LookAt.After(at): // somebody has asked for it meanwhile
		case slices.Contains(used, u.Lane):
			u.LookAt, u.Closing = next, false
		default:
			u.LookAt, u.Closing = at.Add(laneCloses), true
		}
	}
}

// FitOf is what the tasks of a lane need, if they ask for resources or have one type; nil: neither.
func (l *CapabilityLanes) FitOf(lane string) *api.LaneNeeds {
	for i := range l.Fits {
		if l.Fits[i].Lane == lane {
			return &l.Fits[i].LaneNeeds
		}
	}
	return nil
}
