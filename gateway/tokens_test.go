package gateway_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	tokensPath = "/api/v1/agents/tokens"
	tokenKey   = "the key of these tests"
)

// withAccess adds the workflow that keeps tokens, as it is after its first start.
func (f *fakeTemporal) withAccess() {
	e := open(contract.AccessWorkflowID, contract.AccessWorkflow)
	var tokens []access.Record
	publish := func() {
		e.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoTokens: payload(tokens)}}
	}
	e.update = func(name string, arg any) (any, error) {
		defer publish()
		if name == contract.CreateTokenUpdate.Name {
			tokens = append(tokens, arg.(access.Record))
			return nil, nil
		}
		request := arg.(contract.RevokeTokenRequest)
		var revoked contract.RevokedToken
		if request.WithChildren {
			revoked.Children = access.Descendants(tokens, request.ID)
		}
		i := slices.IndexFunc(tokens, func(r access.Record) bool { return r.ID == request.ID })
		if i >= 0 || len(revoked.Children) > 0 {
			tokens = slices.DeleteFunc(tokens, func(r access.Record) bool {
				return r.ID == request.ID || slices.ContainsFunc(revoked.Children,
					func(c access.Record) bool { return c.ID == r.ID })
			})
			return revoked, nil
		}
		return nil, temporal.NewApplicationError("canary", contract.UnknownToken)
	}
	f.executions[contract.AccessWorkflowID] = e
}

func TestATokenIsShownOnceAndKeptAsItsHash(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "build"})
	f.withAccess()
	h := serve(t, f)
	w := do(h, http.MethodPost, tokensPath, `{"name":"ci","role":"operator","tenant":"acme","expires_in":"720h"}`)
	token := answer[api.NewToken](t, w, http.StatusCreated)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	kind, id, ok := access.TokenID(token.Secret)
	require.True(t, ok)
	require.Equal(t, api.TokenAPI, kind)
	require.Equal(t, token.ID, id)
	require.WithinDuration(t, time.Now().Add(720*time.Hour), *token.ExpiresAt, time.Minute)
	join := answer[api.NewToken](t, do(h, http.MethodPost, tokensPath,
		`{"name":"builders","kind":"join","cluster":"build","agent_id":"b-1"}`), http.StatusCreated)
	require.True(t, strings.HasPrefix(join.Secret, "msj_"))

	w = do(h, http.MethodGet, tokensPath, "")
	list := answer[struct{ Tokens []api.Token }](t, w, http.StatusOK)
	require.Len(t, list.Tokens, 2)
	require.ElementsMatch(t, []api.Token{token.Token, join.Token}, list.Tokens)
	for _, secret := range []string{token.Secret, join.Secret} {
		require.NotContains(t, w.Body.String(), secret[17:])
		require.NotContains(t, f.executions[contract.AccessWorkflowID].info.GetMemo().String(), secret[17:])
	}
	require.NotContains(t, w.Body.String(), "hash")
	page := answer[struct {
		Tokens []api.Token
		Next   string `json:"next_page_token"`
	}](t, do(h, http.MethodGet, tokensPath+"?page_size=1", ""), http.StatusOK)
	require.Len(t, page.Tokens, 1)
	rest := answer[struct{ Tokens []api.Token }](t, do(h, http.MethodGet,
		tokensPath+"?page_size=1&page_token="+page.Next, ""), http.StatusOK)
	require.NotEqual(t, page.Tokens[0].ID, rest.Tokens[0].ID)

	problem(t, do(h, http.MethodDelete, tokensPath+"/"+token.ID+"?end_sessions=true", ""),
		http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
	require.Equal(t, api.RevokedToken{ID: token.ID}, answer[api.RevokedToken](t,
		do(h, http.MethodDelete, tokensPath+"/"+token.ID, ""), http.StatusOK))
	problem(t, do(h, http.MethodDelete, tokensPath+"/"+token.ID, ""), http.StatusNotFound, protocol.CodeUnknownToken)
	problem(t, do(h, http.MethodDelete, tokensPath+"/Canary", ""), http.StatusNotFound, protocol.CodeUnknownToken)
}

