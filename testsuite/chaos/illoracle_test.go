//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// awaySlack is how long after a break of the control plane nothing is demanded of healing: agents and workflows
	// find back to it, and leases run.
	awaySlack = 20 * time.Second
	// factsAge is how old the facts of a healing decision may be.
	factsAge = 5 * time.Second
	// reducedSlack is when what a hub had given to an agent before it heard of its reduced load has begun.
	reducedSlack = 3 * time.Second
)

// judgeHealing holds healing to docs/SCALING.md: it does what is due, nothing that it must not, and gives back what it
// took.
func (v *verdict) judgeHealing(e evidence, attempts []ran) {
	for i := range e.illnesses {
		ill := &e.illnesses[i]
		switch {
		case ill.kept:
			v.judgeKept(e, ill)
		default:
			v.judgeTreatment(e, ill)
			v.judgeRelief(e, ill, attempts)
			v.judgeOnce(e, ill, attempts)
		}
		if ill.serving == 0 && !ill.flaps {
			v.blame(&v.healingFaults, "%s was %s, is well again and does not serve", ill.agent, ill.level)
		}
	}
	v.judgeLimits(e)
	v.judgeOuts(e, attempts)
}

// permits says whether healing may take these agents away from a cluster by what one look shows, which may show them as
// taken: half must be left, and another that is fit for the work (worst: the worst level at which it is).
func (l *fleetLook) permits(cluster string, takes []string, worst api.HealthLevel) bool {
	members, serving, fit := 0, 0, 0
	for i := range l.agents {
		a := &l.agents[i]
		taken := slices.Contains(takes, a.ID)
		if a.Cluster != cluster || a.Status == api.AgentOffline || a.Hub == "" || a.out(false) && !taken {
			continue
		}
		members++
		if taken || a.Status != api.AgentOnline {
			continue
		}
		serving++
		if !a.Health.WorseThan(worst) {
			fit++
		}
	}
	return serving >= max(1, (members+1)/2) && fit >= 1
}

// judgeTreatment looks for a time as long as healing needs in which an agent was ill, nothing was in the way, and
// nothing was done.
func (v *verdict) judgeTreatment(e evidence, ill *illness) {
	if ill.treated != 0 {
		v.treated++
	}
	end := ill.to
	if ill.treated != 0 {
		end = ill.treated
	}
	earlier := 0
	for i := range e.illnesses {
		if o := &e.illnesses[i]; o.agent == ill.agent && o.from < ill.from && o.treated != 0 {
			earlier++
		}
	}
	limit := healLimit
	if earlier > 0 {
		limit += healDamping << (earlier - 1) // damped, ever longer
	}
	var since int64
	judged := false
	for i := range e.looks {
		l := &e.looks[i]
		if l.at < ill.from || l.at > end {
			continue
		}
		a := l.of(ill.agent)
		free := a != nil && a.Status == api.AgentOnline && !a.treated() && !nearAway(e.away, l.at) &&
			(ill.level == api.HealthWarning || l.permits(ill.cluster, []string{ill.agent}, api.HealthHealthy))
		switch {
		case !free:
			since = 0
		case since == 0:
			since = l.at
		case time.Duration(l.at-since) > limit+e.underWay(ill.agent, l.wall) && !judged:
			judged = true
			v.blame(&v.healingFaults,
				"%s was %s for %s with nothing in the way (the API rates it %s), and healing did nothing", ill.agent,
				ill.level,
				time.Duration(l.at-since).Round(time.Second), a.Health)
		}
	}
	if ill.treated == 0 && !judged {
		v.untreatable++
	}
}

// underWay is how much longer an agent may be ill while a failover of it is under way, which healing has decided on.
func (e *evidence) underWay(agent string, at time.Time) time.Duration {
	for i := range e.actions {
		a := &e.actions[i]
		if a.Type == api.HealFailover && a.TargetID == agent && a.DecidedAt.Before(at) &&
			(a.CompletedAt == nil || a.CompletedAt.After(at)) {
			return healLimit
		}
	}
	return 0
}

// nearAway reports whether the control plane was broken shortly before a time.
func nearAway(away []span, at int64) bool {
	return slices.ContainsFunc(away, func(s span) bool { return at >= s.from && at <= s.to+int64(awaySlack) })
}

