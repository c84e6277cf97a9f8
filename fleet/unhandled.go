package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// UnhandledTask is an open task that no agent could run when it was last offered.
type UnhandledTask struct {
	Type         string
	Agent        string // the one it is pinned to
	Capabilities []string
	Safety       RetrySafety
	Since        time.Time
}

// typesNamed bounds how many task types a problem names.
const typesNamed = 8

// UnhandledTroubles are about those of the tasks that no agent of the cluster can run as it is now, one problem for each type,
// pinned agent and set of capabilities. Where no agent may take them at all, other problems say so.
func (c *Cluster) UnhandledTroubles(tasks []UnhandledTask) []Trouble {
	var problems []Trouble
	index := map[string]int{}
	for i := range tasks {
		t := &tasks[i]
		key := t.Type + " " + t.Agent + " " + strings.Join(sortedSet(t.Capabilities), "+") + " " + string(t.Safety)
		at, seen := index[key]
		if !seen {
			at = -1
			if p, there := c.unhandled(t); there {
				at = len(problems)
				problems = append(problems, p)
			}
			index[key] = at
		}
		if at < 0 {
			continue
		}
		p := &problems[at]
		p.Count++
		if !t.Since.IsZero() && (p.Since == nil || t.Since.Before(*p.Since)) {
			p.Since = since(t.Since)
		}
	}
	for i := range problems {
		p := &problems[i]
		p.What = taskCount(p.Count) + " of type " + p.TaskType + " in cluster " + c.Config.Name + ": " + p.What
	}
	return problems
}

// WhyUnhandled says why no agent of the cluster can run a task; "" if one can, or if none may take it at all.
func (c *Cluster) WhyUnhandled(t *UnhandledTask) string {
	p, there := c.unhandled(t)
	if !there || p.Why == "" {
		return p.What
	}
	return p.What + "; " + p.Why
}

// unhandled is the problem of one task; What is who does not handle it.
func (c *Cluster) unhandled(t *UnhandledTask) (Trouble, bool) {
	takers := c.takersOf(t)
	runs := func(m *Member) bool {
		return HasAll(m.Capabilities, t.Capabilities) && handles(m, t.Type) && m.endsTree(t.Type, t.Safety)
	}
	if len(takers) == 0 || slices.ContainsFunc(takers, runs) {
		return Trouble{}, false
	}
	p := Trouble{Severity: SeverityWarning, Kind: TroubleUnhandled, Cluster: c.Config.Name, TaskType: t.Type,
		What: "no agent handles it", Do: "Start an agent that handles it, or cancel them: they are offered again and again until they expire."}
	required := ""
	if len(t.Capabilities) > 0 {
		required = capabilityWords(sortedSet(t.Capabilities))
		if c.Config.ReplicationMode != Sharded {
			p.Lane = CapabilityLane(t.Capabilities)
		}
	}
	only := ""
	if t.Agent != "" {
		only, p.Lane, p.Agents = "agent "+t.Agent, AgentLane(t.Agent), []string{t.Agent}
	} else if c.Config.ReplicationMode == ActivePassive {
		only = "the leader " + takers[0].AgentID
	}
	switch {
	case only != "" && required != "":
		p.What = only + " does not handle it, or lacks " + required
	case only != "":
		p.What = only + " does not handle it"
	case required != "":
		p.What = "no agent handles it and has " + required
	}
	if only != "" {
		p.Do = "Give " + only + " a handler for it, or cancel them: they are offered to it again and again until they expire."
	}
	able := slices.DeleteFunc(slices.Clone(takers), func(m *Member) bool { return !HasAll(m.Capabilities, t.Capabilities) || !handles(m, t.Type) })
	if lackTreeEnd(able, t.Type, t.Safety) {
		p.What, p.Do = "no agent that handles it "+treeEndWords(t.Safety), strings.ToUpper(treeEndDo[:1])+treeEndDo[1:]+"."
		p.Why = "agents of this release on Linux do"
		return p, true
	}
	p.Why = c.whyUnhandled(takers, runs, t.Agent != "")
	return p, true
}

// takersOf are the members that may take a task as far as its lane is concerned.
func (c *Cluster) takersOf(t *UnhandledTask) []*Member {
	if t.Agent == "" && c.Config.ReplicationMode != Sharded {
		return c.ServersOf(DefaultLane, t.Capabilities)
	}
	var takers []*Member
	for i := range c.Members {
		if m := &c.Members[i]; m.Serving() && (t.Agent == "" || m.AgentID == t.Agent) {
			takers = append(takers, m)
		}
	}
	return takers
}

// whyUnhandled names an agent that would run such tasks if it could be given them, or else what those that are there handle.
func (c *Cluster) whyUnhandled(takers []*Member, runs func(*Member) bool, pinned bool) string {
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case pinned || !runs(m):
		case m.Serving():
			return fmt.Sprintf("agent %s would, but it does not lead", m.AgentID)
		default:
			return fmt.Sprintf("agent %s would, but it is %s%s", m.AgentID, statusWords(m.Status), sinceWords(m))
		}
	}
	var names []string
	for _, m := range takers {
		names = append(names, m.TaskTypes...)
	}
	names = sortedSet(names)
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - typesNamed; n > 0 {
		names, more = names[:typesNamed], fmt.Sprintf(" and %d more", n)
	}
	who := agentCount(len(takers)) + " could be given it, and handle "
	if len(takers) == 1 {
		who = "agent " + takers[0].AgentID + " handles "
	}
	return who + strings.Join(names, ", ") + more
}

func taskCount(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}
