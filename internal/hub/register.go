package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// goodbyeKept is how long a hub remembers a goodbye: longer than a cluster takes to hear of it.
const goodbyeKept = time.Minute

// Registrations of one agent id: so many a second, and so many at once.
const (
	registerRate  = 1.0
	registerBurst = 20
)

// openSession joins the cluster and opens, or re-attaches, the session. token is the join token or, with resume, the
// agent's session token.
func (e endpoints) openSession(
	ctx context.Context, reg protocol.Register, token cluster.JoinToken, resume bool,
) (protocol.Registered, error) {
	if err := validateRegistration(reg); err != nil {
		return protocol.Registered{}, err
	}
	id := reg.Cluster + "/" + reg.AgentID
	if resume {
		id += "/" + reg.InstanceID // an older process must not use up what a newer one needs
	}
	if wait := e.hub.registrations.Take(id, 1, time.Now()); wait > 0 {
		return protocol.Registered{}, httpapi.RetryAfter(wait,
			"this agent id registers too often: wait for as long as Retry-After says")
	}
	elsewhere, err := e.refuseForeign(ctx, reg)
	if err != nil {
		return protocol.Registered{}, err
	}
	if !resume {
		if err := e.hub.refuseRival(&reg, elsewhere, time.Now()); err != nil {
			return protocol.Registered{}, err
		}
	}
	done, err := e.hub.registers(reg.AgentID)
	if err != nil {
		return protocol.Registered{}, err
	}
	defer done()
	reg.StartedAt = reg.StartedAt.UTC()
	joined, err := e.hub.joins.join(ctx, reg.Cluster, cluster.Join{
		AgentID:      reg.AgentID,
		Instance:     reg.InstanceID,
		Registration: reg.Registration,
		AgentProfile: reg.AgentProfile,
		Token:        token,
		Resume:       resume,
	})
	if err != nil {
		if code, _ := httpapi.Code(err); code == protocol.CodeUnavailable {
			e.hub.unanswered.ask(reg.Cluster) // it may have been admitted
		}
		return protocol.Registered{}, err
	}
	if err := refusal(joined.Refused); err != nil {
		return protocol.Registered{}, err
	}
	opened := false
	defer func() {
		if !opened {
			e.hub.unanswered.ask(reg.Cluster)
		}
	}()
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if e.hub.stopping {
		return protocol.Registered{}, stoppingProblem()
	}
	s, err := e.hub.admitLocked(reg, hostOf(ctx), token.ID, &joined, time.Now())
	if err != nil {
		return protocol.Registered{}, err
	}
	opened = true
	return protocol.Registered{
		SessionToken: e.hub.seal.session(sessionClaims{Hub: e.hub.id, Agent: s.agent, Cluster: s.cluster,
			Instance: s.instance, Epoch: s.epoch, Token: s.token}),
		Epoch:             s.epoch,
		HubID:             e.hub.id,
		HeartbeatInterval: api.Duration(s.timing.HeartbeatInterval),
		FailureThreshold:  api.Duration(s.timing.FailureThreshold),
		Lease:             api.Duration(cluster.AgentLease(s.lease)),
	}, nil
}

// refusal is the answer to an agent that its cluster did not admit; nil: it did.
func refusal(why string) error {
	switch why {
	case "":
		return nil
	case cluster.RefusedFenced:
		return fencedProblem()
	case cluster.RefusedRevoked:
		return revokedProblem()
	}
	answer, known := refusals[why]
	if !known {
		answer = [2]string{protocol.CodeConflict, "the cluster refused the agent: " + why}
	}
	return httpapi.Problem(answer[0], answer[1])
}

// refusals are the code and the text of the answer, by reason.
var refusals = map[string][2]string{
	cluster.RefusedLate:  {protocol.CodeConflict, "a later registration of this process came first"},
	cluster.RefusedToken: {protocol.CodeUnauthorized, "the join token was revoked: ask an admin for another"},
	cluster.RefusedUses: {protocol.CodeForbidden,
		"the join token has let in as many agents as it may (max_uses): ask an admin for another"},
	cluster.RefusedResume: {protocol.CodeUnauthorized,
		"the cluster does not know the session any more: register with a join token"},
	cluster.RefusedProfile: {protocol.CodeInvalidRequest,
		"the agent tells too much of itself: less metadata, task types or capabilities"},
	cluster.RefusedProfiles: {protocol.CodeClusterFull,
		"the cluster's agents tell too much of themselves together: register with less metadata, task types or " +
			"capabilities, or shorter ids"},
	cluster.RefusedFull: {
		protocol.CodeClusterFull,
		"the cluster has its maximum of agents: raise max_agents, or stop one",
	},
}