// judgeKept is that healing leaves alone what an operator keeps out of service: its status, its slots, and whatever an
// action would change. A decision on facts from before the operator came is no fault where the cluster refused it.
func (v *verdict) judgeKept(e evidence, ill *illness) {
	slots := 0 // at the look before; an agent gets them back in maintenance too, and loses none
	for i := range e.looks {
		l := &e.looks[i]
		a := l.of(ill.agent)
		if l.asked <= ill.from || l.at >= ill.to || a == nil { // what was asked for before may show what was before
			continue
		}
		if !a.out(false) {
			v.blame(&v.healingFaults, "%s is in an operator's maintenance, and is shown as %s: %s", ill.agent, a.Status,
				a.Reason)
			return
		}
		if a.Slots < slots {
			v.blame(&v.healingFaults, "%s is in an operator's maintenance, and its slots went from %d to %d", ill.agent,
				slots, a.Slots)
		}
		slots = a.Slots
	}
	for i := range e.actions {
		if a := &e.actions[i]; a.TargetID == ill.agent && a.Status != api.HealingSkipped &&
			a.DecidedAt.After(ill.began) && a.DecidedAt.Before(ill.began.Add(time.Duration(ill.to-ill.from))) {
			v.blame(&v.healingFaults, "%s is in an operator's maintenance, and healing did something to it: %s %s",
				ill.agent, a.Type, a.Status)
		}
	}
}

// judgeRelief is that an agent with reduced load does not begin more than it may.
func (v *verdict) judgeRelief(e evidence, ill *illness, attempts []ran) {
	if ill.treated == 0 || ill.level != api.HealthWarning {
		return
	}
	from := ill.treated + int64(reducedSlack)
	for _, a := range attempts {
		if a.agent != ill.agent || a.begin < from || a.begin > ill.to || ofArray(a.task) {
			continue
		}
		slots := slotsAt(e.looks, ill.agent, a.begin)
		running := 1
		for _, o := range attempts {
			gone := e.lives.of(o).gone
			if o.agent == a.agent && o.begin < a.begin && (o.end == 0 || o.end > a.begin) &&
				(gone == 0 || gone > a.begin) {
				running++
			}
		}
		if slots > 0 && running > slots {
			v.blame(&v.healingFaults, "%s may run %d tasks at a time, and began %s as its %dth", ill.agent, slots,
				a.task, running)
		}
	}
}

// judgeOnce is that a drained agent's work is not run twice: what it had and finished while the control plane was whole
// begins nowhere else.
func (v *verdict) judgeOnce(e evidence, ill *illness, attempts []ran) {
	if ill.treated == 0 || ill.level != api.HealthDegraded {
		return
	}
	for _, a := range attempts {
		if a.agent != ill.agent || a.begin > ill.treated || a.end < ill.from || a.how != "done" || ofArray(a.task) ||
			nearAway(e.away, a.begin) || nearAway(e.away, a.end) {
			continue
		}
		v.finishedIll++
		for _, o := range attempts {
			if o.task == a.task && o.begin > a.end {
				v.blame(&v.healingFaults, "%s finished task %s while it was ill, and it began again: %s", ill.agent,
					a.task, told([]ran{a, o}))
			}
		}
	}
}

// slotsAt is how many slots an agent had at a time by the look before and the one after; 0: they do not agree, or did
// not see.
func slotsAt(looks []fleetLook, agent string, at int64) int {
	i := slices.IndexFunc(looks, func(l fleetLook) bool { return l.at > at })
	if i < 1 {
		return 0
	}
	before, after := looks[i-1].of(agent), looks[i].of(agent)
	if before == nil || after == nil || before.Slots != after.Slots {
		return 0
	}
	return before.Slots
}

// judgeLimits is that healing takes no agent away that its cluster cannot spare: some look shortly before the decision,
// or the first one after it, must allow it, together with what the same cycle took before.
func (v *verdict) judgeLimits(e evidence) {
	taken := map[[2]string][]string{} // by cycle and cluster
	for i := len(e.actions) - 1; i >= 0; i-- {
		a := &e.actions[i]
		if (a.Type != api.HealDrain && a.Type != api.HealFailover) || a.Status == api.HealingSkipped ||
			a.Status == api.HealingPlanned {
			continue
		}
		key := [2]string{a.Cycle, a.Cluster}
		taken[key] = append(taken[key], a.TargetID)
		worst := api.HealthHealthy
		if a.Type == api.HealFailover {
			worst = api.HealthWarning
		}
		looked, allowed := 0, false
		for j := range e.looks {
			l := &e.looks[j]
			if l.of(a.TargetID) == nil || l.wall.Before(a.DecidedAt.Add(-factsAge)) { // its cluster did not answer
				continue
			}
			if l.wall.After(a.DecidedAt.Add(factsAge)) {
				break
			}
			looked++
			allowed = allowed || l.permits(a.Cluster, taken[key], worst)
			if l.wall.After(a.DecidedAt.Add(lookEvery)) { // the first that the API answered after the decision
				break
			}
		}
		if looked > 0 && !allowed {
			v.blame(&v.healingFaults, "healing took %s away from %s (%s at %s) although that cannot spare it",
				a.TargetID, a.Cluster, a.Type, a.DecidedAt.Format(time.TimeOnly))
		}
	}
}

