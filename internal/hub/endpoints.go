package hub

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	// maxPollBytes bounds a poll, of which checkpoints are the large part.
	maxPollBytes = 8 << 20
	// maxLogBytes bounds log lines: a character of text may take six bytes of JSON.
	maxLogBytes = 6*api.MaxLogBytes + 128<<10
	// maxRegisterBytes bounds a registration: a process that comes back lists its attempts, with tokens.
	maxRegisterBytes = 8 << 20
	// maxStateBytes bounds an agent's report of its state: its manifest, or a part of the entries.
	maxStateBytes = 2 << 20
)

// Authorized has the headers that every request of a session carries.
type Authorized struct {
	ID            string `path:"id" maxLength:"63" doc:"The agent's id."`
	Authorization string `header:"Authorization" maxLength:"4096" doc:"Bearer and the session token."`
}

type (
	registerInput struct {
		Session string `header:"Mainstay-Session" maxLength:"4096" doc:"The session token, when the same process registers again: it then counts as this agent's request, and not for its join token."`
		Body    protocol.Register
	}
	registerOutput struct{ Body protocol.Registered }
	resumeInput    struct {
		Authorized
		Body protocol.Register
	}
	pollInput struct {
		Authorized
		Body protocol.Poll
	}
	pollOutput  struct{ Body protocol.Polled }
	resultInput struct {
		Authorized
		TaskID string `path:"task_id" maxLength:"127"`
		Body   protocol.Result
	}
	resultOutput struct{ Body protocol.ResultAccepted }
	logInput     struct {
		Authorized
		TaskID string `path:"task_id" maxLength:"127"`
		Body   protocol.Log
	}
	logOutput  struct{ Body protocol.LogTaken }
	stateInput struct {
		Authorized
		Body protocol.StateReport
	}
	stateOutput  struct{ Body protocol.StateTaken }
	goodbyeInput struct {
		Authorized
		Died string `query:"died" maxLength:"512" doc:"How the agent's process ended. For its supervisor, once nothing runs any more that the process started: work and roles that wait for leases move at once."`
	}
)

// maxDied bounds in bytes how an agent's process ended, as its supervisor says. All members of a cluster may end at
// once.
const maxDied = 256

// endpoints are the requests of agents.
type endpoints struct{ hub *Hub }

// Register adds the agent protocol to an API.
func (h *Hub) Register(routes huma.API) {
	e := endpoints{h}
	operation := func(id, method, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary,
			Tags: []string{"agent protocol"}}
	}
	register := operation("register-agent", http.MethodPost, protocol.RegisterPath,
		"Open or re-attach an agent's session")
	register.MaxBodyBytes = maxRegisterBytes
	httpapi.Register(routes, access.Join, register, e.registerAgent)
	poll := operation("poll-agent", http.MethodPost, protocol.PollPath,
		"Heartbeat, and wait for assignments and commands")
	poll.MaxBodyBytes = maxPollBytes
	httpapi.Register(routes, access.Session, poll, e.pollAgent)
	result := operation("report-result", http.MethodPost, protocol.ResultPath, "Report how an attempt ended")
	result.MaxBodyBytes = 2 * api.MaxPayloadBytes
	httpapi.Register(routes, access.Session, result, e.reportResult)
	log := operation("send-log", http.MethodPost, protocol.LogPath,
		"Send log lines of an attempt that somebody watches")
	log.MaxBodyBytes = maxLogBytes
	httpapi.Register(routes, access.Session, log, e.sendLog)
	state := operation("send-state", http.MethodPost, protocol.StatePath,
		"Answer a command about the state that the agent shares with its cluster")
	state.MaxBodyBytes = maxStateBytes
	httpapi.Register(routes, access.Session, state, e.sendState)
	resume := operation("resume-session", http.MethodPost, protocol.SessionPath,
		"Go on with a session at a hub that does not know it")
	resume.Description = "For an agent that registered with a join token whose time is over, or that was revoked " +
		"since, and whose hub was restarted. The body is that of registering, by the same process."
	resume.MaxBodyBytes = maxRegisterBytes
	httpapi.Register(routes, access.Session, resume, e.resumeSession)
	goodbye := operation("end-session", http.MethodDelete, protocol.SessionPath,
		"Say goodbye, or prove that the agent died")
	goodbye.DefaultStatus = http.StatusNoContent
	httpapi.Register(routes, access.Session, goodbye, e.goodbye)
}

