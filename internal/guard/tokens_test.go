package guard

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestATokenWorksAtOnceAndARevokedOneForSecondsMore(t *testing.T) {
	t.Parallel()
	s := newShelf()
	g := s.gate(Options{})
	looks := func(token string) string {
		_, code := ask(t, g, access.View, request(http.MethodGet, token))
		return code
	}
	one, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	require.Empty(t, looks(one))
	two, _ := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	require.Empty(t, looks(two), "a token made elsewhere works at once")
	reads := s.count()
	for range 50 {
		require.Empty(t, looks(one))
	}
	require.Equal(t, reads, s.count(), "and kept in mind")

	s.set(nil)
	s.pass(tokensFresh - time.Millisecond)
	require.Empty(t, looks(one))
	s.pass(time.Millisecond)
	require.Equal(t, protocol.CodeUnauthorized, looks(one))
}

// TestARevokedTokenDoesNotComeBack has somebody put a revoked token back in Temporal, as its seal is still good.
func TestARevokedTokenDoesNotComeBack(t *testing.T) {
	t.Parallel()
	s := newShelf()
	g := s.gate(Options{})
	admin, revoked := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	viewer, other := s.add(2, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	looks := func(token string, after ...access.Record) string {
		s.set(nil, after...)
		s.pass(tokensFresh)
		_, code := ask(t, g, access.View, request(http.MethodGet, token))
		return code
	}
	require.Empty(t, looks(admin, revoked, other))
	require.Equal(t, protocol.CodeUnauthorized, looks(admin))
	require.Empty(t, looks(admin, revoked, other), "that there was none for a moment revokes nothing")
	require.Equal(t, protocol.CodeUnauthorized, looks(admin, other))
	require.Equal(t, protocol.CodeUnauthorized, looks(admin, revoked, other))
	require.Empty(t, looks(viewer, revoked, other))
}

// TestARevokedAdminMakesNothingMore revokes an admin's token: what admins alone may do ends at once.
func TestARevokedAdminMakesNothingMore(t *testing.T) {
	t.Parallel()
	s := newShelf()
	admin, record := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	g := s.gate(Options{})
	code := func(policy access.Policy, r *http.Request) string {
		_, code := ask(t, g, policy, r)
		return code
	}
	cookie := signIn(t, g, admin)
	require.Empty(t, code(access.Administer, request(http.MethodPost, admin)))
	s.set(nil)
	require.Empty(t, code(access.View, request(http.MethodGet, admin)), "looking goes on for some seconds")
	require.Equal(t, protocol.CodeUnauthorized, code(access.Administer, request(http.MethodPost, admin)))
	s.set(nil, record)
	require.Empty(t, code(access.Administer, request(http.MethodPost, admin)))
	s.set(nil)
	require.Equal(t, protocol.CodeUnauthorized, code(access.Administer, browser(http.MethodPost, cookie)))
	s.set(nil, record)
	require.Empty(t, code(access.Administer, request(http.MethodPost, admin)))
	s.set(errAway)
	s.pass(tokensGap)
	require.Equal(t, protocol.CodeUnavailable, code(access.Administer, request(http.MethodPost, admin)),
		"nobody can tell, so it is not let in")
}

func TestMadeUpTokensDoNotCauseManyReadings(t *testing.T) {
	t.Parallel()
	s := newShelf()
	g := s.gate(Options{})
	strange, _ := newShelf().add(9, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	begun := s.clock()
	for range 100 {
		_, code := ask(t, g, access.View, request(http.MethodGet, strange))
		require.Equal(t, protocol.CodeUnauthorized, code)
	}
	require.LessOrEqual(t, s.count(), 1+int(s.clock().Sub(begun)/tokensGap), "they wait for the next reading")
	require.Greater(t, s.clock().Sub(begun), 5*time.Second)
}

func TestWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	const admin = "0123456789-the-first-admin-token-0123"
	s := newShelf()
	known, record := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	s.set(errAway, record)
	g := s.gate(Options{AdminToken: admin})
	looks := func(token string) string {
		_, code := ask(t, g, access.View, request(http.MethodGet, token))
		return code
	}
	require.Equal(t, protocol.CodeUnavailable, looks(known), "nobody can tell yet")
	require.Equal(t, protocol.CodeUnauthorized, looks("no-token-at-all"))
	require.Empty(t, looks(admin), "the first admin is known beforehand")
	reads := s.count()
	require.Equal(t, protocol.CodeUnavailable, looks(known))
	require.Equal(t, reads, s.count(), "reading rests after it failed")

	s.set(nil, record)
	s.pass(tokensRetry)
	require.Empty(t, looks(known))
	s.set(errAway)
	s.pass(time.Hour)
	require.Empty(t, looks(known), "those that were known stay")
	strange, _ := newShelf().add(9, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	require.Equal(t, protocol.CodeUnavailable, looks(strange), "of others nobody can tell")
}

func TestManyRequestsWaitForOneReading(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleViewer})
	s.hold = make(chan struct{})
	g := s.gate(Options{})
	var wg sync.WaitGroup
	codes := make([]string, 20)
	for i := range codes {
		wg.Go(func() { _, codes[i] = ask(t, g, access.View, request(http.MethodGet, token)) })
	}
	require.Eventually(t, func() bool { return s.count() == 1 }, 5*time.Second, time.Millisecond)
	close(s.hold)
	wg.Wait()
	require.Equal(t, make([]string, 20), codes)
	require.Equal(t, 1, s.count())
}

// TestTokensThatCannotBeReadAreSaidOnceInAWhile has strangers ask with made-up tokens while Temporal is away.
func TestTokensThatCannotBeReadAreSaidOnceInAWhile(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := newShelf()
	made, _ := newShelf().add(1, access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin})
	g := s.gate(Options{Logger: zap.New(core), Rate: DefaultRate, Burst: DefaultBurst})
	s.set(errAway)
	for range 100 {
		_, code := ask(t, g, access.View, request(http.MethodGet, made))
		require.Equal(t, protocol.CodeUnavailable, code)
	}
	require.Equal(t, 1, logs.Len())
	s.pass(tokensRetry)
	_, code := ask(t, g, access.View, request(http.MethodGet, made))
	require.Equal(t, protocol.CodeUnavailable, code)
	require.Equal(t, 2, logs.FilterMessage("The tokens cannot be read").Len())
}
