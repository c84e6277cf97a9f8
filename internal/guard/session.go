package guard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// maxSignIn bounds the body of signing in, in bytes: anybody may send one.
const maxSignIn = 4 << 10

// sessionLife is how long a browser stays signed in.
const sessionLife = access.MaxSession

// sessionSeal makes the values of cookies: base64url(json ‖ HMAC-SHA256(json)). A cookie names a token and does not
// hold it.
type sessionSeal struct{ key []byte }

func newSessionSeal(key []byte) sessionSeal {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("browser session")) // the key is not only ours
	return sessionSeal{mac.Sum(nil)}
}

type sessionClaims struct {
	ID    string `json:"i"` // the session's own
	Token string `json:"t"` // the token's id
	// Print is the beginning of the token's hash: a session ends with the secret that it was opened with.
	Print   string `json:"p"`
	KeyHash []byte `json:"k"`
	Opened  int64  `json:"o"` // seconds since 1970
	Expires int64  `json:"e"` // seconds since 1970
}

func (c *sessionClaims) opened() time.Time  { return time.Unix(c.Opened, 0) }
func (c *sessionClaims) expires() time.Time { return time.Unix(c.Expires, 0) }

func (s sessionSeal) seal(c sessionClaims) string {
	body, _ := json.Marshal(c) // plain fields: cannot fail
	return base64.RawURLEncoding.EncodeToString(append(body, s.mac(body)...))
}

func (s sessionSeal) open(value string) (c sessionClaims, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(raw) <= sha256.Size {
		return c, false
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	ok = hmac.Equal(mac, s.mac(body)) && json.Unmarshal(body, &c) == nil
	return c, ok
}

func (s sessionSeal) mac(body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(body)
	return mac.Sum(nil)
}

// cookieOf is the value of the session's cookie among those that a browser sends; sent is false when there is none.
// Pages of other ports, and of other names of a domain, can set cookies with its name too, and theirs may come first.
// So the one of this key's session counts, wherever it stands.
func (s sessionSeal) cookieOf(cookies []*http.Cookie, key string) (value string, sent bool) {
	for _, c := range cookies {
		if c.Name != httpapi.SessionCookie {
			continue
		}
		if claims, ok := s.open(c.Value); ok && hmac.Equal(claims.KeyHash, hashOfKey(key)) {
			return c.Value, true
		}
		if !sent {
			value, sent = c.Value, true
		}
	}
	return value, sent
}

func hashOfKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func printOf(record *access.Record) string { return string(record.Hash[:16]) }

// openSession returns the token that a cookie and its key stand for, if it is still good, and the session.
func (g *Gate) openSession(ctx context.Context, value, key string, anew bool) (access.Record, sessionClaims, error) {
	over := httpapi.Problem(protocol.CodeUnauthorized,
		"the session is over, signed out, or its token was revoked: sign in again")
	claims, ok := g.sessions.open(value)
	if !ok || claims.ID == "" || !g.now().Before(claims.expires()) {
		return access.Record{}, claims, over
	}
	if !hmac.Equal(claims.KeyHash, hashOfKey(key)) {
		return access.Record{}, claims, httpapi.Problem(protocol.CodeUnauthorized,
			"the session's cookie counts only with its key, in the header "+httpapi.SessionKeyHeader+
				", which the fleet page sends: sign in there again")
	}
	record, err := g.record(ctx, claims.Token, anew)
	if err != nil {
		return access.Record{}, claims, err
	}
	if record.Kind != api.TokenAPI || record.Expired(g.now()) || printOf(&record) != claims.Print ||
		g.tokens.over(ctx, claims.ID, claims.Token, claims.opened()) {
		return access.Record{}, claims, over
	}
	return record, claims, nil
}

func sessionOf(id *access.Identity) api.Session {
	return api.Session{Security: id.Kind != api.IdentityLocal, Kind: id.Kind, Name: id.Name, Role: id.Role,
		Tenant: id.Tenant}
}

type sessionOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      api.Session
}

type shownSession struct {
	CacheControl string `header:"Cache-Control"`
	Body         api.Session
}

type signOutOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

// https reports whether a request came by https, here or at a proxy before us.
func https(ctx context.Context) bool {
	client, _ := httpapi.ClientFrom(ctx)
	return client.HTTPS
}

// SignInRequest opens a browser's session.
type SignInRequest struct {
	Token string `json:"token" minLength:"1" maxLength:"512" doc:"An API token."`
}

type signInInput struct{ Body SignInRequest }

type sessionInput struct {
	Cookie string `cookie:"mainstay_session"`
	Key    string `header:"X-Mainstay-Session-Key"`
	all    []*http.Cookie
}

// Resolve implements huma.Resolver.
func (in *sessionInput) Resolve(ctx huma.Context) []error {
	in.all = huma.ReadCookies(ctx)
	return nil
}

