package fleet

import (
	"fmt"
	"strings"
	"time"
)

// LaneFacts are what is known of a lane's backlog.
type LaneFacts struct {
	Cluster, Lane string
	Depth         int64
	Oldest        time.Duration
	// Agents serve it now, with Slots tasks at a time.
	Agents, Slots int
	Paused        bool
}

// Trouble is about work that waits too long in a lane, or that nobody takes. A pause is a problem of its own.
func (l LaneFacts) Trouble(now time.Time) (Trouble, bool) {
	if l.Depth == 0 || l.Paused {
		return Trouble{}, false
	}
	p := Trouble{Cluster: l.Cluster, Lane: l.Lane, Count: l.Depth, Since: since(now.Add(-l.Oldest))}
	where := "lane " + l.Lane + " of cluster " + l.Cluster
	switch agent, pinned := AgentOfLane(l.Lane); {
	case l.Agents == 0 && pinned:
		p.Severity, p.Kind = SeverityWarning, TroubleNotServed
		p.What = fmt.Sprintf("%s for agent %s, which is not online", tasksWait(l.Depth), agent)
		p.Do = "Start the agent again, or cancel the tasks: no other agent may do them."
	case l.Agents == 0:
		p.Severity, p.Kind = SeverityCritical, TroubleNotServed
		p.What = fmt.Sprintf("%s in %s, which no online agent serves", tasksWait(l.Depth), where)
		p.Do = "Start an agent that may serve it."
		if capabilities, ok := strings.CutPrefix(l.Lane, "cap/"); ok {
			p.Do = "Start an agent with the capabilities " + strings.ReplaceAll(capabilities, "+", ", ") + "."
		}
	case l.Oldest >= OldWork:
		p.Severity, p.Kind = SeverityWarning, TroubleOldWork
		p.What = fmt.Sprintf("%s in %s, the first for longer than a minute", tasksWait(l.Depth), where)
		p.Why = fmt.Sprintf("%s with %d slots %s it", agentCount(l.Agents), l.Slots, serveWord(l.Agents))
		p.Do = "If it does not get shorter, start more agents."
	default:
		return Trouble{}, false
	}
	return p, true
}

// PersonalTrouble is about tasks of a cluster that wait for a person, the first of them since from.
func PersonalTrouble(cluster string, status TaskStatus, count int64, from time.Time) Trouble {
	p := Trouble{Severity: SeverityWarning, Kind: TroubleReview, Cluster: cluster, Count: count, Since: since(from)}
	if status == TaskDeadLetter {
		p.Kind = TroubleDeadLetter
		p.What = fmt.Sprintf("%d dead letters of cluster %s", count, cluster)
		if count == 1 {
			p.What = "1 dead letter of cluster " + cluster
		}
		p.Do = "Mend the cause and retry them, or discard them. They fail by themselves when their retention ends."
		return p
	}
	p.What = fmt.Sprintf("%d tasks of cluster %s wait for a decision", count, cluster)
	if count == 1 {
		p.What = "1 task of cluster " + cluster + " waits for a decision"
	}
	p.Why = "running them again may not be safe: their agent was lost and may have done them"
	p.Do = "Find out whether they were done, and decide."
	return p
}

// Trouble is about a failover that runs, or that did not succeed of late.
func (r *FailoverRecord) Trouble(now time.Time) (Trouble, bool) {
	p := Trouble{Severity: SeverityWarning, Kind: TroubleFailover, Cluster: r.Cluster, Agents: []string{r.FailedAgentID}, Failover: r.ID,
		Since: since(r.NoticedAt), Count: int64(len(r.Transfers))}
	switch {
	case r.Status == FailoverRunning:
		p.Severity, p.What = SeverityNotice, "the work of agent "+r.FailedAgentID+" is being moved"
		p.Why = r.Reason
	case r.Status == FailoverSucceeded || r.CompletedAt == nil || now.Sub(*r.CompletedAt) > recentFailover:
		return Trouble{}, false
	case r.Status == FailoverNoTarget:
		p.What, p.Why = "no agent could take over from "+r.FailedAgentID, r.Error
		p.Do = "Its work waits in its lanes: start an agent that may serve them."
	default:
		p.What, p.Why = "the failover of agent "+r.FailedAgentID+" did not succeed", r.Error
		p.Do = "Its record says how far it came."
	}
	return p, true
}

func tasksWait(n int64) string {
	if n == 1 {
		return "1 task waits"
	}
	return fmt.Sprintf("%d tasks wait", n)
}

func serveWord(agents int) string {
	if agents == 1 {
		return "serves"
	}
	return "serve"
}