// What the first admin or a client certificate has made is revoked with them named: they are known beforehand.
func TestChildrenOfWhatIsKnownBeforehandAreRevoked(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withAccess()
	h := serve(t, f)
	for _, id := range []string{"first-admin", "ops.example.com"} {
		_, err := f.executions[contract.AccessWorkflowID].update(contract.CreateTokenUpdate.Name,
			access.Record{ID: "0000000000aa", Name: "ci", Kind: api.TokenAPI, Role: api.RoleAdmin, CreatedByID: id})
		require.NoError(t, err)
		gone := answer[api.RevokedToken](t, do(h, http.MethodDelete, tokensPath+"/"+id+"?with_children=true", ""),
			http.StatusOK)
		require.Equal(t, []string{"0000000000aa"}, gone.Children)
		problem(t, do(h, http.MethodDelete, tokensPath+"/"+id+"?with_children=true", ""), http.StatusNotFound,
			protocol.CodeUnknownToken)
	}
}

// A spawner's token is not kept, and the sessions that were opened with it can be ended all the same.
func TestSessionsOfASpawnersTokenEnd(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := f.withCluster(api.ClusterConfig{Name: "build"})
	f.withCluster(api.ClusterConfig{Name: "other"})
	f.withAccess()
	c.query = func() (any, error) {
		return contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "build"},
			Members: []cluster.Member{{AgentID: "rogue", JoinToken: "0000000000ee"}}}}, nil
	}
	var asked []contract.RevokeJoinTokenRequest
	c.update = func(_ string, arg any) (any, error) {
		asked = append(asked, arg.(contract.RevokeJoinTokenRequest))
		return contract.RevokedJoinToken{Agents: []string{"rogue"}}, nil
	}
	h := serve(t, f)
	problem(t, do(h, http.MethodDelete, tokensPath+"/0000000000ee", ""), http.StatusNotFound, protocol.CodeUnknownToken)
	problem(t, do(h, http.MethodDelete, tokensPath+"/0000000000ff?end_sessions=true", ""), http.StatusNotFound,
		protocol.CodeUnknownToken)
	revoked := answer[api.RevokedToken](t, do(h, http.MethodDelete, tokensPath+"/0000000000ee?end_sessions=true", ""),
		http.StatusOK)
	require.Equal(t, []string{"rogue"}, revoked.EndedSessions)
	require.Equal(t, []contract.RevokeJoinTokenRequest{{ID: "0000000000ee", EndSessions: true}}, asked)
}

func TestTheFirstTokenStartsTheirWorkflow(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	require.Empty(t, answer[struct{ Tokens []api.Token }](t, do(h, http.MethodGet, tokensPath, ""),
		http.StatusOK).Tokens)
	problem(t, do(h, http.MethodDelete, tokensPath+"/abc", ""), http.StatusNotFound, protocol.CodeUnknownToken)
	f.onStart = func(e *execution) { e.update = func(string, any) (any, error) { return nil, nil } }
	answer[api.NewToken](t, do(h, http.MethodPost, tokensPath, `{"name":"ci","role":"viewer"}`), http.StatusCreated)
	require.Equal(t, []string{contract.CreateTokenUpdate.Name}, f.updates)
}