func stoppingProblem() error {
	return httpapi.Problem(protocol.CodeUnavailable, "this hub is stopping: try another or try again")
}

// registers marks a registration as under way until done is called. A hub that stops refuses it.
func (h *Hub) registers(agent string) (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return nil, stoppingProblem()
	}
	h.registering[agent]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.registering[agent]--; h.registering[agent] == 0 {
			delete(h.registering, agent)
		}
	}, nil
}

func validateRegistration(reg protocol.Register) error {
	if err := api.ValidateAgentID(reg.AgentID); err != nil {
		return invalidField("agent_id", err)
	}
	if err := api.ValidateID("cluster", reg.Cluster); err != nil {
		return invalidField("cluster", err)
	}
	var wrong *api.FieldError
	if err := reg.AgentProfile.Validate(); errors.As(err, &wrong) {
		return invalidField(wrong.Field, wrong.Err)
	}
	if err := reg.Providers.Validate(); err != nil {
		return invalidField("providers", err)
	}
	return nil
}

func invalidField(location string, err error) error {
	return httpapi.Problem(protocol.CodeInvalidRequest, err.Error(),
		api.ProblemField{Location: "body." + location, Message: err.Error()})
}

// refuseForeign refuses an agent id that is online in another cluster: ids are unique in a namespace. elsewhere: this
// hub has no session of the id, and it is online in its cluster.
func (e endpoints) refuseForeign(ctx context.Context, reg protocol.Register) (elsewhere bool, err error) {
	e.hub.mu.Lock()
	s := e.hub.sessions[reg.AgentID]
	e.hub.mu.Unlock()
	if s != nil {
		if s.cluster != reg.Cluster {
			return false, foreignProblem()
		}
		return false, nil
	}
	clusters, err := e.hub.online.clustersOf(ctx, reg.AgentID, time.Now())
	if err != nil {
		return false, temporalProblem(err)
	}
	if slices.ContainsFunc(clusters, func(c string) bool { return c != reg.Cluster }) {
		return false, foreignProblem()
	}
	return len(clusters) > 0, nil
}

func foreignProblem() error {
	return httpapi.Problem(protocol.CodeAgentIDInUse,
		"another cluster has this agent id online: choose another id, or stop that agent")
}

