package events

import (
	"errors"
	"slices"
	"strings"

	"mainstay.dev/mainstay/fleet"
)

// eventFilter is what one listener wants, and may have. It is the one place that decides which events reach it.
type eventFilter struct {
	types               []string // prefixes without fleet.EventPrefix; none: all
	clusters            []string
	agent, task, tenant string
}

// allows reports whether the listener gets an event. A gap concerns everybody whose events may be in it.
func (f *eventFilter) allows(e *fleet.Event) bool {
	if len(f.clusters) > 0 && !slices.Contains(f.clusters, e.Cluster) && (e.Type != fleet.EventGap || e.Cluster != "") {
		return false
	}
	if e.Type == fleet.EventGap {
		return true
	}
	switch {
	case f.tenant != "" && e.Tenant != f.tenant: // what is of no tenant is not for tenants
		return false
	case f.agent != "" && e.AgentID != f.agent && e.PreviousAgentID != f.agent && e.TargetAgentID != f.agent:
		return false
	case f.task != "" && e.TaskID != f.task:
		return false
	}
	return len(f.types) == 0 || slices.ContainsFunc(f.types, func(prefix string) bool { return ofType(e.Type, prefix) })
}

// ofType reports whether a type is the named one, or below it.
func ofType(t fleet.EventType, prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(string(t), fleet.EventPrefix), prefix)
	return ok && (rest == "" || rest[0] == '.' || strings.HasSuffix(prefix, "."))
}

// parseTypes reads the types that a listener asks for: whole ones, or their beginnings.
func parseTypes(list []string) ([]string, error) {
	var prefixes []string
	for _, item := range list {
		for name := range strings.SplitSeq(item, ",") {
			prefix := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(name), fleet.EventPrefix), "*")
			if prefix == "" && name != "*" || !slices.ContainsFunc(fleet.EventTypes,
				func(m fleet.EventMeaning) bool { return prefix == "" || ofType(m.Type, prefix) }) {
				return nil, errors.New(
					"names no type of events, nor the beginning of one, such as agent, task.completed or failover")
			}
			if prefix == "" {
				return nil, nil
			}
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}