// RegisterSession adds the sign-in of browsers to an API. gate is nil while security is off.
func RegisterSession(api huma.API, gate *Gate) {
	const path = "/api/v1/session"
	operation := func(id, method, summary, description string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"Access"}, Summary: summary,
			Description: description}
	}
	in := operation(
		"sign-in",
		http.MethodPost,
		"Sign a browser in",
		"Sets a cookie that stands for the token: HttpOnly, SameSite=Strict, Secure over https, for 12 h. It counts only with the session_key of the answer, in the header X-Mainstay-Session-Key, and ends with the token.",
	)
	in.MaxBodyBytes = maxSignIn
	httpapi.Register(api, access.Open, in,
		func(ctx context.Context, in *signInInput) (*sessionOutput, error) { return gate.signIn(ctx, in) })
	httpapi.Register(api, access.View.Scoped(), operation("get-session", http.MethodGet, "Who am I",
		"Also tells whether security is on at all."),
		func(ctx context.Context, in *sessionInput) (*shownSession, error) {
			id := access.From(ctx)
			out := &shownSession{CacheControl: "no-store", Body: sessionOf(&id)}
			if id.Cookie {
				cookie, _ := gate.sessions.cookieOf(in.all, in.Key)
				if _, claims, err := gate.openSession(ctx, cookie, in.Key, false); err == nil {
					expires := claims.expires()
					out.Body.ExpiresAt = &expires
				}
			}
			return out, nil
		})
	out := operation("sign-out", http.MethodDelete, "Sign a browser out",
		"Ends the session: its cookie is worth nothing from then on, at other gateways within 5 s.")
	out.DefaultStatus = http.StatusNoContent
	httpapi.Register(api, access.Open, out, func(ctx context.Context, in *sessionInput) (*signOutOutput, error) {
		if gate != nil {
			cookie, _ := gate.sessions.cookieOf(in.all, in.Key)
			if err := gate.signOut(ctx, cookie, in.Key); err != nil {
				return nil, err
			}
		}
		return &signOutOutput{SetCookie: cookie("", -1, https(ctx))}, nil
	})
}

// signOutTimeout bounds keeping that a session ended.
const signOutTimeout = 4500 * time.Millisecond

// signOut ends the session of a cookie and its key, if there is one.
func (g *Gate) signOut(ctx context.Context, value, key string) error {
	record, claims, err := g.openSession(ctx, value, key, false)
	if code, _ := httpapi.Code(err); code == protocol.CodeUnauthorized {
		return nil
	}
	if err != nil {
		return err
	}
	access.Touch(ctx, "token", record.ID)
	if wait := g.signOuts.Take(record.ID, 1, g.now()); wait > 0 {
		return httpapi.RetryAfter(wait, "too many sessions of this token end at once: wait for as long as Retry-After says")
	}
	ended := access.EndedSession{ID: claims.ID, Token: record.ID, Expires: claims.expires()}
	if g.endSession != nil {
		ctx, cancel := context.WithTimeout(ctx, signOutTimeout)
		defer cancel()
		if err := g.endSession(ctx, ended); err != nil {
			g.logger.Warn("A session cannot be ended", zap.Error(err))
			return httpapi.Problem(protocol.CodeUnavailable,
				"the session cannot be ended now: Temporal does not answer; try again")
		}
	}
	g.tokens.end(ended)
	return nil
}

func (g *Gate) signIn(ctx context.Context, in *signInInput) (*sessionOutput, error) {
	if g == nil {
		return &sessionOutput{SetCookie: cookie("", -1, https(ctx)), Body: sessionOf(&access.Local)}, nil
	}
	record, err := g.verify(ctx, in.Body.Token, false)
	if err != nil {
		return nil, err
	}
	if record.Kind != api.TokenAPI {
		return nil, httpapi.Problem(protocol.CodeForbidden,
			"a join token only registers agents: sign in with an API token")
	}
	opened := g.now()
	expires := opened.Add(sessionLife)
	if !record.ExpiresAt.IsZero() && record.ExpiresAt.Before(expires) {
		expires = record.ExpiresAt
	}
	access.Touch(ctx, "token", record.ID)
	id := record.Identity()
	body := sessionOf(&id)
	expires = expires.UTC().Truncate(time.Second)
	body.ExpiresAt = &expires
	body.SessionKey = rand.Text()
	value := g.sessions.seal(sessionClaims{ID: rand.Text(), Token: record.ID, Print: printOf(&record),
		KeyHash: hashOfKey(body.SessionKey), Opened: opened.Unix(), Expires: expires.Unix()})
	return &sessionOutput{SetCookie: cookie(value, int(expires.Sub(g.now())/time.Second), https(ctx)), Body: body}, nil
}

// cookie makes the session's cookie; maxAge is in seconds, below 0 it deletes.
func cookie(value string, maxAge int, secure bool) http.Cookie {
	return http.Cookie{
		Name:     httpapi.SessionCookie,
		Value:    value,
		Path:     "/",
		MaxAge:   maxAge,
		HttpOnly: true,
		Secure:   secure,
		SameSite: http.SameSiteStrictMode,
	}
}
