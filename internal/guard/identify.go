package guard

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// identify finds out who asks: by the token, else a browser's session, else the client certificate. No proof is no
// error; a wrong one is, so that a mistake is noticed. With anew tokens are read again, so that one that was revoked a
// moment ago proves nothing.
func (g *Gate) identify(r *http.Request, anew bool) (access.Identity, proof, error) {
	if len(r.Header.Values("Authorization")) > 1 {
		return access.Identity{}, proof{}, httpapi.Problem(protocol.CodeUnauthorized,
			"send the header Authorization once: it is not clear who asks")
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return access.Identity{}, proof{}, httpapi.Problem(protocol.CodeUnauthorized,
				"the header Authorization must be Bearer and a token")
		}
		record, err := g.verify(r.Context(), strings.TrimSpace(token), anew)
		if err != nil {
			return access.Identity{}, proof{}, err
		}
		return record.Identity(), g.proofOf(&record), nil
	}
	key := r.Header.Get(httpapi.SessionKeyHeader)
	if cookie, sent := g.sessions.cookieOf(r.Cookies(), key); sent {
		record, claims, err := g.openSession(r.Context(), cookie, key, anew)
		if err != nil {
			return access.Identity{}, proof{}, err
		}
		id := record.Identity()
		id.Cookie = true
		return id, proof{token: record.ID, digest: printOf(&record), session: &claims}, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		id, known := identityOfCertificate(g.certificates, r.TLS.PeerCertificates[0])
		switch {
		case !known:
			return id, proof{}, nil
		case !certified(r, g.now()):
			return access.Identity{}, proof{}, errCertificateGone
		}
		return id, proof{certificate: r}, nil
	}
	return access.Identity{}, proof{}, nil
}

// verify returns the record of a token, or why it is refused.
func (g *Gate) verify(ctx context.Context, token string, anew bool) (access.Record, error) {
	wrong := httpapi.Problem(protocol.CodeUnauthorized,
		"the token is not known here, or was revoked: check that it is whole and of this installation")
	if len(token) > access.MaxToken || token == "" {
		return access.Record{}, wrong
	}
	var found access.Record
	for i := range g.fixed { // all of them, so that the time reveals nothing
		if g.fixed[i].Hash.Matches(token) {
			found = g.fixed[i]
		}
	}
	if found.ID != "" {
		return found, nil
	}
	over := httpapi.Problem(protocol.CodeUnauthorized, "the token's time is over: ask an admin for another")
	if record, ok := access.OpenSpawn(g.key, token); ok {
		if record.Expired(g.now()) {
			return access.Record{}, over
		}
		return record, nil
	}
	kind, id, ok := access.TokenID(token)
	if !ok {
		return access.Record{}, wrong
	}
	record, err := g.record(ctx, id, false)
	if err == nil && anew && record.Hash.Matches(token) { // without the secret nobody has the tokens read so often
		record, err = g.record(ctx, id, true)
	}
	if err != nil {
		return access.Record{}, err
	}
	if !record.Hash.Matches(token) || record.Kind != kind {
		return access.Record{}, wrong
	}
	if record.Expired(g.now()) {
		return access.Record{}, over
	}
	return record, nil
}

// record finds a token by its id; the zero Record when there is none.
func (g *Gate) record(ctx context.Context, id string, anew bool) (access.Record, error) {
	for i := range g.fixed {
		if g.fixed[i].ID == id {
			return g.fixed[i], nil
		}
	}
	record, _, err := g.tokens.find(ctx, id, anew)
	if err != nil {
		return access.Record{}, httpapi.Problem(protocol.CodeUnavailable,
			"it cannot be told now whether this token is good: Temporal does not answer; try again")
	}
	return record, nil
}

// Certificate gives the holders of certificates a role, or lets them register agents.
type Certificate struct {
	// Subject is one of the certificate's names: its common name or a DNS name, an address of mail if it has an @, or a
	// URI if it has "://". With "cn:", "dns:" or "mail:" before it, only one of that kind.
	Subject string
	Role    api.AccessRole
	Tenant  string
	// Joins lets it register agents, in Cluster, or in any if that is empty.
	Joins   bool
	Cluster string
}

