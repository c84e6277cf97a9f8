package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity says how urgent a problem is.
type Severity string

// The severities, most urgent first.
const (
	SeverityCritical Severity = "critical" // work is not done, or soon will not be
	SeverityWarning  Severity = "warning"  // somebody should look, or decide
	SeverityNotice   Severity = "notice"   // a state that a person brought about, or that ends by itself
)

// TroubleKind names what kind of problem it is.
type TroubleKind string

// The kinds of problems.
const (
	TroubleUnanswered TroubleKind = "unanswered" // no worker answers for the cluster
	TroubleAgents     TroubleKind = "agents"     // agents are lost or suspect, or too few
	TroubleNoLeader   TroubleKind = "no_leader"
	TroubleNoOwner    TroubleKind = "no_owner" // shards that nobody serves
	TroubleBrake      TroubleKind = "brake"
	TroublePaused     TroubleKind = "paused"
	TroubleCordoned   TroubleKind = "cordoned" // agents are drained or in maintenance
	TroubleNotServed  TroubleKind = "not_served"
	TroubleOldWork    TroubleKind = "old_work"
	TroubleUnhandled  TroubleKind = "unhandled" // tasks that no agent handles
	TroubleDeadLetter TroubleKind = "dead_letter"
	TroubleReview     TroubleKind = "review"
	TroubleFailover   TroubleKind = "failover"
	TroubleHealth     TroubleKind = "health"         // agents are unwell
	TroubleHealing    TroubleKind = "healing"        // healing is kept from mending that, or does not run
	TroublePausedHeal TroubleKind = "healing_paused" // a person paused it
	TroubleScaling    TroubleKind = "scaling"        // agents cannot be started or stopped as they should
)

// Trouble is something that a person should know of: what, where, since when, why, and what to do.
type Trouble struct {
	Severity Severity    `json:"severity" enum:"critical,warning,notice"`
	Kind     TroubleKind `json:"kind" enum:"unanswered,agents,no_leader,no_owner,brake,paused,cordoned,not_served,old_work,unhandled,dead_letter,review,failover,health,healing,healing_paused,scaling"`
	Cluster  string      `json:"cluster,omitempty"`
	Lane     string      `json:"lane,omitempty"`
	TaskType string      `json:"task_type,omitempty" doc:"Of the tasks that it is about, if they are of one type."`
	Agents   []string    `json:"agents,omitempty" doc:"Some of the agents that it is about."`
	Failover string      `json:"failover,omitempty"`
	Count    int64       `json:"count,omitempty" doc:"How many agents, shards or tasks it is about."`
	Since    *time.Time  `json:"since,omitempty"`
	What     string      `json:"what"`
	Why      string      `json:"why,omitempty"`
	Do       string      `json:"do,omitempty" doc:"What can be done about it. Absent: it ends by itself."`
}

const (
	// namedInProblem bounds how many agents a problem names.
	namedInProblem = 5
	// OldWork is how long the first task of a lane may wait before that is a problem.
	OldWork = time.Minute
	// recentFailover is how long a failover that did not succeed stays a problem.
	recentFailover = time.Hour
)

// SortTroubles puts the most urgent first, and of those the newest.
func SortTroubles(problems []Trouble) {
	rank := map[Severity]int{SeverityCritical: 0, SeverityWarning: 1, SeverityNotice: 2}
	at := func(p *Trouble) time.Time {
		if p.Since == nil {
			return time.Time{}
		}
		return *p.Since
	}
	slices.SortStableFunc(problems, func(a, b Trouble) int {
		return cmp.Or(rank[a.Severity]-rank[b.Severity], at(&b).Compare(at(&a)), strings.Compare(a.What, b.What))
	})
}