// judgeOuts is I7 for what healing took out of service: nothing begins there. It also wants a recorded decision for
// each.
func (v *verdict) judgeOuts(e evidence, attempts []ran) {
	for _, o := range outsByHealing(e.looks) {
		v.outs++
		for _, a := range attempts {
			if a.agent == o.agent && a.begin > o.from && a.begin < o.to {
				v.blame(&v.healingFaults, "attempt %d of %s began on %s, which healing had taken out of service",
					a.number, a.task, o.agent)
			}
		}
		if !slices.ContainsFunc(e.actions, func(a api.HealingRecord) bool {
			return a.TargetID == o.agent && (a.Type == api.HealDrain || a.Type == api.HealFailover) &&
				a.Status != api.HealingSkipped && a.DecidedAt.Before(o.wall)
		}) {
			v.blame(&v.healingFaults, "%s is out of service because of healing, and no action says so", o.agent)
		}
	}
}

// outOfService is a time in which looks showed an agent in maintenance because of healing.
type outOfService struct {
	agent string
	span
	wall time.Time // of the first look
}

// outsByHealing are the times in which healing kept agents out of service, from the first look that shows each to the
// last.
func outsByHealing(looks []fleetLook) []outOfService {
	var all []outOfService
	open := map[string]int{}
	for i := range looks {
		l := &looks[i]
		for j := range l.agents {
			a := &l.agents[j]
			k, is := open[a.ID]
			switch {
			case !a.out(true) || a.Status != api.AgentMaintenance:
				delete(open, a.ID)
			case is:
				all[k].to = l.asked
			default:
				open[a.ID] = len(all)
				all = append(all, outOfService{agent: a.ID, span: span{l.at, l.asked}, wall: l.wall})
			}
		}
	}
	return all
}

// healingLine sums up the illnesses for the run's report.
func (v *verdict) healingLine(e evidence) string {
	return fmt.Sprintf(
		"agents made ill %d: %d treated, %d could not be (others were away, or the control plane was), %d left alone in maintenance; times out of service by healing %d; tasks that drained agents finished %d; %s",
		len(e.illnesses), v.treated, v.untreatable, keptOf(e.illnesses), v.outs, v.finishedIll, healed(e.actions))
}

// healingStory tells all that the oracle of healing goes by, for a person who looks for the cause of a fault:
// illnesses, actions, times in which the control plane was broken, and each look that shows an agent otherwise than the
// one before.
func (e *evidence) healingStory() []byte {
	var b bytes.Buffer
	for i := range e.illnesses {
		ill := &e.illnesses[i]
		fmt.Fprintf(&b, "illness of %s (%s, kept %t) from %d to %d, treated %d, serving %d, began %s\n", ill.agent,
			ill.level, ill.kept, ill.from, ill.to,
			ill.treated, ill.serving, ill.began.UTC().Format(time.RFC3339Nano))
	}
	for _, s := range e.away {
		fmt.Fprintf(&b, "control plane broken from %d to %d\n", s.from, s.to)
	}
	for i := range e.actions {
		text, _ := json.Marshal(&e.actions[i])
		fmt.Fprintf(&b, "action %s\n", text)
	}
	before := map[string]agentLook{}
	for i := range e.looks {
		l := &e.looks[i]
		for _, a := range l.agents {
			if before[a.ID] != a {
				before[a.ID] = a
				fmt.Fprintf(&b, "look asked %d (%s) answered %d: %+v\n", l.asked, l.wall.UTC().Format(time.RFC3339Nano),
					l.at, a)
			}
		}
	}
	return b.Bytes()
}

func keptOf(all []illness) int {
	n := 0
	for i := range all {
		if all[i].kept {
			n++
		}
	}
	return n
}
