package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// WhyWaiting says in a sentence why a queued task is not running. running holds how many tasks each agent runs now, by
// agent id; agents that are not in it are not known to be busy.
func WhyWaiting(c *Cluster, spec *TaskSpec, running map[string]int) string {
	if spec.Agent != "" {
		return whyPinned(c, spec.Agent, running)
	}
	name := c.Config.Name
	var serving []*Member
	for i := range c.Members {
		if c.Members[i].Serving() {
			serving = append(serving, &c.Members[i])
		}
	}
	if len(serving) == 0 {
		return fmt.Sprintf("no online agent in cluster %s%s", name, countOthers(c))
	}
	capable := slices.DeleteFunc(slices.Clone(serving), func(m *Member) bool { return !HasAll(m.Capabilities, spec.RequiredCapabilities) })
	if len(capable) == 0 {
		return fmt.Sprintf("no online agent of cluster %s has the required capabilities %s", name, strings.Join(spec.RequiredCapabilities, ", "))
	}
	handling := slices.DeleteFunc(slices.Clone(capable), func(m *Member) bool {
		return len(m.TaskTypes) > 0 && !slices.Contains(m.TaskTypes, spec.Type)
	})
	if len(handling) == 0 {
		return fmt.Sprintf("no online agent of cluster %s that could take it handles tasks of type %s", name, spec.Type)
	}
	for _, m := range handling {
		if !busy(m, running) {
			return fmt.Sprintf("waiting for an agent of cluster %s to take it", name)
		}
	}
	scope := ""
	if len(handling) < len(serving) {
		scope = " that could take it"
	}
	if len(handling) == 1 {
		return fmt.Sprintf("the only agent of cluster %s%s is busy", name, scope)
	}
	return fmt.Sprintf("all %d agents of cluster %s%s are busy", len(handling), name, scope)
}

func whyPinned(c *Cluster, agent string, running map[string]int) string {
	m := c.Member(agent)
	switch {
	case m == nil:
		return fmt.Sprintf("agent %s is not in cluster %s; the task waits for it", agent, c.Config.Name)
	case !m.Serving():
		return fmt.Sprintf("agent %s is %s; the task waits for it", agent, statusWords(m.Status))
	case m.Status == AgentSuspect:
		return fmt.Sprintf("agent %s is not answering; the task waits for it", agent)
	case busy(m, running):
		return fmt.Sprintf("agent %s is busy: all of its %d slots are in use", agent, m.MaxTasks)
	}
	return fmt.Sprintf("waiting for agent %s to take it", agent)
}

func busy(m *Member, running map[string]int) bool {
	n, known := running[m.AgentID]
	return known && n >= m.MaxTasks
}

func statusWords(s AgentStatus) string {
	if s == AgentMaintenance {
		return "in maintenance"
	}
	return string(s)
}

// countOthers tells how many members there are that take no work.
func countOthers(c *Cluster) string {
	counts := map[AgentStatus]int{}
	for i := range c.Members {
		counts[c.Members[i].Status]++
	}
	var parts []string
	for _, s := range []AgentStatus{AgentOffline, AgentDraining, AgentMaintenance} {
		if n := counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, statusWords(s)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