// admitLocked opens the session of a joined agent, or brings an existing one up to date. from is the address that it
// registers from.
func (h *Hub) admitLocked(
	reg protocol.Register, from, token string, joined *cluster.Joined, now time.Time,
) (*session, error) {
	epoch := joined.Epoch
	s, directive := h.sessions[reg.AgentID], h.directives[reg.Cluster]
	if s != nil && s.cluster != reg.Cluster {
		return nil, foreignProblem() // it registered there while this one joined
	}
	if s != nil && (s.epoch > epoch || s.epoch == epoch && s.instance != reg.InstanceID) ||
		directive.Fenced(reg.AgentID, epoch) {
		return nil, fencedProblem() // a newer process registered while this one joined, here or at another hub
	}
	if directive.Ended(token) {
		return nil, revokedProblem() // it was revoked meanwhile
	}
	if left := h.goodbyes[reg.Cluster+"/"+reg.AgentID]; left != nil && left.instance == reg.InstanceID &&
		left.epoch == epoch && (reg.Registration <= left.registration.Registration ||
		left.registration.Registration == 0) { // its goodbye counts whatever registered since
		return nil, httpapi.RetryAfter(time.Second, "this process has said goodbye a moment ago")
	}
	if s != nil && s.instance != reg.InstanceID {
		h.fenceLocked(s, now)
		s = nil
	}
	if s == nil {
		s = newSession(reg, epoch, now)
		s.timing = h.config.Timing.For(len(h.sessions))
		if joined.GivenUp {
			h.metrics.mistakes.Inc()
		}
		if joined.Refuted != "" {
			h.metrics.refuted.Inc()
			h.log.Error("An agent lives although a proof said that it had ended", zap.String("agent", s.agent),
				zap.String("proof", joined.Refuted))
		}
		s.health = h.health.Open(s.agent)
		h.sessions[s.agent] = s
		h.metrics.registered.Inc()
	} else {
		fresh := newSession(reg, epoch, now)
		s.registration, s.candidate, s.kind = fresh.registration, fresh.candidate, fresh.kind
		s.access, s.lastContact, s.disconnectedAt = reg.Providers, now, time.Time{}
		s.sequence, s.repliedAt, s.vacated = 0, time.Time{}, false
		s.health.Rejoined()
		s.repeat()
	}
	s.token, s.mistakes = token, joined.Mistakes
	s.lease, s.offered = h.newLeaseLocked(s), 0
	h.moveLocked(s, from)
	h.states.Rejoined(s.cluster, s.state != nil)
	listed := map[attemptKey]bool{}
	for _, r := range reg.Running {
		listed[attemptKey{r.TaskID, r.Attempt}] = true
		h.reattachLocked(s, r, now)
	}
	h.settleUnlistedLocked(s, listed, func(a *attempt) bool { return a.deliveredIn > 0 }, h.giveBackLocked)
	h.settleAwaitedLocked(s, listed)
	for _, a := range s.attempts {
		a.deliveredIn = min(a.deliveredIn, 1) // the process counts its polls from 1 again
	}
	s.answerNow = len(reg.Running) > 0
	h.slotsChangedLocked(s)
	h.serveLocked(s)
	h.sendRoleLocked(s)
	h.registry.Changed(s.agent)
	return s, nil
}

// leftLocked remembers a goodbye. The cluster removes the member when it hears of it: a session that is opened for the
// same epoch meanwhile would be no member's, seen by nobody.
func (h *Hub) leftLocked(s *session) {
	id := s.cluster + "/" + s.agent
	h.goodbyes[id] = s
	time.AfterFunc(goodbyeKept, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.goodbyes[id] == s {
			delete(h.goodbyes, id)
		}
	})
}

// reattachLocked takes over an attempt that the agent still runs, as after a restart of the hub.
func (h *Hub) reattachLocked(s *session, r protocol.RunningAttempt, now time.Time) {
	key := attemptKey{r.TaskID, r.Attempt}
	a := s.attempts[key]
	if a == nil {
		claims, err := h.seal.openAttempt(r.Token)
		cluster, _, _ := contract.LaneOfQueue(claims.Lane)
		if err != nil || claims.Agent != s.agent || claims.Instance != s.instance || claims.Task != r.TaskID ||
			claims.Attempt != r.Attempt || cluster != "" && cluster != s.cluster {
			s.drop(key, "its token is not this session's")
			return
		}
		a = &attempt{attemptKey: key, session: s, token: claims.Temporal, sealed: r.Token, lane: claims.Lane,
			assignedAt: now, deliveredIn: 1, beacon: claims.Beacon.Std(), stopGrace: claims.StopGrace.Std(),
			grace: claims.Grace.Std(), fenced: claims.Fenced,
			taskType: claims.Type, tenant: claims.Tenant, instance: claims.JobInstance,
			allocation: claims.Allocation, logLimit: claims.logLimit()}
		s.attempts[key] = a
		s.reallocated(a.allocation)
		h.fresh = append(h.fresh, a)
		h.metrics.reattached.Inc()
	}
	a.apply(r, now)
	a.beatNeeds = true // tells Temporal soon that this hub has it
}

// temporalProblem is the answer when Temporal refuses or cannot be reached.
func temporalProblem(err error) error {
	if store.KindOf(err) == store.NotFound {
		return httpapi.Problem(protocol.CodeUnknownCluster,
			"no such cluster: create it first (mainstay cluster create, or POST /api/v1/agents/clusters)")
	}
	return httpapi.Problem(protocol.CodeUnavailable, "Temporal does not answer: try again")
}
