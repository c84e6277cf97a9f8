// Package guard keeps the door of the API: who calls (tokens, certificates, a browser's session), whether the route's
// policy lets them in, how often, and the record of what they changed. The rules themselves are in package access.
package guard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/connlimit"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Defaults of the rate limits, in requests.
const (
	DefaultRate  = 200.0 // a second, for each token
	DefaultBurst = 1000
	// bodyPart is how much of a body, in bytes, counts as one more request. A mistake at its end costs reading all of
	// it.
	bodyPart = 16 << 10
	// wideCounts is for how many requests one counts that asks many clusters, hubs or queues.
	wideCounts = 5
	// failedRate and failedBurst bound what one address may try without proving who it is.
	failedRate  = 20.0
	failedBurst = 200
	// joinRate and joinBurst bound the registrations with one token of those who prove no session. All agents of a
	// large cluster may start at once.
	joinRate  = 20.0
	joinBurst = 1000
	// agentPart is how much of an agent's body, in bytes, counts as one more request: reading it costs about as much.
	agentPart = 4 << 10
	// agentRate and agentBurst bound the requests of one agent, and clusterRate and clusterBurst, for each core, those
	// of all agents of a cluster.
	agentRate, agentBurst     = 500, 2500
	clusterRate, clusterBurst = 1500, 15_000
	// signOutRate and signOutBurst bound the ends of sessions of one token: each is a change of the workflow that has
	// all tokens.
	signOutRate  = 1.0
	signOutBurst = 20
)

// Options are what a Gate needs.
type Options struct {
	// Tokens reads the existing tokens; see FromTemporal.
	Tokens Reader
	Logger *zap.Logger
	// AdminToken and JoinToken are known beforehand; empty: none. They are hashed and forgotten.
	AdminToken, JoinToken string
	// SessionKey seals browsers' sessions, and the tokens that spawners make; gateways with the same one know each
	// other's. Empty: a random one, so that sessions end with the process, and no token of a spawner is good.
	SessionKey []byte
	// Certificates give client certificates their roles.
	Certificates []Certificate
	// Rate and Burst bound the requests of one token; Rate 0: no limit.
	Rate  float64
	Burst int
	// Audit records the changes, and with AuditReads also what was read; nil: nothing is recorded.
	Audit      *Audit
	AuditReads bool
	// EndSession remembers that a browser's session was signed out; nil: it ends at this process alone.
	EndSession func(context.Context, access.EndedSession) error
	// Sessions are those of agents, see hub.SessionsOf. nil: no session token is good, as where there is no hub.
	Sessions Sessions
}

// Sessions returns the agent and cluster that an agent's session token was made for, and whether it is good.
type Sessions func(token string) (agent, cluster string, good bool)

// Gate implements httpapi.Gate.
type Gate struct {
	logger       *zap.Logger
	tokens       *directory
	fixed        []access.Record // tokens known beforehand
	key          []byte          // seals the tokens that spawners make
	sessions     sessionSeal
	certificates []Certificate
	callers      *limit.Rate // by token
	strangers    *limit.Rate // by address
	joining      *limit.Rate // registrations, by token
	signOuts     *limit.Rate // by token
	agentWork    *limit.Rate // requests, by agent; see bodyPart
	clusterWork  *limit.Rate // the same by cluster
	visitors     *limit.Rate // those who read what is open to everybody, by address
	readers      *readers
	inFlight     *inFlight
	slower       slower
	audit        *Audit
	auditReads   bool
	endSession   func(context.Context, access.EndedSession) error
	agents       Sessions
	now          func() time.Time
}

