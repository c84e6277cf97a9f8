package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

// reprieveGraces is how many disconnect graces a held session has to come back after the brake was released. An agent
// that cannot connect tries at least every two seconds.
const reprieveGraces = 5

const (
	// judgeLimit is how long a hub waits for its cluster's answer about losses. Then it judges alone. Without that
	// answer no work would go on elsewhere either.
	judgeLimit = 5 * time.Second
	// judgeRetry is the pause after a question that failed.
	judgeRetry = time.Second
	// judgeSettle is how long after that the cluster may still hear of other hubs' losses.
	judgeSettle = 100 * time.Millisecond
	// idleSpacing is the least time before a report that is only about agents without work, unless the cluster is about
	// to judge others. Somebody may let agents without work come and go to keep the cluster busy.
	idleSpacing = 250 * time.Millisecond
)

// brake is a cluster's mass-loss brake, as far as the hub knows it.
type brake struct {
	cluster.Brake           // over this hub's agents
	engaged       bool      // lost agents are held: by this hub's judgement, or by the cluster's
	askCluster    bool      // the cluster judges, over all hubs
	look          brakeLook // the newest
	unheardSince  time.Time // since when the cluster does not know of changes; zero: it does
	reporting     bool      // a report is under way
	reportedAt    time.Time // when that began
}

// brakeLook is what one look at a cluster's agents at this hub found. Idle agents never had work.
type brakeLook struct {
	online      int
	missing     []string // vanished
	idle        []string // those of them that are idle
	known       int      // how many the cluster misses already
	changed     bool     // agents with work vanished or came back, and the cluster does not know
	idleChanged bool     // idle ones did
	unjudged    bool     // agents with work are missed, and the cluster is about to judge them
}

// settleBrakesLocked brings every cluster's mass-loss brake up to date. Agents count as soon as they are suspect, so
// that the brake knows of the others before the first is given up.
func (d detector) settleBrakesLocked(now time.Time) {
	h := d.hub
	for _, b := range h.brakes {
		b.look = brakeLook{}
	}
	for _, s := range h.sessions {
		b := h.brakeLocked(s.cluster)
		found, missed := &b.look, false
		switch judged := h.judgeLocked(s, now); judged {
		case cluster.Suspect, cluster.Lost:
			if !s.work.poisoned() {
				b.Lost(cluster.AgentLoss{AgentID: s.agent, Idle: !s.work.ever, At: now})
				missed = judged == cluster.Lost || !s.brieflyAway(now)
			}
		default:
			b.Back(s.agent)
			found.online++
		}
		if missed {
			found.missing = append(found.missing, s.agent)
			if !s.work.ever {
				found.idle = append(found.idle, s.agent)
			}
		}
		if s.loss.missed {
			found.known++
		}
		s.loss.unjudged = s.work.ever && missed && (!s.loss.missed || now.Sub(s.loss.missedAt) < judgeSettle)
		found.changed = found.changed || s.work.ever && missed != s.loss.missed
		found.idleChanged = found.idleChanged || !s.work.ever && missed != s.loss.missed
		found.unjudged = found.unjudged || s.loss.unjudged
	}
	for cluster, b := range h.brakes {
		was, rules := b.engaged, h.directives[cluster]
		for _, death := range rules.Deaths {
			b.Back(death.AgentID) // what is known to be dead has not vanished
		}
		b.engaged = b.Settle(b.look.online, now)
		if b.askCluster = rules.JudgesLosses && d.reportMissingLocked(cluster, b, now); b.askCluster {
			d.reportIdleLocked(cluster, b, now)
			b.engaged = rules.Braked
			if !b.engaged {
				b.EngagedAt = time.Time{} // so that its own brake keeps no losses beyond the window
			}
		}
		if was && !b.engaged {
			d.reprieveLocked(cluster, now)
		}
		if was != b.engaged {
			h.notices.Notify(cluster)
			h.log.Warn("The mass-loss brake changed", zap.String("cluster", cluster), zap.Bool("engaged", b.engaged),
				zap.Bool("over_all_hubs", b.askCluster), zap.Int("lost", b.Count()),
				zap.Int("online", b.look.online))
		}
	}
}

// reportMissingLocked reports to a cluster which agents the hub misses, if that has changed. It reports false when the
// cluster has not answered for so long that the hub must judge alone.
func (d detector) reportMissingLocked(cluster string, b *brake, now time.Time) bool {
	if !b.look.changed {
		b.unheardSince = time.Time{}
		return true
	}
	if b.unheardSince.IsZero() {
		b.unheardSince = now
	}
	d.beginReportLocked(cluster, b, now)
	return now.Sub(b.unheardSince) < judgeLimit
}

