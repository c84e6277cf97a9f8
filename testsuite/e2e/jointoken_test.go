package e2e

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// online waits until an agent is a member that a hub has.
func (s *secured) online(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var a api.Agent
		status, _ := s.ask(t, firstAdmin, http.MethodGet, "/"+id, nil, &a)
		return status == http.StatusOK && a.Status == api.AgentOnline && a.Hub == s.Hub.ID()
	}, patience, 50*time.Millisecond)
}

// TestRevokingAJoinTokenEndsSessions has one agent of a token with work, and one of another that takes it over.
func TestRevokingAJoinTokenEndsSessions(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	leaked := s.token(t, api.TokenRequest{Name: "leaked", Kind: api.TokenJoin, Cluster: s.cluster, MaxUses: 1})
	good := s.token(t, api.TokenRequest{Name: "good", Kind: api.TokenJoin, Cluster: s.cluster})
	var begun atomic.Int64
	handlers := map[string]agent.Handler{"hold": func(ctx context.Context, _ *agent.Task) (any, error) {
		if begun.Add(1) > 1 {
			return "done", nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	run := func(id, token string) *running {
		return startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: id, JoinToken: token},
			handlers)
	}
	one, two := plane.UniqueID("a"), plane.UniqueID("b")
	bad := run(one, leaked.Secret)
	s.online(t, one)
	select {
	case err := <-run(plane.UniqueID("c"), leaked.Secret).done:
		require.ErrorContains(t, err, "max_uses")
	case <-time.After(20 * time.Second):
		t.Fatal("a second agent came in with a token for one")
	}
	require.Eventually(t, func() bool {
		var tokens struct{ Tokens []api.Token }
		s.ask(t, firstAdmin, http.MethodGet, "/tokens?page_size=500", nil, &tokens)
		i := slices.IndexFunc(tokens.Tokens, func(token api.Token) bool { return token.ID == leaked.ID })
		uses := tokens.Tokens[i].Uses // absent while the clusters do not answer
		return uses != nil && *uses == 1
	}, patience, 100*time.Millisecond)
	var held taskDone
	status, p := s.ask(t, firstAdmin, http.MethodPost, "/tasks", map[string]any{"type": "hold", "cluster": s.cluster},
		&held)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	require.Eventually(t, func() bool { return begun.Load() == 1 }, patience, 20*time.Millisecond)
	run(two, good.Secret)
	s.online(t, two)

	if revoked, told := s.revoke(t, leaked.ID+"?end_sessions=true"); told {
		require.Equal(t, []string{one}, revoked.EndedSessions)
	}
	select {
	case err := <-bad.done:
		require.ErrorIs(t, err, agent.ErrRevoked)
	case <-time.After(5 * time.Second):
		t.Fatal("the agent was not told to stop")
	}
	status, _ = s.ask(t, firstAdmin, http.MethodGet, "/tasks/"+held.ID+"?wait=20s", nil, &held)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, api.TaskCompleted, held.Status, held.Why)
	select {
	case err := <-run(one, leaked.Secret).done:
		require.ErrorContains(t, err, "token")
	case <-time.After(20 * time.Second):
		t.Fatal("the token still lets agents in")
	}
}

// TestAHubIsRestartedAfterAJoinTokenWasRevoked has an agent that registered with it before: it stays, with its work.
func TestAHubIsRestartedAfterAJoinTokenWasRevoked(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	token := s.token(t, api.TokenRequest{Name: "once", Kind: api.TokenJoin, Cluster: s.cluster})
	other := newSecured(t, plane.NodeOptions{}) // the hub that it goes on at
	id := plane.UniqueID("a")
	open := make(chan struct{})
	var begun atomic.Int64
	r := startAgent(t, agent.Options{HubURLs: []string{s.URL, other.URL}, Cluster: s.cluster, ID: id,
		JoinToken: token.Secret}, map[string]agent.Handler{
		"hold": func(context.Context, *agent.Task) (any, error) { begun.Add(1); <-open; return "done", nil }})
	s.online(t, id)
	var held taskDone
	status, p := s.ask(t, firstAdmin, http.MethodPost, "/tasks", map[string]any{"type": "hold", "cluster": s.cluster},
		&held)
	require.Equal(t, http.StatusAccepted, status, "%+v", p)
	require.Eventually(t, func() bool { return begun.Load() == 1 }, patience, 20*time.Millisecond)
	s.revoke(t, token.ID)
	select {
	case err := <-startAgent(t, agent.Options{HubURLs: []string{s.URL}, Cluster: s.cluster, ID: plane.UniqueID("b"),
		JoinToken: token.Secret}, map[string]agent.Handler{"hold": echo}).done:
		require.ErrorContains(t, err, "token", "new agents are out at once")
	case <-time.After(20 * time.Second):
		t.Fatal("the revoked token lets agents in")
	}
	s.Stop()
	other.online(t, id)
	close(open)
	status, _ = other.ask(t, firstAdmin, http.MethodGet, "/tasks/"+held.ID+"?wait=20s", nil, &held)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, api.TaskCompleted, held.Status, held.Why)
	require.EqualValues(t, 1, begun.Load(), "it went on where it was")
	r.stop(t)
}

// TestAStreamEndsWithItsToken has somebody listen to events when their token is revoked.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s := newSecured(t, plane.NodeOptions{})
	token := s.token(t, api.TokenRequest{Name: "listener", Role: api.RoleViewer})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/agents/events", http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token.Secret)
	response, err := s.via.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	ended := make(chan time.Time, 1)
	go func() {
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		}
		ended <- time.Now()
	}()
	s.revoke(t, token.ID)
	revoked := time.Now()
	select {
	case at := <-ended:
		require.Less(t, at.Sub(revoked), 10*time.Second)
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on")
	}
	status, p := s.ask(t, token.Secret, http.MethodGet, "/events", nil, nil)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, protocol.CodeUnauthorized, p.Code)
	require.False(t, strings.Contains(p.Detail, token.Secret))
}