func TestTokensThatMakeNoSense(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withAccess()
	h := serve(t, f)
	for name, c := range map[string]struct{ body, where string }{
		"no role":             {`{"name":"x"}`, "body.role"},
		"no name":             {`{"role":"viewer"}`, "body"},
		"a name for a title":  {`{"name":"My CI","role":"viewer"}`, "body.name"},
		"made-up role":        {`{"name":"x","role":"root"}`, "body.role"},
		"admin of a tenant":   {`{"name":"x","role":"admin","tenant":"acme"}`, "body.tenant"},
		"join of no cluster":  {`{"name":"x","kind":"join"}`, "body.cluster"},
		"join with a role":    {`{"name":"x","kind":"join","cluster":"c","role":"viewer"}`, "body.role"},
		"api for a cluster":   {`{"name":"x","role":"viewer","cluster":"c"}`, "body.cluster"},
		"for a moment":        {`{"name":"x","role":"viewer","expires_in":"1s"}`, "body.expires_in"},
		"for the past":        {`{"name":"x","role":"viewer","expires_in":"-1h"}`, "body.expires_in"},
		"api with uses":       {`{"name":"x","role":"viewer","max_uses":1}`, "body.max_uses"},
		"too many uses":       {`{"name":"x","kind":"join","cluster":"c","max_uses":1001}`, "body.max_uses"},
		"a secret of its own": {`{"name":"x","role":"viewer","token":"abc"}`, "body.token"},
	} {
		t.Run(name, func(t *testing.T) {
			p := problem(t, do(h, http.MethodPost, tokensPath, c.body), http.StatusUnprocessableEntity,
				protocol.CodeInvalidRequest)
			require.Equal(t, c.where, p.Errors[0].Location)
		})
	}
	problem(t, do(h, http.MethodPost, tokensPath, `{"name":"x","kind":"join","cluster":"nowhere"}`),
		http.StatusNotFound, protocol.CodeUnknownCluster)
	require.Empty(t, f.updates)
}

// TestAJoinTokenIsRevokedWhereItIsCounted has the cluster hear before the token is forgotten.
func TestAJoinTokenIsRevokedWhereItIsCounted(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := f.withCluster(api.ClusterConfig{Name: "build"})
	f.withAccess()
	h := serve(t, f)
	create := func(body string) api.NewToken {
		return answer[api.NewToken](t, do(h, http.MethodPost, tokensPath, body), http.StatusCreated)
	}
	list := func() []api.Token {
		return answer[struct{ Tokens []api.Token }](t, do(h, http.MethodGet, tokensPath, ""), http.StatusOK).Tokens
	}
	known := c.query
	limited := create(`{"name":"three","kind":"join","cluster":"build","max_uses":3}`)
	c.query = func() (any, error) { return nil, errors.New("canary") }
	require.Equal(t, 3, limited.MaxUses)
	require.Nil(t, list()[0].Uses, "the cluster does not answer")
	c.query = func() (any, error) {
		return contract.ClusterView{Cluster: cluster.Cluster{TokenLedger: cluster.TokenLedger{
			TokenUses: []cluster.TokenUses{{ID: limited.ID, Agents: []string{"a", "b"}}},
		}}}, nil
	}
	require.Equal(t, 2, *list()[0].Uses)

	var asked []contract.RevokeJoinTokenRequest
	down := true
	c.update = func(name string, arg any) (any, error) {
		require.Equal(t, contract.RevokeJoinTokenUpdate.Name, name)
		if down {
			return nil, errors.New("canary")
		}
		asked = append(asked, arg.(contract.RevokeJoinTokenRequest))
		return contract.RevokedJoinToken{Agents: []string{"a"}}, nil
	}
	require.Equal(t, http.StatusInternalServerError, do(h, http.MethodDelete, tokensPath+"/"+limited.ID, "").Code)
	require.Len(t, list(), 1, "it is still there to be revoked")
	down = false
	revoked := answer[api.RevokedToken](t, do(h, http.MethodDelete, tokensPath+"/"+limited.ID+"?end_sessions=true", ""),
		http.StatusOK)
	require.Equal(t, api.RevokedToken{ID: limited.ID, EndedSessions: []string{"a"}}, revoked)
	require.Equal(t, []contract.RevokeJoinTokenRequest{{ID: limited.ID, EndSessions: true}}, asked)
	require.Empty(t, list())

	c.query = known
	orphan := create(`{"name":"orphan","kind":"join","cluster":"build"}`)
	delete(f.executions, contract.ClusterWorkflowID("build"))
	answer[api.RevokedToken](t, do(h, http.MethodDelete, tokensPath+"/"+orphan.ID, ""), http.StatusOK)
	require.Empty(t, list())
}

