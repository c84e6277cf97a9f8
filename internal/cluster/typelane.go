package cluster

import (
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

// typesSettle is how long the members must differ from the types that share the default lane before these change: a
// restart of agents does not change them.
const typesSettle = time.Minute

// TypeSet is a set of task types.
type TypeSet struct {
	Any  bool     `json:"any,omitempty"`  // all types
	List []string `json:"list,omitempty"` // sorted
}

// TypesOf are the types that the agent handles. An agent without a list handles any.
func TypesOf(p *api.AgentProfile) TypeSet {
	if slices.IsSorted(p.TaskTypes) {
		return TypeSet{len(p.TaskTypes) == 0, p.TaskTypes}
	}
	return TypeSet{List: api.SortedSet(p.TaskTypes)}
}

// Has reports whether a type is in the set.
func (t TypeSet) Has(taskType string) bool { return t.Any || api.HasAll(t.List, []string{taskType}) }

// Covers reports whether all types of another set are in the set.
func (t TypeSet) Covers(other TypeSet) bool {
	return t.Any || !other.Any && api.HasAll(t.List, other.List)
}

// And returns the types that are in both sets.
func (t TypeSet) And(other TypeSet) TypeSet {
	switch {
	case t.Any:
		return other
	case other.Any:
		return t
	}
	var both []string
	for _, taskType := range t.List {
		if other.Has(taskType) {
			both = append(both, taskType)
		}
	}
	return TypeSet{List: both}
}

func (t TypeSet) equal(other TypeSet) bool { return t.Covers(other) && other.Covers(t) }

// LaneTypes are the types of a cluster's tasks that have lanes of their own, and those that share the default lane. The
// zero value: it is not known, so all share it.
type LaneTypes struct {
	Own    []string `json:"own,omitempty"`
	Shared TypeSet  `json:"shared,omitzero"`
}

// Apart reports whether tasks of a type wait in lanes of their own. So do tasks of a type that no member is known to
// handle: in the default lane agents would only take and return them, and they would delay others.
func (t *LaneTypes) Apart(taskType string) bool {
	known := len(t.Own) > 0 || !t.Shared.equal(TypeSet{})
	return slices.Contains(t.Own, taskType) || known && !t.Shared.Has(taskType)
}

// TypeLanes say which types of tasks of an active_active cluster wait in lanes of their own, and which members serve
// the default lane: no slot takes a task from it that its agent cannot run.
type TypeLanes struct {
	// SharedTypes may wait in the default lane; the zero set: it is not known which.
	SharedTypes TypeSet `json:"shared_types,omitzero"`
	// ServingTypes are the types that a member must handle to serve the default lane: SharedTypes while members differ
	// in them; none, so that all members serve it, while no online member handles all of them, or types lack lanes.
	ServingTypes TypeSet `json:"serving_types,omitzero"`
	// OwnTypes have lanes of their own, as others handle them than serve the default lane; so has every type that is
	// not in SharedTypes, if these are known. At most MaxCapabilitySets, sorted.
	OwnTypes []string `json:"own_types,omitempty"`
	// TypesCrowded: a type's lane was refused, so its tasks wait in the default lane.
	TypesCrowded bool `json:"types_crowded,omitempty"`
	// TypesDifferSince is since when other types could share the default lane; zero: none could.
	TypesDifferSince time.Time `json:"types_differ_since,omitzero"`
}

// SettleTypes brings the types that share the default lane, and those with lanes of their own, up to date with the
// members. While none is online, all stays.
func (c *Cluster) SettleTypes(now time.Time) {
	if c.Config.ReplicationMode != api.ActiveActive {
		c.TypeLanes = TypeLanes{}
		return
	}
	var kinds []TypeSet // of the serving members, each once
	for i := range c.Members {
		if m := &c.Members[i]; m.Serving() && !slices.ContainsFunc(kinds, func(k TypeSet) bool {
			return slices.Equal(k.List, m.TaskTypes)
		}) {
			kinds = append(kinds, TypesOf(&m.AgentProfile))
		}
	}
	if len(kinds) == 0 {
		return
	}
	l := &c.TypeLanes
	for again := true; again; {
		again = false
		covering := slices.DeleteFunc(slices.Clone(kinds), func(k TypeSet) bool { return !k.Covers(l.SharedTypes) })
		l.ServingTypes = l.SharedTypes
		if len(covering) == len(kinds) || len(covering) == 0 || l.TypesCrowded {
			l.ServingTypes = TypeSet{}
		}
		if len(covering) == 0 {
			covering = kinds
		}
		target := TypeSet{Any: true}
		for _, k := range covering {
			target = target.And(k)
		}
		switch since := l.TypesDifferSince; {
		case target.equal(l.SharedTypes):
			l.TypesDifferSince = time.Time{}
		case (TypeSet{}).equal(l.SharedTypes), !since.IsZero() && now.Sub(since) >= typesSettle:
			l.SharedTypes, l.TypesDifferSince, again = target, time.Time{}, true
		case since.IsZero():
			l.TypesDifferSince = now
		}
	}
	l.OwnTypes = c.ownTypes(kinds)
	l.TypesCrowded = l.TypesCrowded && len(l.OwnTypes) > 0
}

// Same reports whether submissions find their lanes as before. While nothing is known of the types, all share a lane.
func (l *TypeLanes) Same(before *TypeLanes) bool {
	all := func(t TypeSet) bool { return t.Any || len(t.List) == 0 }
	return slices.Equal(l.OwnTypes, before.OwnTypes) && (l.SharedTypes.equal(before.SharedTypes) ||
		len(l.OwnTypes) == 0 && all(l.SharedTypes) && all(before.SharedTypes))
}

// ownTypes are the types whose handlers are not exactly the members that serve the default lane.
func (c *Cluster) ownTypes(kinds []TypeSet) []string {
	shared, listed := c.SharedTypes, []string(nil)
	for _, k := range kinds {
		listed = append(listed, k.List...)
	}
	own := api.SortedSet(slices.DeleteFunc(listed, func(taskType string) bool {
		return shared.Has(taskType) && !slices.ContainsFunc(kinds, func(k TypeSet) bool {
			return k.Has(taskType) != k.Covers(shared)
		})
	}))
	return own[:min(len(own), MaxCapabilitySets)]
}

// LaneTypes are the part that submissions need.
func (l *TypeLanes) LaneTypes() LaneTypes { return LaneTypes{l.OwnTypes, l.SharedTypes} }

// CrowdTypes records that a type's lane was refused. If a member handles the type, all serve the default lane then.
func (c *Cluster) CrowdTypes(taskType string) {
	handled := slices.ContainsFunc(c.Members, func(m Member) bool { return m.Handles(taskType) })
	c.TypesCrowded = c.TypesCrowded || handled
}

// TypesChangeAt is when the types that share the default lane may change without a change of the members; zero: never.
func (l *TypeLanes) TypesChangeAt() time.Time {
	if l.TypesDifferSince.IsZero() {
		return time.Time{}
	}
	return l.TypesDifferSince.Add(typesSettle)
}
