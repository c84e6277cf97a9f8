package task

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// LaneNeedsOf are the task's needs of its agent, with its type if tasks of the type have lanes of their own; for a task
// with routes, the needs for each provider.
func LaneNeedsOf(s *api.TaskSpec, ownType bool) []api.LaneNeeds {
	taskType := ""
	if ownType {
		taskType = s.Type
	}
	if len(s.Routes) == 0 {
		return []api.LaneNeeds{{
			Capabilities: api.SortedSet(s.RequiredCapabilities), Place: s.Place, Type: taskType}}
	}
	var all []api.LaneNeeds
	for i, r := range s.Routes {
		if !slices.ContainsFunc(s.Routes[:i], func(before api.Route) bool { return before.Provider == r.Provider }) {
			all = append(all, api.LaneNeeds{
				Capabilities: api.SortedSet(s.ForRoute(r).RequiredCapabilities), Place: s.Place, Type: taskType})
		}
	}
	return all
}

// LaneFor is the lane of tasks with these needs. Tasks that ask for resources wait in a lane of their class: hubs take
// from it only while an agent has what the class needs, so a task that fits nowhere delays no other.
func LaneFor(n *api.LaneNeeds) string {
	switch {
	case !n.Place.IsZero():
		sum := sha256.Sum256(n.Words())
		class := hex.EncodeToString(sum[:8])
		if n.Type != "" {
			class = ofType + class
		}
		return fitLanes + class
	case n.Type != "" && len(n.Capabilities) > 0:
		return typeLanes + n.Type + "/" + CapabilityLane(n.Capabilities)
	case n.Type != "":
		return typeLanes + n.Type
	case len(n.Capabilities) > 0:
		return CapabilityLane(n.Capabilities)
	}
	return DefaultLane
}

// IsOpened reports whether a lane is one that tasks must have opened before they wait there.
func IsOpened(lane string) bool {
	return strings.HasPrefix(lane, capLanes) || IsFitLane(lane) || IsTypeLane(lane)
}

// ofType begins the classes of tasks of one type.
const ofType = "t-"

// IsTypeLane reports whether all tasks of a lane have the same type.
func IsTypeLane(lane string) bool {
	return strings.HasPrefix(lane, typeLanes) || strings.HasPrefix(lane, fitLanes+ofType)
}

// TypeOfLane is the type that the name of a lane has; empty: none.
func TypeOfLane(lane string) string {
	rest, _ := strings.CutPrefix(lane, typeLanes)
	taskType, _, _ := strings.Cut(rest, "/")
	if rest == lane {
		return ""
	}
	return taskType
}

// IsFitLane reports whether a lane is one of tasks that ask for resources.
func IsFitLane(lane string) bool { return strings.HasPrefix(lane, fitLanes) }

// Fit is an open lane of tasks that ask for resources, or of one type.
type Fit struct {
	Lane string `json:"lane"`
	api.LaneNeeds
}

// MeetsNeeds reports whether an agent could ever run the lane's tasks.
func MeetsNeeds(n *api.LaneNeeds, p *api.AgentProfile) bool {
	return FitsOn(&n.Place, p.Resources) && api.HasAll(api.SortedSet(p.Capabilities), n.Capabilities) &&
		(n.Type == "" || p.Handles(n.Type))
}

// FitsOn reports whether an agent that has nothing else to do has all of it.
func FitsOn(d *api.Demand, inventory *api.Inventory) bool {
	if d.IsZero() {
		return true
	}
	_, lacking := NewStock(inventory).Allocate(d)
	return lacking == ""
}