// TestChildrenGoWithTheirParent revokes a token with what it has made. A join token's cluster hears.
func TestChildrenGoWithTheirParent(t *testing.T) {
	t.Parallel()
	f := newFake()
	cluster := f.withCluster(api.ClusterConfig{Name: "build"})
	f.withAccess()
	create := f.executions[contract.AccessWorkflowID].update
	for _, r := range []access.Record{
		{ID: "0000000000aa", Name: "leaked", Kind: api.TokenAPI, Role: api.RoleAdmin, CreatedByID: "first-admin"},
		{ID: "0000000000bb", Name: "backdoor", Kind: api.TokenAPI, Role: api.RoleAdmin, CreatedByID: "0000000000aa"},
		{ID: "0000000000cc", Name: "agents", Kind: api.TokenJoin, Cluster: "build", CreatedByID: "0000000000bb"},
		{ID: "0000000000dd", Name: "good", Kind: api.TokenAPI, Role: api.RoleViewer, CreatedByID: "first-admin"},
	} {
		_, err := create(contract.CreateTokenUpdate.Name, r)
		require.NoError(t, err)
	}
	var asked []contract.RevokeJoinTokenRequest
	cluster.update = func(_ string, arg any) (any, error) {
		asked = append(asked, arg.(contract.RevokeJoinTokenRequest))
		return contract.RevokedJoinToken{Agents: []string{"a"}}, nil
	}
	h := serve(t, f)
	revoked := answer[api.RevokedToken](t, do(h, http.MethodDelete,
		tokensPath+"/0000000000aa?with_children=true&end_sessions=true", ""), http.StatusOK)
	require.Equal(t, api.RevokedToken{ID: "0000000000aa", EndedSessions: []string{"a"},
		Children: []string{"0000000000bb", "0000000000cc"}}, revoked)
	require.Equal(t, []contract.RevokeJoinTokenRequest{{ID: "0000000000cc", EndSessions: true}}, asked)
	left := answer[struct{ Tokens []api.Token }](t, do(h, http.MethodGet, tokensPath, ""), http.StatusOK).Tokens
	require.Len(t, left, 1)
	require.Equal(t, "good", left[0].Name)
	require.Equal(t, "first-admin", left[0].CreatedByID)
}

// TestChildrenGoAfterTheirParent revokes what a token has made that is gone itself.
func TestChildrenGoAfterTheirParent(t *testing.T) {
	t.Parallel()
	f := newFake()
	cluster := f.withCluster(api.ClusterConfig{Name: "build"})
	f.withAccess()
	for _, r := range []access.Record{
		{ID: "0000000000bb", Name: "backdoor", Kind: api.TokenAPI, Role: api.RoleAdmin, CreatedByID: "0000000000aa",
			Ancestors: []string{"0000000000aa"}},
		{ID: "0000000000cc", Name: "agents", Kind: api.TokenJoin, Cluster: "build", CreatedByID: "0000000000ab",
			Ancestors: []string{"0000000000ab", "0000000000aa"}},
		{ID: "0000000000dd", Name: "good", Kind: api.TokenAPI, Role: api.RoleViewer, CreatedByID: "first-admin"},
	} {
		_, err := f.executions[contract.AccessWorkflowID].update(contract.CreateTokenUpdate.Name, r)
		require.NoError(t, err)
	}
	var asked []string
	cluster.update = func(_ string, arg any) (any, error) {
		asked = append(asked, arg.(contract.RevokeJoinTokenRequest).ID)
		return contract.RevokedJoinToken{}, nil
	}
	h := serve(t, f)
	for _, path := range []string{"/0000000000aa", "/first-admin", "/0000000000ff?with_children=true"} {
		problem(t, do(h, http.MethodDelete, tokensPath+path, ""), http.StatusNotFound, protocol.CodeUnknownToken)
	}
	require.Empty(t, asked)
	revoked := answer[api.RevokedToken](t, do(h, http.MethodDelete, tokensPath+"/0000000000aa?with_children=true", ""),
		http.StatusOK)
	require.Equal(t, []string{"0000000000bb", "0000000000cc"}, revoked.Children)
	require.Equal(t, []string{"0000000000cc"}, asked)
	left := answer[struct{ Tokens []api.Token }](t, do(h, http.MethodGet, tokensPath, ""), http.StatusOK).Tokens
	require.Len(t, left, 1)
	require.Equal(t, "good", left[0].Name)
}
