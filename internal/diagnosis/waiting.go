package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// Waiting has the facts about a queued task.
type Waiting struct {
	Spec *api.TaskSpec
	// Lane is where it waits; empty: not known.
	Lane string
	// Running is how many tasks each agent runs now, by agent id; agents that are missing in it are not known to be
	// busy.
	Running map[string]int
	// Held is what each agent's tasks have of its resources, by agent id; nil: not known.
	Held map[string][]api.HeldTask
	// Ahead is about how many other tasks of the same or a better priority wait in its lane.
	Ahead int64
}

// WhyWaiting says in a sentence why a queued task is not running.
func WhyWaiting(c *cluster.Cluster, w Waiting) string {
	if w.Spec.Agent != "" {
		w.Lane = task.AgentLane(w.Spec.Agent)
	} else if w.Lane == "" && c.Config.ReplicationMode != api.Sharded {
		types := c.LaneTypes()
		w.Lane = task.LaneOf(w.Spec, 0, types.Apart(w.Spec.Type))
	}
	if p := c.Pauses.Of(w.Lane); p != nil {
		return whyPaused(c, p)
	}
	if w.Spec.Agent != "" {
		return whyPinned(c, w)
	}
	var serving []*cluster.Member
	for i := range c.Members {
		if c.Members[i].Serving() {
			serving = append(serving, &c.Members[i])
		}
	}
	switch name := c.Config.Name; {
	case len(serving) == 0:
		return fmt.Sprintf("no online agent in cluster %s%s", name, countOthers(c))
	case c.Config.ReplicationMode == api.ActivePassive:
		if servers := c.ServersOf(task.DefaultLane, nil); len(servers) == 1 {
			who := fmt.Sprintf("agent %s, the leader of cluster %s,", servers[0].AgentID, name)
			return whyOne(c, servers[0], who, w)
		}
		return fmt.Sprintf("cluster %s has no leader now; it waits for the next%s", name, leaseWords(c.LeaderFreeAt))
	case c.Config.ReplicationMode == api.Sharded:
		shard, known := task.ShardOfLane(w.Lane)
		if !known {
			return fmt.Sprintf("waiting for the agent of cluster %s that owns its shard", name)
		}
		if servers := c.ServersOf(w.Lane, nil); len(servers) == 1 {
			who := fmt.Sprintf("agent %s, which owns shard %d of cluster %s,", servers[0].AgentID, shard, name)
			return whyOne(c, servers[0], who, w)
		}
		return fmt.Sprintf("shard %d of cluster %s has no owner now; it waits for the next", shard, name)
	}
	return whyAnyone(c, serving, w)
}

func whyPaused(c *cluster.Cluster, p *cluster.Pause) string {
	words := pausedPart(c, p) + " is paused since " + clockTime(p.Since)
	if p.Reason != "" {
		words += ": " + p.Reason
	}
	return words
}

// whyPinned is about a task that only one agent may do.
func whyPinned(c *cluster.Cluster, w Waiting) string {
	agent := w.Spec.Agent
	m := c.Member(agent)
	switch {
	case m == nil:
		if left, known := c.Departures.Of(agent); known {
			return fmt.Sprintf("agent %s left cluster %s at %s; the task waits for it", agent, c.Config.Name,
				clockTime(left.At))
		}
		return fmt.Sprintf("agent %s is not in cluster %s; the task waits for it", agent, c.Config.Name)
	case !m.Serving():
		return fmt.Sprintf("agent %s is %s%s%s; the task waits for it", agent, statusWords(m.Status), sinceWords(m),
			reasonWords(m))
	}
	return whyOne(c, m, "agent "+agent, w)
}

// whyOne is about a task that only one agent may do now; who names that agent.
func whyOne(c *cluster.Cluster, m *cluster.Member, who string, w Waiting) string {
	missing := slices.DeleteFunc(api.SortedSet(w.Spec.RequiredCapabilities), m.Can)
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("%s does not have %s", who, capabilityWords(missing))
	case !m.Handles(w.Spec.Type):
		return fmt.Sprintf("%s does not handle tasks of type %s", who, w.Spec.Type)
	case !m.EndsTree(w.Spec.Type, w.Spec.Safety()):
		return fmt.Sprintf("%s is not one that %s: %s", who, treeEndWords(w.Spec.Safety()), treeEndDo)
	case !task.FitsOn(&w.Spec.Place, m.Resources):
		return fmt.Sprintf("%s lacks %s", who, w.lackingOf(m, false))
	case m.Status == api.AgentSuspect:
		return fmt.Sprintf("%s is not answering%s; the task waits for it", who, sinceWords(m))
	case w.lackingOf(m, true) != "":
		return fmt.Sprintf("%s has no room for it now: too little is free of %s%s", who, w.lackingOf(m, true),
			w.aheadWords())
	case w.busy(c, m):
		return fmt.Sprintf("%s is busy: %s in use%s%s", who, slotWords(c.EffectiveSlots(m)), reducedWords(c, m),
			w.aheadWords())
	}
	return "waiting for " + who + " to take it" + w.aheadWords()
}