// New makes a gate. It reads nothing until somebody comes.
func New(o Options) *Gate {
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	g := &Gate{
		logger:       o.Logger,
		tokens:       newDirectory(o.Tokens, o.Logger),
		key:          o.SessionKey,
		sessions:     newSessionSeal(o.SessionKey),
		certificates: o.Certificates,
		callers:      limit.NewRate(o.Rate, o.Burst),
		strangers:    limit.NewRate(failedRate, failedBurst),
		joining:      limit.NewRate(joinRate, joinBurst),
		signOuts:     limit.NewRate(signOutRate, signOutBurst),
		agentWork:    limit.NewRate(agentRate, agentBurst),
		clusterWork:  limit.NewRate(float64(clusterRate*runtime.GOMAXPROCS(0)), clusterBurst*runtime.GOMAXPROCS(0)),
		visitors:     limit.NewRate(o.Rate, o.Burst),
		readers:      newReaders(),
		inFlight:     newInFlight(maxHeld),
		slower:       newSlower(),
		audit:        o.Audit,
		auditReads:   o.AuditReads,
		endSession:   o.EndSession,
		agents:       o.Sessions,
		now:          time.Now,
	}
	if o.Rate <= 0 {
		g.strangers, g.joining = limit.NewRate(0, 0), limit.NewRate(0, 0)
		g.agentWork, g.clusterWork = g.strangers, g.strangers
	}
	if o.AdminToken != "" {
		g.fixed = append(g.fixed, access.Record{ID: "first-admin", Name: "first admin", Kind: api.TokenAPI,
			Role: api.RoleAdmin, Hash: access.HashOf(o.AdminToken)})
	}
	if o.JoinToken != "" {
		g.fixed = append(g.fixed, access.Record{ID: "first-join", Name: "first join token", Kind: api.TokenJoin,
			Hash: access.HashOf(o.JoinToken)})
	}
	return g
}

// Admit implements httpapi.Gate.
func (g *Gate) Admit(
	r *http.Request, route httpapi.Route, params map[string]string,
) (context.Context, func(int), error) {
	ctx, finished, err := g.admit(r, route, params)
	if err != nil {
		g.slower.refuse(r, err, g.now())
	}
	return ctx, finished, err
}

func (g *Gate) admit(
	r *http.Request, route httpapi.Route, params map[string]string,
) (context.Context, func(int), error) {
	at := g.now()
	ctx := r.Context()
	var id access.Identity
	var of proof
	var err error
	client, group, most := "", "", int64(maxBytes)
	if route.Policy.IsSession() {
		client, most = "agent "+params["id"], maxAgentBytes
		group, err = checkSession(g.agents, r, params["id"])
	} else {
		id, of, err = g.identify(r, route.Policy.Role() == api.RoleAdmin)
		if route.Policy.IsJoin() && id.Joins {
			client, group = g.registersAgain(r)
		}
	}
	agent, cluster := client, group
	targets := access.NewTargets(g.withoutSecrets(params))
	finished := func(status int) { g.finish(r, route, &id, targets, at, status, false) }
	if err != nil && !route.Policy.IsOpen() {
		return ctx, finished, g.failed(r, err)
	}
	if agent != "" {
		err = g.limitAgent(agent, cluster)
	} else {
		err = g.limit(r, route, &id)
	}
	if err != nil {
		return ctx, nil, err
	}
	if err := refusal(route.Policy, &id); err != nil {
		return ctx, finished, err
	}
	if id.Cookie && mutates(r.Method) && !fromOwnPage(r) {
		return ctx, finished, httpapi.Problem(
			protocol.CodeForbidden,
			"a browser's session acts only from the page of this server: send a token as Authorization: Bearer from elsewhere",
		)
	}
	switch {
	case id.Known():
		client, group = string(id.Kind)+" "+id.ID, id.Tenant
	case probes[route.Path]:
		client = "probes of " + connlimit.AddressKey(httpapi.ClientOf(r).Address)
	case client == "":
		client, most = connlimit.AddressKey(httpapi.ClientOf(r).Address), maxStrangerBytes
	}
	ctx, landed, err := g.inFlight.begin(ctx, client, group, r, route, most)
	if err != nil {
		return ctx, nil, err
	}
	if id.Known() || route.Policy.IsSession() {
		holder := holderOf(route.Policy, group, client)
		connlimit.Proven(ctx, holder)
		ctx = httpapi.WithTurn(ctx, g.readers.of(holder, client))
	}
	ctx, answered := g.whileGood(ctx, of)
	sent, _ := r.Body.(*body)
	unknown := r.ContentLength < 0
	return access.WithTargets(access.With(ctx, id), targets), func(status int) {
		switch {
		case sent == nil:
		case agent != "":
			parts := int(sent.read.Load() / agentPart)
			g.agentWork.Spend(agent, parts, g.now())
			g.clusterWork.Spend(cluster, parts, g.now())
		case unknown && id.Known():
			g.spend(route, &id, sent.read.Load())
		}
		landed()
		answered()
		g.finish(r, route, &id, targets, at, status, true)
	}, nil
}

// probes are requests with short answers. They count apart, so that a flood from an address does not make a monitor at
// the same address take the server for dead.
var probes = map[string]bool{"/healthz": true, protocol.ReadyPath: true, "/health": true}