// Troubles are those of a cluster's members, roles, brake and pauses.
func (c *Cluster) Troubles(now time.Time) []Trouble {
	var problems []Trouble
	add := func(p Trouble, there bool) {
		if there {
			p.Cluster = c.Config.Name
			problems = append(problems, p)
		}
	}
	add(c.missingAgents())
	add(c.nobodyThere())
	add(c.noLeader(now))
	add(c.noOwner())
	add(c.cordoned())
	for i := range c.BrakeHolds {
		b := &c.BrakeHolds[i]
		add(Trouble{Severity: SeverityCritical, Kind: TroubleBrake, Count: int64(b.Lost), Since: since(b.Since),
			What: fmt.Sprintf("%s of cluster %s vanished at once: the brake holds their failovers back", agentCount(b.Lost), c.Config.Name),
			Why:  "so many losses point to the network between them and hub " + b.Hub,
			Do:   "Mend the network and they are back at once. If they are really gone, release the brake: their work then moves."}, true)
	}
	for i := range c.Pauses {
		p := &c.Pauses[i]
		what := "cluster " + c.Config.Name
		if p.Lane != "" {
			what = "lane " + p.Lane + " of " + what
		}
		add(Trouble{Severity: SeverityNotice, Kind: TroublePaused, Lane: p.Lane, Since: since(p.Since), What: what + " is paused", Why: p.Reason,
			Do: "Resume it when the reason is gone. What waits in it expires in the meantime."}, true)
	}
	return problems
}

// missingAgents is about agents that are lost or do not answer, and about too few of them.
func (c *Cluster) missingAgents() (Trouble, bool) {
	var lost, suspect []*Member
	var from time.Time
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case c.CordonOf(m.AgentID) != nil:
			continue
		case m.Status == AgentOffline:
			lost = append(lost, m)
		case m.Status == AgentSuspect:
			suspect = append(suspect, m)
		default:
			continue
		}
		if from.IsZero() || m.StatusSince.Before(from) {
			from = m.StatusSince
		}
	}
	status, online := c.Status(), c.HealthyCount()
	if status == ClusterHealthy && len(lost)+len(suspect) == 0 {
		return Trouble{}, false
	}
	p := Trouble{Severity: SeverityWarning, Kind: TroubleAgents, Count: int64(len(lost) + len(suspect)), Since: since(from)}
	for _, m := range slices.Concat(lost, suspect)[:min(namedInProblem, len(lost)+len(suspect))] {
		p.Agents = append(p.Agents, m.AgentID)
	}
	if status == ClusterCritical {
		p.Severity = SeverityCritical
	}
	switch name := c.Config.Name; {
	case online == 0:
		p.What = "cluster " + name + " has no online agent"
	case online < c.Config.MinAgents:
		p.What = fmt.Sprintf("cluster %s has %s online; at least %d are needed", name, agentCount(online), c.Config.MinAgents)
	case online < c.Config.DesiredAgents:
		p.What = fmt.Sprintf("cluster %s has %d of %d desired agents online", name, online, c.Config.DesiredAgents)
	case len(lost) > 0:
		p.What = fmt.Sprintf("%s of cluster %s %s lost", agentCount(len(lost)), name, isAre(len(lost)))
	case len(suspect) > 0:
		p.What = fmt.Sprintf("%s of cluster %s %s not answering", agentCount(len(suspect)), name, isAre(len(suspect)))
	default: // all that it has are cordoned
		p.What = "cluster " + name + " is " + string(status)
	}
	p.Why = whyMissing(lost, suspect)
	switch {
	case len(c.BrakeHolds) > 0: // the brake's own problem says what to do
	case online == 0 && len(lost) > 0:
		p.Do = "Their work waits in its lanes. Look at their hosts and start them again; an agent that comes back takes its place at once."
	case len(lost) > 0:
		p.Do = "Their work has moved. Look at their hosts and start them again; an agent that comes back takes its place at once."
	case len(suspect) > 0:
	case c.Config.Scaling.On() && (c.Scaling == nil || c.Scaling.Blocked == nil):
		p.Do = "Scaling starts what is missing."
	default:
		p.Do = "Start agents: mainstay agent run --cluster " + c.Config.Name
	}
	if c.Config.Scaling.On() && c.Scaling != nil && c.Scaling.Blocked != nil {
		p.Why = joined(p.Why, "scaling cannot start agents: "+c.Scaling.Blocked.Reason)
	}
	return p, true
}

