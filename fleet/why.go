package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Waiting is what is known of a queued task.
type Waiting struct {
	Spec *TaskSpec
	// Lane is where it waits; empty: not known.
	Lane string
	// Running is how many tasks each agent runs now, by agent id; agents that are not in it are not known to be busy.
	Running map[string]int
	// Ahead is about how many other tasks of the same or a better priority wait in its lane.
	Ahead int64
}

// WhyWaiting says in a sentence why a queued task is not running.
func WhyWaiting(c *Cluster, w Waiting) string {
	if w.Spec.Agent != "" {
		w.Lane = AgentLane(w.Spec.Agent)
	} else if w.Lane == "" && c.Config.ReplicationMode != Sharded {
		w.Lane = LaneOf(w.Spec)
	}
	if p := c.PauseOf(w.Lane); p != nil {
		return whyPaused(c, p)
	}
	if w.Spec.Agent != "" {
		return whyPinned(c, w)
	}
	var serving []*Member
	for i := range c.Members {
		if c.Members[i].Serving() {
			serving = append(serving, &c.Members[i])
		}
	}
	switch name := c.Config.Name; {
	case len(serving) == 0:
		return fmt.Sprintf("no online agent in cluster %s%s", name, countOthers(c))
	case c.Config.ReplicationMode == ActivePassive:
		if servers := c.ServersOf(DefaultLane, nil); len(servers) == 1 {
			return whyOne(c, servers[0], fmt.Sprintf("agent %s, the leader of cluster %s,", servers[0].AgentID, name), w)
		}
		return fmt.Sprintf("cluster %s has no leader now; it waits for the next%s", name, leaseWords(c.LeaderFreeAt))
	case c.Config.ReplicationMode == Sharded:
		shard, known := ShardOfLane(w.Lane)
		if !known {
			return fmt.Sprintf("waiting for the agent of cluster %s that owns its shard", name)
		}
		if servers := c.ServersOf(w.Lane, nil); len(servers) == 1 {
			return whyOne(c, servers[0], fmt.Sprintf("agent %s, which owns shard %d of cluster %s,", servers[0].AgentID, shard, name), w)
		}
		return fmt.Sprintf("shard %d of cluster %s has no owner now; it waits for the next", shard, name)
	}
	return whyAnyone(c, serving, w)
}

func whyPaused(c *Cluster, p *Pause) string {
	what := "cluster " + c.Config.Name
	if p.Lane != "" {
		what = "lane " + p.Lane + " of " + what
	}
	words := what + " is paused since " + clockTime(p.Since)
	if p.Reason != "" {
		words += ": " + p.Reason
	}
	return words
}

// whyPinned is about a task that only one agent may do.
func whyPinned(c *Cluster, w Waiting) string {
	agent := w.Spec.Agent
	m := c.Member(agent)
	switch {
	case m == nil:
		if at, known := c.departure(agent); known {
			return fmt.Sprintf("agent %s left cluster %s at %s; the task waits for it", agent, c.Config.Name, clockTime(at))
		}
		return fmt.Sprintf("agent %s is not in cluster %s; the task waits for it", agent, c.Config.Name)
	case !m.Serving():
		return fmt.Sprintf("agent %s is %s%s%s; the task waits for it", agent, statusWords(m.Status), sinceWords(m), reasonWords(m))
	}
	return whyOne(c, m, "agent "+agent, w)
}

// whyOne is about a task that only one agent may do now; who names it.
func whyOne(c *Cluster, m *Member, who string, w Waiting) string {
	missing := slices.DeleteFunc(sortedSet(w.Spec.RequiredCapabilities), func(name string) bool { return HasAll(m.Capabilities, []string{name}) })
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("%s does not have %s", who, capabilityWords(missing))
	case !handles(m, w.Spec.Type):
		return fmt.Sprintf("%s does not handle tasks of type %s", who, w.Spec.Type)
	case !m.endsTree(w.Spec.Type, w.Spec.Safety()):
		return fmt.Sprintf("%s is not one that %s: %s", who, treeEndWords(w.Spec.Safety()), treeEndDo)
	case m.Status == AgentSuspect:
		return fmt.Sprintf("%s is not answering%s; the task waits for it", who, sinceWords(m))
	case c.busy(m, w.Running):
		return fmt.Sprintf("%s is busy: %s in use%s%s", who, slotWords(c.EffectiveSlots(m)), c.reducedWords(m), w.aheadWords())
	}
	return "waiting for " + who + " to take it" + w.aheadWords()
}

