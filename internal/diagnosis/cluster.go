package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// Unanswered is the problem of a cluster for which no worker answers.
func Unanswered(cluster string) api.Problem {
	return api.Problem{
		Severity: api.SeverityCritical,
		Kind:     api.ProblemUnanswered,
		Cluster:  cluster,
		What:     "no worker answers for cluster " + cluster,
		Why:      "how it stands is not known, and nothing in it is decided until one does",
		Do:       "Look whether processes with the role worker run.",
	}
}

// OfCluster returns the problems of a cluster's members, roles, brake and pauses.
func OfCluster(c *cluster.Cluster, now time.Time) []api.Problem {
	var problems []api.Problem
	add := func(p api.Problem, found bool) {
		if found {
			p.Cluster = c.Config.Name
			problems = append(problems, p)
		}
	}
	add(missingAgents(c))
	for i := range c.Members {
		add(flapping(c, &c.Members[i], now))
	}
	add(noAgentAtAll(c))
	add(noLeader(c, now))
	add(noOwner(c))
	add(cordoned(c))
	for i := range c.BrakeHolds {
		add(braked(c, &c.BrakeHolds[i]), true)
	}
	for i := range c.Pauses {
		p := &c.Pauses[i]
		add(api.Problem{
			Severity: api.SeverityNotice,
			Kind:     api.ProblemPaused,
			Lane:     p.Lane,
			Since:    since(p.Since),
			What:     pausedPart(c, p) + " is paused",
			Why:      p.Reason,
			Do:       "Resume it when the reason is gone. What waits in it expires in the meantime.",
		}, true)
	}
	return problems
}

// SharedIDs are the problems of agent ids that more than one living process uses.
func SharedIDs(c *cluster.Cluster, rivals []cluster.Rival) []api.Problem {
	var problems []api.Problem
	for i := range first(rivals, namedInProblem) {
		r := &rivals[i]
		has := "it has no process now"
		if m := c.Member(r.AgentID); m != nil && m.Status == api.AgentOnline {
			has = "the process that has it: " + processAt(m.Host, m.PID, m.Address)
		}
		problems = append(problems, api.Problem{
			Severity: api.SeverityWarning,
			Kind:     api.ProblemSharedID,
			Cluster:  c.Config.Name,
			Agents:   []string{r.AgentID},
			Since:    since(r.Since),
			What:     fmt.Sprintf("two processes use the agent id %s of cluster %s", r.AgentID, c.Config.Name),
			Why:      api.Reasons(has, "the one that wants it: "+processAt(r.Host, r.PID, r.Address)),
			Do: "Give each process an agent id of its own (--id), or stop one of them. Until then each takes the id from " +
				"the other, less and less often, and the tasks of the one that loses it run again.",
		})
	}
	return problems
}

// processAt names a process as in "host web-1, pid 12, at 10.0.0.7".
func processAt(host string, pid int, address string) string {
	text := "host " + cmp.Or(host, "unknown")
	if pid != 0 {
		text += fmt.Sprintf(", pid %d", pid)
	}
	if address != "" {
		text += ", at " + address
	}
	return text
}

const (
	// flaps is how often one process must have come back after it was given up.
	flaps = 3
	// steadyAfter is how long it must then stay to be no problem any more.
	steadyAfter = 10 * time.Minute
)

// flapping is about an agent that is lost and comes back again and again. A new process counts anew.
func flapping(c *cluster.Cluster, m *cluster.Member, now time.Time) (api.Problem, bool) {
	if m.Mistakes < flaps || now.Sub(m.StatusSince) >= steadyAfter || c.Cordons.Of(m.AgentID) != nil {
		return api.Problem{}, false
	}
	return api.Problem{
		Severity: api.SeverityWarning,
		Kind:     api.ProblemFlapping,
		Agents:   []string{m.AgentID},
		What: fmt.Sprintf("agent %s of cluster %s flaps: it was lost %d times and came back each time", m.AgentID,
			c.Config.Name, m.Mistakes),
		Why: "its process lives, but its host or network stalls for longer than its hub waits",
		Do: "Look at both. Keep work from it meanwhile (mainstay agent maintenance " + m.AgentID +
			" on), or start its process anew.",
	}, true
}