// whyAnyone is about a task that any capable agent may do.
func whyAnyone(c *cluster.Cluster, serving []*cluster.Member, w Waiting) string {
	name := c.Config.Name
	has := func(m *cluster.Member) bool { return api.HasAll(m.Capabilities, w.Spec.RequiredCapabilities) }
	capable := only(serving, has)
	if len(capable) == 0 {
		return whyIncapable(c, serving, w.Spec.RequiredCapabilities)
	}
	able := only(capable, func(m *cluster.Member) bool { return m.Handles(w.Spec.Type) })
	if len(able) == 0 {
		task := UnhandledTask{Type: w.Spec.Type, Capabilities: w.Spec.RequiredCapabilities}
		return "no agent handles type " + w.Spec.Type + strings.TrimPrefix(WhyUnhandled(c, &task), "no agent handles it")
	}
	able = only(able, func(m *cluster.Member) bool { return m.EndsTree(w.Spec.Type, w.Spec.Safety()) })
	if len(able) == 0 {
		return fmt.Sprintf("no online agent of cluster %s that could take it %s: %s", name,
			treeEndWords(w.Spec.Safety()), treeEndDo)
	}
	fitting := only(able, func(m *cluster.Member) bool { return task.FitsOn(&w.Spec.Place, m.Resources) })
	if len(fitting) == 0 {
		return fmt.Sprintf("no online agent of cluster %s that could take it has what it asks for: it lacks %s", name,
			w.lacking(able, false))
	}
	able = fitting
	if lacking := w.lacking(able, true); lacking != "" {
		return fmt.Sprintf("no online agent of cluster %s has room for it now: too little is free of %s%s", name, lacking,
			w.aheadWords())
	}
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
		answering = answering || m.Status != api.AgentSuspect
		free = free || m.Status != api.AgentSuspect && !w.busy(c, m)
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

// whyIncapable names the capabilities that no online agent has, and an agent that would have them all if it were
// online.
func whyIncapable(c *cluster.Cluster, serving []*cluster.Member, required []string) string {
	required = api.SortedSet(required)
	missing := slices.DeleteFunc(slices.Clone(required), func(capability string) bool {
		return slices.ContainsFunc(serving, func(m *cluster.Member) bool { return m.Can(capability) })
	})
	words := "no online agent of cluster " + c.Config.Name + " has "
	if len(missing) > 0 {
		words += capabilityWords(missing)
	} else {
		words += "all of the required capabilities " + strings.Join(required, ", ")
	}
	for i := range c.Members {
		if m := &c.Members[i]; !m.Serving() && api.HasAll(m.Capabilities, required) {
			return words + fmt.Sprintf("; agent %s would, but it is %s%s", m.AgentID, statusWords(m.Status),
				sinceWords(m))
		}
	}
	return words
}

// lacking names the task's resources that members lack, and how many lack them. It counts all that they have, or with
// now only what is free, if that is known.
func (w *Waiting) lacking(members []*cluster.Member, now bool) string {
	if w.Spec.Place.IsZero() || now && w.Held == nil {
		return ""
	}
	stocks, ports := make([]*task.Stock, len(members)), map[string]*task.Ports{}
	for i, m := range members {
		stocks[i] = task.NewStock(m.Resources)
		for _, held := range w.Held[m.AgentID] {
			if !now || held.Allocation == nil {
				continue
			}
			stocks[i].Take(held.Allocation)
			if len(held.Allocation.Ports) == 0 {
				continue
			}
			if ports[hostOf(m)] == nil {
				ports[hostOf(m)] = &task.Ports{}
			}
			ports[hostOf(m)].Take(held.Allocation)
		}
	}
	for i, m := range members {
		stocks[i] = stocks[i].On(ports[hostOf(m)])
	}
	return task.Shortage(&w.Spec.Place, stocks)
}

// hostOf is where a member's ports are.
func hostOf(m *cluster.Member) string { return cmp.Or(m.Host, "agent "+m.AgentID) }

// lackingOf is lacking for one member.
func (w *Waiting) lackingOf(m *cluster.Member, now bool) string {
	return strings.TrimSuffix(w.lacking([]*cluster.Member{m}, now), " on 1 agent")
}

// only returns the members that pass, and leaves the list as it is.
func only(members []*cluster.Member, pass func(*cluster.Member) bool) []*cluster.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m *cluster.Member) bool { return !pass(m) })
}

// treeEndWords name the ability that an agent lacks if it may leave processes of a command behind, and treeEndDo says
// what to do.
func treeEndWords(safety api.RetrySafety) string {
	return "ends all processes of a command when it is lost, as a task of type exec that is " + string(safety) +
		" needs"
}

const treeEndDo = "start an agent of this release on Linux, or submit such work as idempotent"

// busy reports whether all slots of a member are known to be in use.
func (w *Waiting) busy(c *cluster.Cluster, m *cluster.Member) bool {
	n, known := w.Running[m.AgentID]
	return known && n >= c.EffectiveSlots(m)
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

func reducedWords(c *cluster.Cluster, m *cluster.Member) string {
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

func capabilityWords(capabilities []string) string {
	set := api.SortedSet(capabilities)
	return api.Plural(len(set), "the required capability ", "the required capabilities ") + strings.Join(set, ", ")
}

func statusWords(s api.AgentStatus) string {
	if s == api.AgentMaintenance {
		return "in maintenance"
	}
	return string(s)
}

func sinceWords(m *cluster.Member) string {
	if m.StatusSince.IsZero() {
		return ""
	}
	return " since " + clockTime(m.StatusSince)
}

func reasonWords(m *cluster.Member) string {
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

func brakeWords(c *cluster.Cluster) string {
	if len(c.BrakeHolds) == 0 {
		return ""
	}
	return "; the mass-loss brake holds since " + clockTime(c.BrakeHolds[0].Since)
}

// countOthers counts the members that take no work.
func countOthers(c *cluster.Cluster) string {
	counts := map[api.AgentStatus]int{}
	for i := range c.Members {
		counts[c.Members[i].Status]++
	}
	var parts []string
	for _, s := range []api.AgentStatus{api.AgentOffline, api.AgentDraining, api.AgentMaintenance} {
		if n := counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, statusWords(s)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