// holderOf is whom a connection counts for. A tenant may have the name of a cluster.
func holderOf(p access.Policy, group, client string) string {
	switch {
	case p.IsSession():
		return "cluster " + group
	case group != "":
		return "tenant " + group
	}
	return client
}

// registersAgain is the agent, with its cluster, whose session a registration proves; empty: none. The request then
// counts for the agent, because all agents of a hub come at once when it restarts. The hub checks afterwards that it is
// this agent that registers.
func (g *Gate) registersAgain(r *http.Request) (agent, cluster string) {
	if token := r.Header.Get(protocol.SessionHeader); token != "" && g.agents != nil {
		if of, cluster, good := g.agents(token); good {
			return "agent " + of, cluster
		}
	}
	return "", ""
}

// withoutSecrets are the parts of a path, without a token known beforehand that somebody sent in place of an id.
// Targets recognises the tokens that were made here by their form.
func (g *Gate) withoutSecrets(params map[string]string) map[string]string {
	named := maps.Clone(params)
	for kind, name := range params {
		for i := range g.fixed {
			if g.fixed[i].Hash.Matches(strings.TrimSpace(name)) {
				named[kind] = g.fixed[i].ID + "…"
			}
		}
	}
	return named
}

// failed is the answer to a caller who could not prove who they are, or has tried too often.
func (g *Gate) failed(r *http.Request, err error) error {
	if code, _ := httpapi.Code(err); code != protocol.CodeUnauthorized {
		return err
	}
	if wait := g.strangers.Take(connlimit.AddressKey(httpapi.ClientOf(r).Address), 1, g.now()); wait > 0 {
		return tooMany(wait)
	}
	return err
}

// limitAgent counts a request of an agent. Its body counts after it was read: a poll of an agent with a few tasks
// counts as one part. Polls are heartbeats, so the bounds are far above what working agents send.
func (g *Gate) limitAgent(agent, cluster string) error {
	wait := g.agentWork.Take(agent, 1, g.now())
	if wait == 0 {
		wait = g.clusterWork.Take(cluster, 1, g.now())
	}
	if wait > 0 {
		return httpapi.RetryAfter(wait,
			"the agent, or its cluster, sends more than may be: see the limits in docs/SECURITY.md")
	}
	return nil
}

// limit counts a request of others than agents. Probes are not held back.
func (g *Gate) limit(r *http.Request, route httpapi.Route, id *access.Identity) error {
	var wait time.Duration
	switch {
	case route.Policy.IsJoin() && id.Joins:
		wait = g.joining.Take(string(id.Kind)+" "+id.ID, countsAs(r, route), g.now())
	case id.Known():
		wait = g.callers.Take(string(id.Kind)+" "+id.ID, countsAs(r, route), g.now())
	case probes[route.Path]:
	case route.Policy.IsOpen() && !mutates(r.Method):
		wait = g.visitors.Take(connlimit.AddressKey(httpapi.ClientOf(r).Address), 1, g.now())
	default:
		wait = g.strangers.Take(connlimit.AddressKey(httpapi.ClientOf(r).Address), 1, g.now())
	}
	if wait > 0 {
		return tooMany(wait)
	}
	return nil
}

// countsAs is for how many requests of its token one counts.
func countsAs(r *http.Request, route httpapi.Route) int {
	if route.Wide {
		return wideCounts
	}
	return 1 + int(max(0, min(r.ContentLength, route.MaxBody))/bodyPart)
}

// spend counts a body of unknown length once it was read.
func (g *Gate) spend(route httpapi.Route, id *access.Identity, bytes int64) {
	by := g.callers
	if route.Policy.IsJoin() && id.Joins {
		by = g.joining
	}
	by.SpendAll(string(id.Kind)+" "+id.ID, int(bytes/bodyPart), g.now())
}

func tooMany(wait time.Duration) error {
	return httpapi.RetryAfter(wait,
		"too many requests at once: wait for as long as Retry-After says, and submit many tasks in one batch")
}