func braked(c *cluster.Cluster, b *cluster.BrakeHold) api.Problem {
	return api.Problem{
		Severity: api.SeverityCritical,
		Kind:     api.ProblemBrake,
		Count:    int64(b.Lost),
		Since:    since(b.Since),
		What: fmt.Sprintf("%s of cluster %s vanished at once: the brake holds their failovers back",
			api.Count(b.Lost, "agent"), c.Config.Name),
		Why: "so many losses point to the network between them and " + b.Where(),
		Do: "Repair the network and they are back at once. " +
			"If they are really gone, release the brake: their work then moves.",
	}
}

// pausedPart names what a pause holds back.
func pausedPart(c *cluster.Cluster, p *cluster.Pause) string {
	if p.Lane == "" {
		return "cluster " + c.Config.Name
	}
	return "lane " + p.Lane + " of cluster " + c.Config.Name
}

// missingAgents is about agents that are lost or do not answer, and about too few of them.
func missingAgents(c *cluster.Cluster) (api.Problem, bool) {
	var lost, suspect []*cluster.Member
	var from time.Time
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case c.Cordons.Of(m.AgentID) != nil:
			continue
		case m.Status == api.AgentOffline:
			lost = append(lost, m)
		case m.Status == api.AgentSuspect:
			suspect = append(suspect, m)
		default:
			continue
		}
		if from.IsZero() || m.StatusSince.Before(from) {
			from = m.StatusSince
		}
	}
	status, missing := c.Status(), slices.Concat(lost, suspect)
	if status == api.ClusterHealthy && len(missing) == 0 {
		return api.Problem{}, false
	}
	p := api.Problem{
		Severity: api.SeverityWarning,
		Kind:     api.ProblemAgents,
		Agents:   idsOf(first(missing, namedInProblem)),
		Count:    int64(len(missing)),
		Since:    since(from),
		What:     whatIsMissing(c, status, len(lost), len(suspect)),
		Why:      whyMissing(lost, suspect),
		Do:       whatToDoAboutMissing(c, len(lost), len(suspect)),
	}
	if status == api.ClusterCritical {
		p.Severity = api.SeverityCritical
	}
	if c.Config.Scaling.On() && c.Scaling != nil && c.Scaling.Blocked != nil {
		p.Why = api.Reasons(p.Why, "scaling cannot start agents: "+c.Scaling.Blocked.Reason)
	}
	return p, true
}

func whatIsMissing(c *cluster.Cluster, status api.ClusterStatus, lost, suspect int) string {
	name, online := c.Config.Name, c.OnlineCount()
	switch {
	case online == 0:
		return "cluster " + name + " has no online agent"
	case online < c.Config.MinAgents:
		return fmt.Sprintf("cluster %s has %s online; at least %d are needed", name, api.Count(online, "agent"),
			c.Config.MinAgents)
	case online < c.Config.DesiredAgents:
		return fmt.Sprintf("cluster %s has %d of %d desired agents online", name, online, c.Config.DesiredAgents)
	case lost > 0:
		return agentsAre(lost, name, "lost")
	case suspect > 0:
		return agentsAre(suspect, name, "not answering")
	case c.HealthyCount() < online:
		return agentsAre(online-c.HealthyCount(), name, "critical")
	}
	return "cluster " + name + " is " + string(status) // all that it has are cordoned
}

// agentsAre says how n agents are, as in "2 agents of cluster web are lost".
func agentsAre(n int, cluster, how string) string {
	return fmt.Sprintf("%s of cluster %s %s %s", api.Count(n, "agent"), cluster, api.Plural(n, "is", "are"), how)
}

func whyMissing(lost, suspect []*cluster.Member) string {
	reason := func(members []*cluster.Member, how string) string {
		if len(members) == 0 {
			return ""
		}
		text := listOf(idsOf(members), namedInProblem) + " " + how
		if len(members) == 1 && members[0].StatusReason != "" {
			text += ": " + members[0].StatusReason
		}
		return text
	}
	return api.Reasons(reason(lost, "lost"), reason(suspect, "not answering"))
}

func whatToDoAboutMissing(c *cluster.Cluster, lost, suspect int) string {
	const startAgain = "Look at their hosts and start them again; an agent that comes back takes its place at once. " +
		"Forget one that will not come back: mainstay agent forget ID"
	switch {
	case len(c.BrakeHolds) > 0: // the brake's own problem says what to do
		return ""
	case c.OnlineCount() == 0 && lost > 0:
		return "Their work waits in its lanes. " + startAgain
	case lost > 0:
		return "Their work has moved. " + startAgain
	case suspect > 0: // they are back or lost within seconds
		return ""
	case c.Config.Scaling.On() && (c.Scaling == nil || c.Scaling.Blocked == nil):
		return "Scaling starts what is missing."
	}
	return startAgents(c)
}

