package diagnosis

import (
	"fmt"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// OldWork is how long the first task of a lane may wait before that is a problem.
	OldWork = time.Minute
	// recentFailover is how long a failover that did not succeed stays a problem.
	recentFailover = time.Hour
)

// LaneFacts are the facts about a lane's backlog.
type LaneFacts struct {
	Cluster, Lane string
	Depth         int64
	// Needs are what its tasks ask for, and In is the cluster as it is; nil: not known.
	Needs *api.LaneNeeds
	In    *cluster.Cluster
	// Oldest is how long the first task has waited.
	Oldest time.Duration
	// Agents serve it now, with Slots tasks at a time.
	Agents, Slots int
	Paused        bool
}

// OfLane is about work that waits too long in a lane, or that no agent takes. A pause is a problem of its own.
func OfLane(l LaneFacts, now time.Time) (api.Problem, bool) {
	if l.Depth == 0 || l.Paused {
		return api.Problem{}, false
	}
	p := api.Problem{Cluster: l.Cluster, Lane: l.Lane, Count: l.Depth, Since: since(now.Add(-l.Oldest))}
	if u, there := l.unhandled(p); there {
		return u, true
	}
	waits := api.Count(l.Depth, "task") + api.Plural(l.Depth, " waits", " wait")
	where := "lane " + l.Lane + " of cluster " + l.Cluster
	if l.Agents == 0 { // since when nobody serves it is not known
		p.Since, p.Why = nil, "the first has waited for "+l.Oldest.Round(time.Second).String()
	}
	switch agent, pinned := task.AgentOfLane(l.Lane); {
	case l.Agents == 0 && pinned:
		p.Severity, p.Kind = api.SeverityWarning, api.ProblemNotServed
		p.What = fmt.Sprintf("%s for agent %s, which is not online", waits, agent)
		p.Do = "Start the agent again, or cancel the tasks: no other agent may do them."
	case l.Agents == 0:
		p.Severity, p.Kind = api.SeverityCritical, api.ProblemNotServed
		p.What = fmt.Sprintf("%s in %s, which no online agent serves", waits, where)
		p.Do = "Start an agent that may serve it."
		if capabilities, ok := strings.CutPrefix(l.Lane, "cap/"); ok { // others have work; the name may be a mistake
			p.Severity = api.SeverityWarning
			p.Do = "Start an agent with the capabilities " + strings.ReplaceAll(capabilities, "+", ", ") +
				", or cancel the tasks if these are misspelt."
		} else if taskType := task.TypeOfLane(l.Lane); taskType != "" {
			p.Severity = api.SeverityWarning
			p.Do = "Start an agent that handles type " + taskType + ", or cancel the tasks."
			if set := task.CapabilitiesOfLane(l.Lane); len(set) > 0 {
				p.Do = "Start an agent that handles type " + taskType + " and has " + strings.Join(set, ", ") +
					", or cancel the tasks."
			}
		} else if task.IsFitLane(l.Lane) {
			p.Severity = api.SeverityWarning
			p.Do = "They ask for resources that no online agent has: mainstay task get says which. " +
				"Start an agent with them, or cancel the tasks if they ask for too much."
		}
	case l.Oldest >= OldWork:
		p.Severity, p.Kind = api.SeverityWarning, api.ProblemOldWork
		p.What = fmt.Sprintf("%s in %s, the first for longer than a minute", waits, where)
		p.Why = fmt.Sprintf("%s with %d slots %s it", api.Count(l.Agents, "agent"), l.Slots,
			api.Plural(l.Agents, "serves", "serve"))
		p.Do = "If it does not get shorter, start more agents."
		if pinned {
			p.Do = "No other agent may do them: give agent " + agent + " more slots."
		}
	default:
		return api.Problem{}, false
	}
	return p, true
}

// unhandled is the problem of a lane whose tasks no agent handles, though agents are there.
func (l *LaneFacts) unhandled(p api.Problem) (api.Problem, bool) {
	if l.Agents > 0 || l.In == nil || l.Needs == nil || l.Needs.Type == "" {
		return p, false
	}
	task := UnhandledTask{Type: l.Needs.Type, Capabilities: l.Needs.Capabilities, Place: l.Needs.Place}
	u, there := unhandled(l.In, &task)
	u.Lane, u.Count, u.Since = p.Lane, p.Count, p.Since
	u.Do = "Start an agent that handles it, or cancel them: they wait until they expire."
	named(&u)
	return u, there
}

// OfUndecided is the problem of count tasks, runs or arrays of a cluster that wait for a person, the first of them
// since from. The kind is KindReview, KindDeadLetter, KindRun or KindArray.
func OfUndecided(cluster string, kind api.ProblemKind, count int64, from time.Time) api.Problem {
	p := api.Problem{Severity: api.SeverityWarning, Kind: kind, Cluster: cluster, Count: count, Since: since(from)}
	switch kind {
	case api.ProblemDeadLetter:
		p.What = api.Count(count, "dead letter") + " of cluster " + cluster
		p.Do = "Remove the cause and retry them, or discard them. They fail by themselves when their retention ends."
		return p
	case api.ProblemArray:
		p.What = fmt.Sprintf("%s of cluster %s %s for a person", api.Count(count, "array"), cluster,
			api.Plural(count, "waits", "wait"))
		p.Why = "elements are dead letters, or were lost with their agent and may have been done"
		p.Do = "Look at them and decide: mainstay array elements ARRAY --status dead_letter, mainstay array retry ARRAY"
		return p
	case api.ProblemRun:
		p.What = fmt.Sprintf("%s of cluster %s %s for a person", api.Count(count, "run"), cluster,
			api.Plural(count, "waits", "wait"))
		p.Why = "nothing goes on there until a step is approved, reviewed or otherwise decided"
		p.Do = "See in each what it waits for, and decide: mainstay run list --status blocked"
		return p
	}
	p.What = fmt.Sprintf("%s of cluster %s %s for a decision", api.Count(count, "task"), cluster,
		api.Plural(count, "waits", "wait"))
	p.Why = "each may have run already; running it again may not be safe"
	p.Do = "See why each waits, find out whether it was done, and decide: mainstay task list --status review"
	return p
}

// OfFailover is about a failover that runs, or that ended without success within the last hour.
func OfFailover(r *api.FailoverRecord, now time.Time) (api.Problem, bool) {
	p := api.Problem{
		Severity: api.SeverityWarning,
		Kind:     api.ProblemFailover,
		Cluster:  r.Cluster,
		Agents:   []string{r.FailedAgentID},
		Failover: r.ID,
		Since:    since(r.NoticedAt),
		Count:    int64(r.Tasks),
	}
	switch {
	case r.Status == api.FailoverRunning:
		p.Severity, p.What = api.SeverityNotice, "the work of agent "+r.FailedAgentID+" is being moved"
		p.Why = r.Reason
	case r.Status == api.FailoverSucceeded || r.CompletedAt == nil || now.Sub(*r.CompletedAt) > recentFailover:
		return api.Problem{}, false
	case r.Status == api.FailoverNoTarget:
		p.What, p.Why = "no agent could take over from "+r.FailedAgentID, r.Error
		p.Do = "Its work waits in its lanes: start an agent that may serve them."
	default:
		p.What, p.Why = "the failover of agent "+r.FailedAgentID+" did not succeed", r.Error
		p.Do = "Its record says how far it came."
	}
	return p, true
}
