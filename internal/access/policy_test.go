package access_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/sdk/api"
)

func TestPoliciesDecide(t *testing.T) {
	t.Parallel()
	token := func(role api.AccessRole, tenant string) access.Identity {
		return access.Identity{Kind: api.IdentityToken, ID: "x", Role: role, Tenant: tenant}
	}
	identities := map[string]access.Identity{
		"nobody": {}, "viewer": token(api.RoleViewer, ""), "operator": token(api.RoleOperator, ""),
		"admin":         token(api.RoleAdmin, ""),
		"acme's viewer": token(api.RoleViewer, "acme"), "acme's operator": token(api.RoleOperator, "acme"),
		"agent": {Kind: api.IdentityJoin, ID: "j", Joins: true}, "everybody": access.Local,
		"made-up role":       token("root", ""),
		"role without proof": {Role: api.RoleAdmin},
	}
	const in, known, low, one, agents, undeclared = access.Allowed, access.NotKnown, access.RoleTooLow, access.OneTenant, access.NotForTokens, access.Undeclared
	order := strings.Split(
		"nobody,viewer,operator,admin,acme's viewer,acme's operator,agent,everybody,made-up role,role without proof", ",")
	for name, c := range map[string]struct {
		policy access.Policy
		want   [10]access.Decision
	}{
		"open":    {access.Open, [10]access.Decision{in, in, in, in, in, in, in, in, in, in}},
		"session": {access.Session, [10]access.Decision{in, in, in, in, in, in, in, in, in, in}},
		"view":    {access.View, [10]access.Decision{known, in, in, in, one, one, low, in, low, known}},
		"operate": {access.Operate, [10]access.Decision{known, low, in, in, low, one, low, in, low, known}},
		"administer": {access.Administer, [10]access.Decision{known, low, low, in, low, low, low, in, low,
			known}},
		"view, scoped": {access.View.Scoped(), [10]access.Decision{known, in, in, in, in, in, low, in, low,
			known}},
		"operate, scoped": {access.Operate.Scoped(), [10]access.Decision{known, low, in, in, low, in, low, in, low,
			known}},
		"join": {access.Join, [10]access.Decision{known, agents, agents, agents, agents, agents, in, in,
			agents, known}},
		"undeclared": {access.Policy{}, [10]access.Decision{undeclared, undeclared, undeclared, undeclared,
			undeclared, undeclared, undeclared, in, undeclared, undeclared}},
		"undeclared, scope": {access.Policy{}.Scoped(), [10]access.Decision{undeclared, undeclared, undeclared,
			undeclared, undeclared, undeclared, undeclared, in, undeclared, undeclared}},
	} {
		for i, who := range order {
			id := identities[who]
			require.Equal(t, c.want[i], c.policy.Decide(&id), "%s: %s", name, who)
		}
	}
	require.Len(t, identities, len(order))
}

func TestWhoMayJoinAndSee(t *testing.T) {
	t.Parallel()
	anywhere := access.Identity{Kind: api.IdentityJoin, Joins: true}
	build := access.Identity{Kind: api.IdentityJoin, Joins: true, Cluster: "build"}
	one := access.Identity{Kind: api.IdentityJoin, Joins: true, Cluster: "build", AgentID: "a-1"}
	admin := access.Identity{Kind: api.IdentityToken, Role: api.RoleAdmin}
	require.True(t, anywhere.MayJoin("x", "a-2"))
	require.True(t, build.MayJoin("build", "a-2"))
	require.False(t, build.MayJoin("builds", "a-2"))
	require.True(t, one.MayJoin("build", "a-1"))
	require.False(t, one.MayJoin("build", "a-2"))
	require.False(t, admin.MayJoin("build", "a-1"))
	several := access.Identity{Kind: api.IdentityJoin, Joins: true, Cluster: "build", AgentID: "a-*"}
	require.True(t, several.MayJoin("build", "a-1"))
	require.False(t, several.MayJoin("build", "b-1"))
	require.False(t, several.MayJoin("other", "a-1"))

	acme, nobody := access.Identity{Kind: api.IdentityToken, Tenant: "acme"}, access.Identity{}
	require.True(t, acme.Sees("acme"))
	require.False(t, acme.Sees("beta"))
	require.False(t, acme.Sees(""), "what is of no tenant is not this one's")
	require.True(t, admin.Sees("acme") && admin.Sees(""))
	require.False(t, nobody.Sees(""))
}

func TestNobodyIsInAContextThatNothingWasPutInto(t *testing.T) {
	t.Parallel()
	id := access.From(t.Context())
	require.False(t, id.Known())
	id = access.From(access.With(t.Context(), access.Local))
	require.True(t, id.Known())
}

// TestEachTaskOfABatchIsATarget touches as many as a batch may have, some of them twice, and more.
func TestEachTaskOfABatchIsATarget(t *testing.T) {
	t.Parallel()
	targets := access.NewTargets(map[string]string{"id": "nightly"})
	ctx := access.WithTargets(t.Context(), targets)
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("batch-%d", i))
		access.Touch(ctx, "task", ids[i])
		access.Touch(ctx, "task", ids[i/2])
	}
	access.Touch(ctx, "task", "one-too-many")
	access.Touch(ctx, "event", "e-1")
	require.Equal(t, map[string]string{"id": "nightly", "task": strings.Join(ids, " "), "event": "e-1"}, targets.Names())
}

func TestTargetsAreBounded(t *testing.T) {
	t.Parallel()
	targets := access.NewTargets(map[string]string{"id": strings.Repeat("x", 10_000)})
	ctx := access.WithTargets(t.Context(), targets)
	for i := range 100 {
		access.Touch(ctx, strings.Repeat("k", i+1), "v")
	}
	access.Touch(t.Context(), "nowhere", "v")
	require.Len(t, targets.Names(), 16)
	require.Len(t, targets.Names()["id"], 128)
	for sent, written := range map[string]string{
		"acme:web-1.a_b": "acme:web-1.a_b", "a\x01\"\\\x00b": "a????b", "<b>&\u2028\xff": "?b????", "two words": "two?words",
	} {
		require.Equal(t, written, access.NewTargets(map[string]string{"id": sent}).Names()["id"])
	}
}