// authorize reads the session token and checks that it belongs to the agent in the path.
func (e endpoints) authorize(a Authorized) (sessionClaims, error) {
	token, isBearer := strings.CutPrefix(a.Authorization, "Bearer ")
	claims, err := e.hub.seal.openSession(token)
	if !isBearer || err != nil || claims.Agent != a.ID {
		return sessionClaims{}, httpapi.Problem(
			protocol.CodeUnauthorized,
			"the session token is missing, forged or another agent's: register, and send its session_token as "+
				"Authorization: Bearer",
		)
	}
	return claims, nil
}

// findLocked returns the session that the claims name, or the problem to answer with. A session belongs to one hub: the
// cluster counts the agent there, so another hub with an older session of the same process must not use that one.
func (h *Hub) findLocked(claims sessionClaims) (*session, error) {
	if err := h.refuseEndedLocked(claims); err != nil {
		return nil, err
	}
	s := h.sessionInLocked(claims.Cluster, claims.Agent)
	switch {
	case s == nil || claims.Hub != h.id:
		return nil, httpapi.Problem(protocol.CodeUnknownSession,
			"this hub does not know the session: register again with the same instance_id; running work is kept")
	case s.instance == claims.Instance && s.epoch == claims.Epoch:
		return s, nil
	}
	return nil, httpapi.Problem(protocol.CodeUnknownSession, "the session is not the agent's newest: register again")
}

// refuseEndedLocked refuses a session that an admin has ended, or whose agent has a newer one.
func (h *Hub) refuseEndedLocked(claims sessionClaims) error {
	if directive := h.directives[claims.Cluster]; directive.Ended(claims.Token) {
		return revokedProblem()
	}
	if s := h.sessionInLocked(claims.Cluster, claims.Agent); s != nil && s.epoch > claims.Epoch {
		return fencedProblem()
	}
	return nil
}

func fencedProblem() error {
	return httpapi.Problem(protocol.CodeFenced, "a newer process has this agent id: this one must stop")
}

func revokedProblem() error {
	return httpapi.Problem(protocol.CodeSessionRevoked,
		"an admin has revoked the join token that this agent registered with, and ended its session: stop")
}

func (e endpoints) registerAgent(ctx context.Context, in *registerInput) (*registerOutput, error) {
	if in.Body.Address == "" {
		in.Body.Address = hostOf(ctx)
	}
	access.Touch(ctx, "agent", in.Body.AgentID)
	access.Touch(ctx, "cluster", in.Body.Cluster)
	who := access.From(ctx)
	if !who.MayJoin(in.Body.Cluster, in.Body.AgentID) {
		return nil, httpapi.Problem(protocol.CodeForbidden,
			"the join token is for another cluster, or for another agent: ask an admin for one that fits")
	}
	if claims, err := e.hub.seal.openSession(in.Session); err == nil && !claims.of(&in.Body) {
		return nil, foreignSession()
	}
	registered, err := e.openSession(ctx, in.Body, joinTokenOf(&who), false)
	if err != nil {
		return nil, err
	}
	return &registerOutput{Body: registered}, nil
}

func foreignSession() error {
	return httpapi.Problem(protocol.CodeForbidden,
		"the session is that of another agent, cluster or process: register with a join token")
}

// joinTokenOf is the join token that an agent registers with, for its cluster. It is empty for certificates and the
// configured join token, which cannot be revoked.
func joinTokenOf(who *access.Identity) cluster.JoinToken {
	if who.Kind != api.IdentityJoin || !access.Kept(who.ID) {
		return cluster.JoinToken{}
	}
	return cluster.JoinToken{ID: who.ID, MaxUses: who.MaxUses, ExpiresAt: who.ExpiresAt}
}

// resumeSession opens a session for an agent that has one the hub does not know, as after a restart. Its join token may
// have expired or been revoked. Sessions opened with an irrevocable credential cannot resume: changing that credential
// would have no effect.
func (e endpoints) resumeSession(ctx context.Context, in *resumeInput) (*registerOutput, error) {
	claims, err := e.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	if who := access.From(ctx); claims.Token == "" && who.Kind != api.IdentityLocal {
		return nil, httpapi.Problem(protocol.CodeUnauthorized, "this session is no proof: register with a join token")
	}
	if !claims.of(&in.Body) {
		return nil, foreignSession()
	}
	if in.Body.Address == "" {
		in.Body.Address = hostOf(ctx)
	}
	registered, err := e.openSession(ctx, in.Body, cluster.JoinToken{ID: claims.Token}, true)
	if err != nil {
		return nil, err
	}
	return &registerOutput{Body: registered}, nil
}

