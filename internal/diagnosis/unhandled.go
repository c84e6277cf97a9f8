package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// UnhandledTask is an open task that no agent could run when it was last offered.
type UnhandledTask struct {
	Type         string
	Agent        string // the agent that it is pinned to; empty: none
	Capabilities []string
	Safety       api.RetrySafety
	Place        api.Demand
	Since        time.Time // when it was first not handled
}

// typesNamed bounds how many task types a problem names.
const typesNamed = 8

// runs reports whether a member can run the task at all.
func (t *UnhandledTask) runs(m *cluster.Member) bool {
	return t.handledBy(m) && m.EndsTree(t.Type, t.Safety) && task.FitsOn(&t.Place, m.Resources)
}

func (t *UnhandledTask) handledBy(m *cluster.Member) bool {
	return api.HasAll(m.Capabilities, t.Capabilities) && m.Handles(t.Type)
}

// group is equal for tasks that get the same text.
func (t *UnhandledTask) group() string {
	return t.Type + " " + t.Agent + " " + strings.Join(api.SortedSet(t.Capabilities), "+") + " " + string(t.Safety) +
		fmt.Sprintf(" %+v", t.Place)
}

// OfUnhandled is about the tasks that no agent of the cluster can run as it is now, one problem for each type, pinned
// agent and set of capabilities. If no agent may take them at all, other problems say so.
func OfUnhandled(c *cluster.Cluster, tasks []UnhandledTask) []api.Problem {
	var problems []api.Problem
	const handled = -1
	index := map[string]int{} // of a group's problem, or handled
	for i := range tasks {
		t := &tasks[i]
		at, seen := index[t.group()]
		if !seen {
			at = handled
			if p, found := unhandled(c, t); found {
				at = len(problems)
				problems = append(problems, p)
			}
			index[t.group()] = at
		}
		if at == handled {
			continue
		}
		p := &problems[at]
		p.Count++
		if !t.Since.IsZero() && (p.Since == nil || t.Since.Before(*p.Since)) {
			p.Since = since(t.Since)
		}
	}
	for i := range problems {
		named(&problems[i])
	}
	return problems
}

// named begins a problem's text with the tasks that it is about.
func named(p *api.Problem) {
	p.What = api.Count(p.Count, "task") + " of type " + p.TaskType + " in cluster " + p.Cluster + ": " + p.What
}

// WhyUnhandled says why no agent of the cluster can run a task; "" if one can, or if none may take it at all.
func WhyUnhandled(c *cluster.Cluster, t *UnhandledTask) string {
	p, _ := unhandled(c, t)
	return api.Reasons(p.What, p.Why)
}

// Blocked reports whether no agent that may be given a task can run it, however busy they are.
func Blocked(c *cluster.Cluster, t *UnhandledTask) bool {
	return !slices.ContainsFunc(takersOf(c, t), t.runs)
}

// unhandled is the problem of one task. Its What says only which agents do not handle the task.
func unhandled(c *cluster.Cluster, t *UnhandledTask) (api.Problem, bool) {
	takers := takersOf(c, t)
	if len(takers) == 0 || slices.ContainsFunc(takers, t.runs) {
		return api.Problem{}, false
	}
	handling := only(takers, t.handledBy)
	fitting := only(handling, func(m *cluster.Member) bool { return task.FitsOn(&t.Place, m.Resources) })
	p := api.Problem{
		Severity: api.SeverityWarning,
		Kind:     api.ProblemUnhandled,
		Cluster:  c.Config.Name,
		TaskType: t.Type,
		What:     "no agent handles it",
		Do:       "Start an agent that handles it, or cancel them: they are offered again and again until they expire.",
	}
	required := ""
	if len(t.Capabilities) > 0 {
		required = capabilityWords(t.Capabilities)
		if c.Config.ReplicationMode != api.Sharded {
			p.Lane = task.CapabilityLane(t.Capabilities)
		}
	}
	only := ""
	if t.Agent != "" {
		only, p.Lane, p.Agents = "agent "+t.Agent, task.AgentLane(t.Agent), []string{t.Agent}
	} else if c.Config.ReplicationMode == api.ActivePassive {
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
		p.Do = "Give " + only +
			" a handler for it, or cancel them: they are offered to it again and again until they expire."
	}
	if len(handling) > 0 && len(fitting) == 0 {
		w := Waiting{Spec: &api.TaskSpec{Place: t.Place}}
		p.What = "no agent that handles it has what it asks for"
		p.Why = "it lacks " + w.lacking(handling, false)
		p.Do = "Start an agent that has it, or cancel them: they are offered again and again until they expire."
		return p, true
	}
	if len(fitting) > 0 { // so all that they lack is to end the command's processes
		p.What = "no agent that handles it " + treeEndWords(t.Safety)
		p.Why = "agents of this release on Linux do"
		p.Do = strings.ToUpper(treeEndDo[:1]) + treeEndDo[1:] + "."
		return p, true
	}
	p.Why = whyUnhandled(c, t, takers)
	return p, true
}

// takersOf are the members that may take a task as far as its lane is concerned.
func takersOf(c *cluster.Cluster, t *UnhandledTask) []*cluster.Member {
	if t.Agent == "" && c.Config.ReplicationMode == api.ActivePassive {
		return c.ServersOf(task.DefaultLane, t.Capabilities)
	}
	anyone := c.Config.ReplicationMode == api.Sharded
	var takers []*cluster.Member
	for i := range c.Members {
		m := &c.Members[i]
		if m.Serving() && (m.AgentID == t.Agent || t.Agent == "" &&
			(anyone || api.HasAll(m.Capabilities, t.Capabilities))) {
			takers = append(takers, m)
		}
	}
	return takers
}

// whyUnhandled names an agent that would run the task if it could get it, or else what the takers handle.
func whyUnhandled(c *cluster.Cluster, t *UnhandledTask, takers []*cluster.Member) string {
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case t.Agent != "" || !t.runs(m):
		case m.Serving():
			return fmt.Sprintf("agent %s would, but it does not lead", m.AgentID)
		default:
			return fmt.Sprintf("agent %s would, but it is %s%s", m.AgentID, statusWords(m.Status), sinceWords(m))
		}
	}
	var types []string
	for _, m := range takers {
		types = append(types, m.TaskTypes...)
	}
	types = api.SortedSet(types)
	if len(types) == 0 {
		return ""
	}
	who := "agent " + takers[0].AgentID + " handles "
	if len(takers) > 1 {
		who = api.Count(len(takers), "agent") + " could be given it, and handle "
	}
	return who + listOf(types, typesNamed)
}