func whyMissing(lost, suspect []*Member) string {
	var parts []string
	for _, group := range []struct {
		members []*Member
		words   string
	}{{lost, "lost"}, {suspect, "not answering"}} {
		if len(group.members) == 0 {
			continue
		}
		names := make([]string, 0, namedInProblem)
		for _, m := range group.members[:min(namedInProblem, len(group.members))] {
			names = append(names, m.AgentID)
		}
		text := strings.Join(names, ", ")
		if more := len(group.members) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		text += " " + group.words
		if reason := group.members[0].StatusReason; reason != "" && len(group.members) == 1 {
			text += ": " + reason
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// nobodyThere is about a cluster whose leader or shards nobody can be, because it has no agent at all and nobody has said
// how many it needs. What waits for a leader or an owner waits for ever then.
func (c *Cluster) nobodyThere() (Trouble, bool) {
	if len(c.Members) > 0 || c.Status() != ClusterHealthy {
		return Trouble{}, false
	}
	p := Trouble{Severity: SeverityWarning, Do: "Start agents: mainstay agent run --cluster " + c.Config.Name + "; or delete it: mainstay cluster delete " + c.Config.Name}
	switch c.Config.ReplicationMode {
	case ActivePassive:
		p.Kind, p.What = TroubleNoLeader, "cluster "+c.Config.Name+" has no agent, and so no leader"
	case Sharded:
		p.Kind, p.What = TroubleNoOwner, "cluster "+c.Config.Name+" has no agent, and so no owner of its shards"
	default:
		return Trouble{}, false
	}
	return p, true
}

// noLeader is about a cluster that has agents to lead and no leader.
func (c *Cluster) noLeader(now time.Time) (Trouble, bool) {
	if c.Config.ReplicationMode != ActivePassive || c.Leader != "" && !c.LeaderLost() || c.HealthyCount() == 0 {
		return Trouble{}, false
	}
	p := Trouble{Severity: SeverityCritical, Kind: TroubleNoLeader, What: "cluster " + c.Config.Name + " has no leader: nothing is taken from its lanes"}
	if c.LeaderFreeAt.After(now) {
		p.Severity, p.Why = SeverityWarning, "the last leader's lease runs until "+clockTime(c.LeaderFreeAt)+"; the next one is elected then"
	}
	return p, true
}

// noOwner is about shards that nobody serves although there are agents.
func (c *Cluster) noOwner() (Trouble, bool) {
	var without []string
	for i := range c.Shards {
		if c.Shards[i].Owner == "" {
			without = append(without, fmt.Sprint(i))
		}
	}
	if c.Config.ReplicationMode != Sharded || len(without) == 0 || c.HealthyCount() == 0 {
		return Trouble{}, false
	}
	what, shown := "shards", without
	if len(without) == 1 {
		what = "shard"
	}
	more := ""
	if len(without) > namedInProblem {
		shown, more = without[:namedInProblem], fmt.Sprintf(" and %d more", len(without)-namedInProblem)
	}
	return Trouble{Severity: SeverityCritical, Kind: TroubleNoOwner, Count: int64(len(without)),
		What: fmt.Sprintf("%d %s of cluster %s %s no owner", len(without), what, c.Config.Name, hasHave(len(without))),
		Why:  what + " " + strings.Join(shown, ", ") + more + ": the last owner's lease must run out first"}, true
}

// cordoned is about agents that are given no work because a person, or scaling, wants so. Those that healing took out of
// service are a matter of their health.
func (c *Cluster) cordoned() (Trouble, bool) {
	cordons := slices.DeleteFunc(slices.Clone(c.Cordons), func(k Cordon) bool { return c.outBy(k.AgentID) == outByHealing })
	if len(cordons) == 0 {
		return Trouble{}, false
	}
	p := Trouble{Severity: SeverityNotice, Kind: TroubleCordoned, Count: int64(len(cordons)), Since: since(cordons[0].Since)}
	draining := 0
	for i := range cordons {
		k := &cordons[i]
		if k.Since.Before(*p.Since) {
			p.Since = since(k.Since)
		}
		if len(p.Agents) < namedInProblem {
			p.Agents = append(p.Agents, k.AgentID)
		}
		if k.Status == AgentDraining {
			draining++
		}
	}
	switch maintained := len(cordons) - draining; {
	case draining == 0:
		p.What = fmt.Sprintf("%s of cluster %s %s in maintenance", agentCount(maintained), c.Config.Name, isAre(maintained))
		p.Do = "End the maintenance when the work on them is done."
	case maintained == 0:
		p.What = fmt.Sprintf("%s of cluster %s %s being drained", agentCount(draining), c.Config.Name, isAre(draining))
	default:
		p.What = fmt.Sprintf("%d agents of cluster %s are being drained, %d are in maintenance", draining, c.Config.Name, maintained)
	}
	if len(cordons) == 1 {
		p.Why = cordons[0].Reason
	}
	return p, true
}

func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func agentCount(n int) string {
	if n == 1 {
		return "1 agent"
	}
	return fmt.Sprintf("%d agents", n)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func hasHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}