func (e endpoints) pollAgent(ctx context.Context, in *pollInput) (*pollOutput, error) {
	claims, err := e.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	if err := in.Body.Providers.Validate(); err != nil {
		return nil, invalidField("providers", err)
	}
	if in.Body.State != nil {
		if err := in.Body.State.Validate(); err != nil {
			return nil, invalidField("state", err)
		}
	}
	conn, _ := ctx.Value(connectionKey{}).(*connection)
	conn.noticeUnreachable()
	answer, err := e.hub.holdPoll(ctx, claims, conn, in.Body)
	if err != nil {
		return nil, err
	}
	return &pollOutput{Body: answer}, nil
}

// endProven ends the session of an agent that certainly has ended, if it is here. The cluster learns of the proof
// itself, too.
func (e endpoints) endProven(claims sessionClaims, why string) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if s, err := e.hub.findLocked(claims); err == nil {
		end := e.hub.givenUpLocked(s, time.Now())
		end.evidence, end.reason, end.lease = api.EvidenceProof, why, 0
		e.hub.endLocked(s, end)
	}
}

// goodbye ends a session at the agent's request. The agent has stopped all its work, so nothing waits for its lease.
// Its supervisor may say how it died instead.
func (e endpoints) goodbye(ctx context.Context, in *goodbyeInput) (*struct{}, error) {
	claims, err := e.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	// protobuf refuses other text
	in.Died = api.Shorten(api.Printable(strings.ToValidUTF8(in.Died, "\uFFFD")), maxDied)
	if in.Died != "" {
		e.hub.mu.Lock()
		err := e.hub.refuseEndedLocked(claims)
		e.hub.mu.Unlock()
		if err != nil {
			return nil, err
		}
		// Each is an update of the cluster.
		id := claims.Cluster + "/" + claims.Agent + "/" + claims.Instance
		if wait := e.hub.registrations.Take(id, 1, time.Now()); wait > 0 {
			return nil, httpapi.RetryAfter(wait, "this agent dies too often: wait for as long as Retry-After says")
		}
		e.endProven(claims, "proof of death by its supervisor: "+in.Died)
		proof := cluster.DeathProof{AgentID: claims.Agent, Instance: claims.Instance, By: "its supervisor",
			Proof: in.Died}
		_, err = store.UpdateCluster(ctx, e.hub.store.Clusters(), contract.DeadUpdate, claims.Cluster, proof)
		switch {
		case err == nil:
			return nil, nil
		case store.KindOf(err) == store.Refused:
			return nil, httpapi.Problem(protocol.CodeConflict, store.Refusal(err))
		}
		return nil, temporalProblem(err)
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	s, err := e.hub.findLocked(claims)
	if err != nil {
		return nil, err
	}
	e.hub.endLocked(s, ending{reason: "the agent stopped", left: true, at: time.Now()})
	return nil, nil
}

// sendLog accepts log lines from an agent.
func (e endpoints) sendLog(_ context.Context, in *logInput) (*logOutput, error) {
	agent, err := e.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	return &logOutput{Body: protocol.LogTaken{Watching: e.hub.logs.Add(agent, in.TaskID, in.Body)}}, nil
}

// sendState hands an agent's report to the request that waits for it.
func (e endpoints) sendState(_ context.Context, in *stateInput) (*stateOutput, error) {
	agent, err := e.agentOf(in.Authorized)
	if err != nil {
		return nil, err
	}
	if err := validateReport(&in.Body); err != nil {
		return nil, err
	}
	return &stateOutput{Body: protocol.StateTaken{Awaited: e.hub.states.Answer(agent, in.Body)}}, nil
}

// agentOf returns the agent whose session at this hub makes the request.
func (e endpoints) agentOf(a Authorized) (string, error) {
	claims, err := e.authorize(a)
	if err != nil {
		return "", err
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	s, err := e.hub.findLocked(claims)
	if err != nil {
		return "", err
	}
	return s.agent, nil
}

func validateReport(r *protocol.StateReport) error {
	if err := r.State.Validate(); err != nil {
		return invalidField("state", err)
	}
	for i := range r.Manifest {
		if err := r.Manifest[i].Validate(); err != nil {
			return invalidField("manifest", err)
		}
	}
	for i := range r.Entries {
		if err := r.Entries[i].Validate(); err != nil {
			return invalidField("entries", err)
		}
	}
	return nil
}