// printable replaces characters that control a terminal by blanks.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, name)
}

// identityOfCertificate finds the first entry that a certificate meets.
func identityOfCertificate(entries []Certificate, c *x509.Certificate) (access.Identity, bool) {
	for _, entry := range entries {
		if entry.names(c) {
			return access.Identity{
				Kind:   api.IdentityCertificate,
				ID:     entry.Subject,
				Name:   printable(c.Subject.CommonName),
				Role:   entry.Role,
				Tenant: entry.Tenant,
				Joins:  entry.Joins, Cluster: entry.Cluster,
			}, true
		}
	}
	return access.Identity{}, false
}

// names reports whether the entry's subject is one of the certificate's names, of the same kind: an authority may check
// one kind and not another.
func (e *Certificate) names(c *x509.Certificate) bool {
	uris := make([]string, len(c.URIs))
	for i, uri := range c.URIs {
		uris[i] = uri.String()
	}
	kind, name, _ := strings.Cut(e.Subject, ":")
	switch {
	case kind == "cn":
		return name != "" && name == c.Subject.CommonName
	case kind == "dns":
		return slices.Contains(c.DNSNames, name)
	case kind == "mail":
		return slices.Contains(c.EmailAddresses, name)
	case strings.Contains(e.Subject, "://"):
		return slices.Contains(uris, e.Subject)
	case strings.Contains(e.Subject, "@"):
		return slices.Contains(c.EmailAddresses, e.Subject)
	}
	return e.Subject != "" && (e.Subject == c.Subject.CommonName || slices.Contains(c.DNSNames, e.Subject))
}

// heldLook is how often the token of a request that is still being answered is looked at again. Tokens are read anew
// for all of them together, every tokensFresh.
const heldLook = time.Second

var errTokenGone = httpapi.Problem(protocol.CodeUnauthorized,
	"the token was revoked, or its time is over: ask an admin for another")

var errCertificateGone = httpapi.Problem(protocol.CodeUnauthorized,
	"the client certificate has expired, or its authority is no longer trusted: connect anew with another")

// proof is what an identity rests on: a token, until it or the browser's session ends, or a client certificate.
type proof struct {
	token   string // its id; empty: none that can end
	digest  string
	session *sessionClaims // nil: there is none
	// certificate is the request that has come with a client certificate; nil: it is none.
	certificate *http.Request
}

// holds reports whether the proof is still valid. While it cannot be checked, it is.
func (g *Gate) holds(ctx context.Context, p proof) bool {
	if p.certificate != nil {
		return certified(p.certificate, g.now())
	}
	if p.session != nil && !g.now().Before(p.session.expires()) {
		return false
	}
	record, err := g.record(ctx, p.token, false)
	return err != nil || record.ID != "" && printOf(&record) == p.digest && !record.Expired(g.now()) &&
		(p.session == nil || !g.tokens.over(ctx, p.session.ID, p.token, p.session.opened()))
}

// held ends a request that outlives the proof it came with: a stream of events, or a wait.
type held struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// whileGood is a context that ends with the proof. stop must be called when the request has been answered.
func (g *Gate) whileGood(ctx context.Context, p proof) (_ context.Context, stop func()) {
	gone := errTokenGone
	switch {
	case p.certificate != nil:
		gone = errCertificateGone
	case p.token == "":
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h := &held{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(heldLook, func() {
		good := g.holds(ctx, p)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.over:
		case good:
			h.timer.Reset(heldLook)
		default:
			cancel(gone)
		}
	})
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true
		h.timer.Stop()
		cancel(nil)
	}
}

// proofOf is a token's proof. Tokens that are not stored cannot end before their time.
func (g *Gate) proofOf(record *access.Record) proof {
	if record.Hash == "" {
		return proof{}
	}
	for i := range g.fixed {
		if g.fixed[i].ID == record.ID {
			return proof{}
		}
	}
	return proof{token: record.ID, digest: printOf(record)}
}