// reportIdleLocked reports a change of agents without work, for which no judgement waits. While no others are missed,
// only who is back counts.
func (d detector) reportIdleLocked(cluster string, b *brake, now time.Time) {
	found := &b.look
	if !found.idleChanged || !found.unjudged && now.Sub(b.reportedAt) < idleSpacing {
		return
	}
	if len(found.missing) == len(found.idle) {
		unknown := func(id string) bool { return !d.hub.sessions[id].loss.missed }
		found.idle = slices.DeleteFunc(found.idle, unknown)
		found.missing = found.idle
		if len(found.missing) == found.known {
			return
		}
	}
	d.beginReportLocked(cluster, b, now)
}

func (d detector) beginReportLocked(cluster string, b *brake, now time.Time) {
	if b.reporting {
		return
	}
	b.reporting, b.reportedAt = true, now
	missing := contract.Missing{Hub: d.hub.id, Agents: b.look.missing, Idle: b.look.idle}
	slices.Sort(missing.Agents)
	d.hub.wg.Go(func() { d.reportMissing(cluster, b, missing) })
}

func (d detector) reportMissing(cluster string, b *brake, missing contract.Missing) {
	h := d.hub
	ctx, cancel := context.WithTimeout(h.run, joinTimeout)
	defer cancel()
	directive, err := store.UpdateCluster(ctx, h.store.Clusters(), contract.MissUpdate, cluster, missing)
	if err != nil {
		h.log.Warn("A cluster did not judge the loss of agents", zap.String("cluster", cluster), zap.Error(err))
		backoff.Pause(h.run, judgeRetry)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b.reporting = false
	if err != nil {
		return
	}
	h.applyDirectiveLocked(directive)
	b.unheardSince = time.Time{}
	for _, s := range h.sessions {
		_, told := slices.BinarySearch(missing.Agents, s.agent)
		if s.cluster == cluster && s.loss.missed != told {
			s.loss.missed, s.loss.missedAt = told, time.Now()
		}
	}
}

func (h *Hub) brakeLocked(cluster string) *brake {
	b := h.brakes[cluster]
	if b == nil {
		b = &brake{}
		h.brakes[cluster] = b
	}
	b.Policy = h.directives[cluster].Brake
	return b
}

// reprieveLocked gives the sessions that the brake held some time to come back after its release: the first returns
// show that the network recovers, and the others may be on their way.
func (d detector) reprieveLocked(cluster string, now time.Time) {
	h := d.hub
	for _, s := range h.sessions {
		if s.cluster == cluster && s.loss.held {
			s.loss.reprieve = now.Add(reprieveGraces * h.config.Timing.DisconnectGrace)
		}
	}
}

// holdLocked keeps a lost session and its attempts while the brake is engaged, and notifies the cluster once.
func (d detector) holdLocked(s *session, now time.Time) {
	h := d.hub
	if s.loss.held {
		return
	}
	s.loss.held = true
	h.slotsChangedLocked(s)
	b := h.brakeLocked(s.cluster)
	vanished := "too many agents of all hubs"
	if !b.askCluster {
		vanished = api.Count(b.Count(), "agent")
	}
	why := fmt.Sprintf("held by the mass-loss brake: %s vanished at once; its %d attempts wait for it", vanished,
		len(s.work.attempts))
	h.notices.Notify(s.cluster, s.transition(api.AgentSuspect, why, now))
}

// unholdLocked takes a held session back when its agent polls again.
func (h *Hub) unholdLocked(s *session, now time.Time) {
	if !s.loss.held {
		return
	}
	s.loss.held = false
	h.notices.Notify(s.cluster, s.transition(api.AgentOnline, "it is back", now))
}

// releaseBrake gives up the agents that the brake holds, because a person released it.
func (c activities) releaseBrake(_ context.Context, request contract.ReleaseBrakeRequest) error {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.brakeLocked(request.Cluster).Release()
	c.hub.notices.Notify(request.Cluster)
	now := time.Now()
	for _, s := range c.hub.sessions {
		if s.cluster == request.Cluster && s.loss.held {
			e := c.hub.givenUpLocked(s, now)
			e.reason += "; the mass-loss brake was released by hand"
			c.hub.endLocked(s, e)
		}
	}
	return nil
}