// refusal says in words why a policy does not let an identity in; nil when it does.
func refusal(p access.Policy, id *access.Identity) error {
	switch p.Decide(id) {
	case access.Allowed:
		return nil
	case access.NotKnown:
		detail := "this needs a token: send one as Authorization: Bearer (mainstay: --token or MAINSTAY_TOKEN); " +
			"an admin makes them with `mainstay token create`"
		if p.IsJoin() {
			detail = "registering an agent needs a join token: send it as Authorization: Bearer (mainstay agent run: " +
				"--join-token-file or MAINSTAY_JOIN_TOKEN); an admin makes them with `mainstay token create --kind join`"
		}
		return httpapi.Problem(protocol.CodeUnauthorized, detail)
	case access.RoleTooLow:
		if id.Role == "" {
			return httpapi.Problem(protocol.CodeForbidden, "a join token only registers agents: use an API token here")
		}
		return httpapi.Problem(protocol.CodeForbidden,
			"this needs the role "+string(p.Role())+", and your token has the role "+string(
				id.Role)+": ask an admin for another token")
	case access.OneTenant:
		return httpapi.Problem(
			protocol.CodeForbidden,
			"your token is of one tenant, and sees only that tenant's tasks, schedules and bulk operations: "+
				"this is about the whole fleet",
		)
	case access.NotForTokens:
		return httpapi.Problem(protocol.CodeForbidden,
			"an API token does not register agents: use a join token (mainstay token create --kind join)")
	}
	return httpapi.Problem(protocol.CodeForbidden, "nobody may use this while security is on: it does not say who may")
}

// finish writes the audit log: every change, every refusal for want of a right, and if asked the reads of people and
// programs. What agents report all day is the work itself and is not written; their registration is. Of what people
// without a credential cause, it writes a part.
func (g *Gate) finish(
	r *http.Request, route httpapi.Route, id *access.Identity, targets *access.Targets, at time.Time, status int,
	begun bool,
) {
	if status == http.StatusTooManyRequests {
		return // a flood must not become one in the log
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	read := g.auditReads && route.Policy.Role() != ""
	if !refused && (!mutates(r.Method) && !read || route.Policy.IsSession()) {
		return
	}
	if status == http.StatusForbidden && route.Policy.IsSession() &&
		g.strangers.Take(connlimit.AddressKey(httpapi.ClientOf(r).Address), 1, g.now()) > 0 {
		return
	}
	entry := entryOf(r, route, id, at, status, begun)
	entry.Target = targets.Names()
	if signedIn := status < http.StatusBadRequest && len(entry.Target) > 0; !id.Known() && !signedIn {
		g.audit.writeStranger(entry, g.now())
		return
	}
	g.audit.write(entry)
}

func mutates(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// fromOwnPage reports whether a browser says that the request comes from a page of this very server. All that send
// cookies at all say so.
func fromOwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && strings.EqualFold(origin.Host, r.Host)
}

// checkSession refuses a request of an agent whose session token is not good or is another agent's. Whether the session
// still counts, the hub says afterwards.
func checkSession(sessions Sessions, r *http.Request, agent string) (cluster string, err error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 1 && sessions != nil {
		if token, bearer := strings.CutPrefix(headers[0], "Bearer "); bearer {
			if of, cluster, good := sessions(strings.TrimSpace(token)); good && of == agent {
				return cluster, nil
			}
		}
	}
	return "", httpapi.Problem(
		protocol.CodeUnauthorized,
		"the session token is missing, forged or another agent's: register, and send its session_token as "+
			"Authorization: Bearer",
	)
}

// Unlocked is the gate while security is off: everybody may do everything, but agents still prove that a session is
// theirs before a body of theirs is read, and what one address has under way is bounded.
type Unlocked struct {
	sessions Sessions
	inFlight *inFlight
}

// NewUnlocked makes the gate. sessions is as in Options.
func NewUnlocked(sessions Sessions) *Unlocked {
	return &Unlocked{sessions, newInFlight(maxHeldLocal)}
}

// Admit implements httpapi.Gate.
func (u *Unlocked) Admit(
	r *http.Request, route httpapi.Route, params map[string]string,
) (context.Context, func(int), error) {
	ctx, client, group, most := r.Context(), connlimit.AddressKey(httpapi.ClientOf(r).Address), "", int64(maxBytes)
	if route.Policy.IsSession() {
		cluster, err := checkSession(u.sessions, r, params["id"])
		if err != nil {
			return ctx, nil, err
		}
		client, group, most = "agent "+params["id"], cluster, maxAgentBytes
	}
	ctx, landed, err := u.inFlight.begin(ctx, client, group, r, route, most)
	if err != nil {
		return ctx, nil, err
	}
	return access.With(ctx, access.Local), func(int) { landed() }, nil
}