func startAgents(c *cluster.Cluster) string {
	return "Start agents: mainstay agent run --cluster " + c.Config.Name
}

func idsOf(members []*cluster.Member) []string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.AgentID)
	}
	return ids
}

// noAgentAtAll is about a cluster that needs a leader or owners of shards and has no agent, while its settings ask for
// none. Its tasks wait until an agent comes.
func noAgentAtAll(c *cluster.Cluster) (api.Problem, bool) {
	if len(c.Members) > 0 || c.Status() != api.ClusterHealthy {
		return api.Problem{}, false
	}
	p := api.Problem{Severity: api.SeverityWarning, Do: startAgents(c) +
		"; or delete it: mainstay cluster delete " + c.Config.Name}
	switch c.Config.ReplicationMode {
	case api.ActivePassive:
		p.Kind, p.What = api.ProblemNoLeader, "cluster "+c.Config.Name+" has no agent, and so no leader"
	case api.Sharded:
		p.Kind, p.What = api.ProblemNoOwner, "cluster "+c.Config.Name+" has no agent, and so no owner of its shards"
	default:
		return api.Problem{}, false
	}
	return p, true
}

// noLeader is about a cluster that has online agents and no leader.
func noLeader(c *cluster.Cluster, now time.Time) (api.Problem, bool) {
	led := c.Leader != "" && !c.LeaderLost()
	if c.Config.ReplicationMode != api.ActivePassive || led || c.OnlineCount() == 0 {
		return api.Problem{}, false
	}
	p := api.Problem{
		Severity: api.SeverityCritical,
		Kind:     api.ProblemNoLeader,
		What:     "cluster " + c.Config.Name + " has no leader: nothing is taken from its lanes",
	}
	if c.LeaderFreeAt.After(now) {
		p.Severity = api.SeverityWarning
		p.Why = "the last leader's lease runs until " + clockTime(c.LeaderFreeAt) + "; the next one is elected then"
	}
	return p, true
}

// noOwner is about shards that no agent serves although there are online agents.
func noOwner(c *cluster.Cluster) (api.Problem, bool) {
	var without []string
	for i := range c.Shards {
		if c.Shards[i].Owner == "" {
			without = append(without, fmt.Sprint(i))
		}
	}
	n := len(without)
	if c.Config.ReplicationMode != api.Sharded || n == 0 || c.OnlineCount() == 0 {
		return api.Problem{}, false
	}
	return api.Problem{
		Severity: api.SeverityCritical,
		Kind:     api.ProblemNoOwner,
		Count:    int64(n),
		What: fmt.Sprintf("%s of cluster %s %s no owner", api.Count(n, "shard"), c.Config.Name,
			api.Plural(n, "has", "have")),
		Why: api.Plural(n, "shard ", "shards ") + listOf(without, namedInProblem) +
			": the last owner's lease must run out first",
	}, true
}

// cordoned is about agents that a person or scaling keeps from being given work. Agents that healing took out of
// service belong to the problems of their health.
func cordoned(c *cluster.Cluster) (api.Problem, bool) {
	byHealing := func(k cluster.Cordon) bool { return k.ByHealing(c.Config.Name) }
	cordons := slices.DeleteFunc(slices.Clone(c.Cordons), byHealing)
	if len(cordons) == 0 {
		return api.Problem{}, false
	}
	p := api.Problem{Severity: api.SeverityNotice, Kind: api.ProblemCordoned, Count: int64(len(cordons)),
		Since: since(cordons[0].Since)}
	draining := 0
	for i := range cordons {
		k := &cordons[i]
		if k.Since.Before(*p.Since) {
			p.Since = since(k.Since)
		}
		if len(p.Agents) < namedInProblem {
			p.Agents = append(p.Agents, k.AgentID)
		}
		if k.Status == api.AgentDraining {
			draining++
		}
	}
	switch maintained := len(cordons) - draining; {
	case draining == 0:
		p.What = agentsAre(maintained, c.Config.Name, "in maintenance")
		p.Do = "End the maintenance when the work on them is done."
	case maintained == 0:
		p.What = agentsAre(draining, c.Config.Name, "being drained")
	default:
		p.What = fmt.Sprintf("%d agents of cluster %s are being drained, %d are in maintenance", draining,
			c.Config.Name, maintained)
	}
	if len(cordons) == 1 {
		p.Why = cordons[0].Reason
	}
	return p, true
}
