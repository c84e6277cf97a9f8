package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Registrations of one agent id: how many a second, and how many at once.
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
		Lease:             api.Duration(cluster.AgentLease(s.lease.length)),
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
	clusters, err := e.hub.online.ClustersOf(ctx, reg.AgentID, time.Now())
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

// temporalProblem is the answer when Temporal refuses or cannot be reached.
func temporalProblem(err error) error {
	if store.KindOf(err) == store.NotFound {
		return httpapi.Problem(protocol.CodeUnknownCluster,
			"no such cluster: create it first (mainstay cluster create, or POST /api/v1/agents/clusters)")
	}
	return httpapi.Problem(protocol.CodeUnavailable, "Temporal does not answer: try again")
}
