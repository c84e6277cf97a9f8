package hub

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

const (
	// maxPollBytes bounds a poll: its checkpoints are the large part.
	maxPollBytes = 8 << 20
	// maxLogBytes bounds log lines: a character of text may take six bytes of JSON.
	maxLogBytes = 6*fleet.MaxLogBytes + 128<<10
	// maxStateBytes bounds what an agent tells of its state: its manifest, or a part of the entries.
	maxStateBytes = 2 << 20
)

type registerInput struct{ Body protocol.Register }
type registerOutput struct{ Body protocol.Registered }

// Authorized is what every request of a session carries.
type Authorized struct {
	ID            string `path:"id" maxLength:"63" doc:"The agent's id."`
	Authorization string `header:"Authorization" maxLength:"4096" doc:"Bearer and the session token."`
}

type pollInput struct {
	Authorized
	Body protocol.Poll
}
type pollOutput struct{ Body protocol.Polled }

type resultInput struct {
	Authorized
	TaskID string `path:"task_id" maxLength:"63"`
	Body   protocol.Result
}
type resultOutput struct{ Body protocol.ResultAccepted }

type logInput struct {
	Authorized
	TaskID string `path:"task_id" maxLength:"63"`
	Body   protocol.Log
}
type logOutput struct{ Body protocol.LogTaken }

type goodbyeInput struct{ Authorized }

// Register adds the agent protocol to an API.
func (h *Hub) Register(api huma.API) {
	httpapi.Register(api, access.Join, huma.Operation{
		OperationID: "register-agent", Method: http.MethodPost, Path: protocol.RegisterPath, Tags: []string{"agent protocol"},
		Summary: "Open or re-attach an agent's session",
	}, h.registerAgent)
	httpapi.Register(api, access.Session, huma.Operation{
		OperationID: "poll-agent", Method: http.MethodPost, Path: protocol.PollPath, Tags: []string{"agent protocol"},
		Summary: "Heartbeat, and wait for assignments and commands", MaxBodyBytes: maxPollBytes,
	}, h.pollAgent)
	httpapi.Register(api, access.Session, huma.Operation{
		OperationID: "report-result", Method: http.MethodPost, Path: protocol.ResultPath, Tags: []string{"agent protocol"},
		Summary: "Report how an attempt ended", MaxBodyBytes: 2 * fleet.MaxPayloadBytes,
	}, h.reportResult)
	httpapi.Register(api, access.Session, huma.Operation{
		OperationID: "send-log", Method: http.MethodPost, Path: protocol.LogPath, Tags: []string{"agent protocol"},
		Summary: "Send log lines of an attempt that somebody watches", MaxBodyBytes: maxLogBytes,
	}, h.takeLog)
	httpapi.Register(api, access.Session, huma.Operation{
		OperationID: "send-state", Method: http.MethodPost, Path: protocol.StatePath, Tags: []string{"agent protocol"},
		Summary: "Answer a command about the state that the agent shares with its cluster", MaxBodyBytes: maxStateBytes,
	}, h.takeState)
	httpapi.Register(api, access.Session, huma.Operation{
		OperationID: "end-session", Method: http.MethodDelete, Path: protocol.SessionPath, Tags: []string{"agent protocol"},
		Summary: "Say goodbye", DefaultStatus: http.StatusNoContent,
	}, h.goodbye)
}

// authorize reads the session token and checks that it belongs to the agent in the path.
func (h *Hub) authorize(a Authorized) (sessionClaims, error) {
	token, isBearer := strings.CutPrefix(a.Authorization, "Bearer ")
	claims, err := h.seal.openSession(token)
	if !isBearer || err != nil || claims.Agent != a.ID {
		return sessionClaims{}, httpapi.Problem(protocol.CodeUnauthorized,
			"the session token is missing, forged or another agent's: register, and send its session_token as Authorization: Bearer")
	}
	return claims, nil
}

// find returns the session that the claims name, or the problem to answer with. The mutex is held.
func (h *Hub) find(claims sessionClaims) (*session, error) {
	s := h.sessions[claims.Agent]
	switch {
	case s == nil:
		return nil, httpapi.Problem(protocol.CodeUnknownSession, "this hub does not know the session: register again with the same instance_id; running work is kept")
	case s.instance == claims.Instance && s.epoch == claims.Epoch:
		return s, nil
	case s.epoch > claims.Epoch:
		return nil, fencedProblem()
	}
	return nil, httpapi.Problem(protocol.CodeUnknownSession, "the session is not the agent's newest: register again")
}

func fencedProblem() error {
	return httpapi.Problem(protocol.CodeFenced, "a newer process has this agent id: this one must stop")
}

func (h *Hub) registerAgent(ctx context.Context, in *registerInput) (*registerOutput, error) {
	if in.Body.Address == "" {
		in.Body.Address = hostOf(ctx)
	}
	access.Touch(ctx, "agent", in.Body.AgentID)
	access.Touch(ctx, "cluster", in.Body.Cluster)
	if who := access.From(ctx); !who.MayJoin(in.Body.Cluster, in.Body.AgentID) {
		return nil, httpapi.Problem(protocol.CodeForbidden, "the join token is for another cluster, or for another agent: ask an admin for one that fits")
	}
	registered, err := h.openSession(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	return &registerOutput{Body: registered}, nil
}

func (h *Hub) pollAgent(ctx context.Context, in *pollInput) (*pollOutput, error) {
	claims, err := h.authorize(in.Authorized)
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
	answer, err := h.holdPoll(ctx, claims, conn, in.Body)
	if err != nil {
		return nil, err
	}
	return &pollOutput{Body: answer}, nil
}

// goodbye ends a session on the agent's word. What it still had has stopped, so nothing needs to wait for its lease.
func (h *Hub) goodbye(_ context.Context, in *goodbyeInput) (*struct{}, error) {
	claims, err := h.authorize(in.Authorized)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.find(claims)
	if err != nil {
		return nil, err
	}
	h.end(s, ending{reason: "the agent stopped", left: true, at: time.Now()})
	return nil, nil
}