// whyAnyone is about a task that any capable agent may do.
func whyAnyone(c *Cluster, serving []*Member, w Waiting) string {
	name := c.Config.Name
	capable := slices.DeleteFunc(slices.Clone(serving), func(m *Member) bool { return !HasAll(m.Capabilities, w.Spec.RequiredCapabilities) })
	if len(capable) == 0 {
		return whyIncapable(c, serving, w.Spec.RequiredCapabilities)
	}
	able := slices.DeleteFunc(slices.Clone(capable), func(m *Member) bool { return !handles(m, w.Spec.Type) })
	if len(able) == 0 {
		return fmt.Sprintf("no online agent of cluster %s that could take it handles tasks of type %s", name, w.Spec.Type)
	}
	if lackTreeEnd(able, w.Spec.Type, w.Spec.Safety()) {
		return fmt.Sprintf("no online agent of cluster %s that could take it %s: %s", name, treeEndWords(w.Spec.Safety()), treeEndDo)
	}
	able = slices.DeleteFunc(able, func(m *Member) bool { return !m.endsTree(w.Spec.Type, w.Spec.Safety()) })
	who, slots := fmt.Sprintf("the %d agents of cluster %s", len(able), name), 0
	if len(able) == 1 {
		who = "the only agent of cluster " + name
	}
	if len(able) < len(serving) {
		who += " that could take it"
	}
	answering, free := false, false
	for _, m := range able {
		slots += c.EffectiveSlots(m)
		answering = answering || m.Status != AgentSuspect
		free = free || m.Status != AgentSuspect && !c.busy(m, w.Running)
	}
	switch {
	case !answering && len(able) == 1:
		return who + " is not answering" + brakeWords(c)
	case !answering:
		return "none of " + who + " is answering" + brakeWords(c)
	case !free && slots == 1:
		return fmt.Sprintf("the only slot of %s is in use%s", who, w.aheadWords())
	case !free:
		return fmt.Sprintf("all %d slots of %s are in use%s", slots, who, w.aheadWords())
	}
	return fmt.Sprintf("waiting for an agent of cluster %s to take it%s", name, w.aheadWords())
}

// whyIncapable names the capabilities that no online agent has, and an agent that would have them all if it were online.
func whyIncapable(c *Cluster, serving []*Member, required []string) string {
	missing := slices.DeleteFunc(sortedSet(required), func(capability string) bool {
		return slices.ContainsFunc(serving, func(m *Member) bool { return HasAll(m.Capabilities, []string{capability}) })
	})
	words := "no online agent of cluster " + c.Config.Name + " has "
	if len(missing) > 0 {
		words += capabilityWords(missing)
	} else {
		words += "all of the required capabilities " + strings.Join(sortedSet(required), ", ")
	}
	for i := range c.Members {
		if m := &c.Members[i]; !m.Serving() && HasAll(m.Capabilities, required) {
			return words + fmt.Sprintf("; agent %s would, but it is %s%s", m.AgentID, statusWords(m.Status), sinceWords(m))
		}
	}
	return words
}

func (w *Waiting) aheadWords() string {
	switch {
	case w.Ahead <= 0:
		return ""
	case w.Ahead == 1:
		return "; perhaps 1 task is ahead of it"
	}
	return fmt.Sprintf("; up to about %d tasks are ahead of it", w.Ahead)
}

func handles(m *Member, taskType string) bool {
	return len(m.TaskTypes) == 0 || slices.Contains(m.TaskTypes, taskType)
}

func (c *Cluster) busy(m *Member, running map[string]int) bool {
	n, known := running[m.AgentID]
	return known && n >= c.EffectiveSlots(m)
}

func (c *Cluster) reducedWords(m *Member) string {
	if n := c.EffectiveSlots(m); n < m.MaxTasks {
		return fmt.Sprintf(" (its load is reduced to %d of %d)", n, m.MaxTasks)
	}
	return ""
}

// slotWords is about one agent's slots and comes before "in use".
func slotWords(n int) string {
	if n == 1 {
		return "its only slot is"
	}
	return fmt.Sprintf("all %d slots are", n)
}

func capabilityWords(list []string) string {
	if len(list) == 1 {
		return "the required capability " + list[0]
	}
	return "the required capabilities " + strings.Join(list, ", ")
}

func statusWords(s AgentStatus) string {
	if s == AgentMaintenance {
		return "in maintenance"
	}
	return string(s)
}

func sinceWords(m *Member) string {
	if m.StatusSince.IsZero() {
		return ""
	}
	return " since " + clockTime(m.StatusSince)
}

func reasonWords(m *Member) string {
	if m.StatusReason == "" {
		return ""
	}
	return " (" + m.StatusReason + ")"
}

func leaseWords(free time.Time) string {
	if free.IsZero() {
		return ""
	}
	return ", which the last one's lease allows from " + clockTime(free)
}

func brakeWords(c *Cluster) string {
	if len(c.BrakeHolds) == 0 {
		return ""
	}
	return "; the mass-loss brake holds since " + clockTime(c.BrakeHolds[0].Since)
}

func clockTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
