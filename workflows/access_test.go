package workflows_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

func viewerToken(id string) access.Record {
	return access.Record{ID: id, Name: id, Kind: api.TokenAPI, Role: api.RoleViewer, Hash: access.HashOf(id)}
}

// TestAccessKeepsTokensInItsMemo creates tokens, repeats that, revokes and refuses some; each time the memo has the
// present ones.
func TestAccessKeepsTokensInItsMemo(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	var published [][]string
	var over [][]access.EndedSession
	env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) {
		ids := []string{}
		memo := args.Get(0).(map[string]any)
		if ended, only := memo[contract.MemoEnded]; only {
			over = append(over, ended.([]access.EndedSession))
			return
		}
		for _, token := range memo[contract.MemoTokens].([]access.Record) {
			ids = append(ids, token.ID)
		}
		published = append(published, ids)
	}).Return(nil)
	answers := map[string]*workflowtest.Answer{}
	at := time.Duration(0)
	send := func(name, update string, arg any) {
		at += time.Minute
		answers[name] = &workflowtest.Answer{}
		env.RegisterDelayedCallback(func() { env.UpdateWorkflow(update, "", answers[name], arg) }, at)
	}
	old := viewerToken("old")
	old.ExpiresAt = env.Now().Add(-contract.ExpiredTokenKept)
	send("one", contract.CreateTokenUpdate.Name, viewerToken("one"))
	send("again", contract.CreateTokenUpdate.Name, viewerToken("one"))
	send("two", contract.CreateTokenUpdate.Name, viewerToken("two"))
	send("no role", contract.CreateTokenUpdate.Name, access.Record{ID: "x", Kind: api.TokenAPI})
	send("revoked", contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: "one"})
	send("unknown", contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: "one"})
	same, child, grandchild := viewerToken("same"), viewerToken("child"), viewerToken("grandchild")
	same.Name, child.CreatedByID, grandchild.CreatedByID = "two", "two", "child"
	send("same name", contract.CreateTokenUpdate.Name, same)
	send("child", contract.CreateTokenUpdate.Name, child)
	send("grandchild", contract.CreateTokenUpdate.Name, grandchild)
	session := access.EndedSession{ID: "s", Token: "two", Expires: env.Now().Add(time.Hour)}
	send("session", contract.EndSessionUpdate.Name, session)
	send("family", contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: "two", WithChildren: true})
	env.RegisterDelayedCallback(env.CancelWorkflow, at+time.Minute)
	env.ExecuteWorkflow(contract.AccessWorkflow, contract.AccessInput{Tokens: []access.Record{old}})
	require.True(t, env.IsWorkflowCompleted())
	require.Equal(t, [][]string{{"old"}, {"one"}, {"one", "two"}, {"two"}, {"two", "child"},
		{"two", "child", "grandchild"}, {}}, published,
		"what is over for long is dropped, and a repeated request changes nothing")
	require.True(t, answers["same name"].Refused)
	require.Len(t, over, 1)
	require.Equal(t, session.ID, over[0][0].ID)
	family := answers["family"].Value.(contract.RevokedToken)
	require.Equal(t, []string{"child", "grandchild"}, []string{family.Children[0].ID, family.Children[1].ID})
	require.NoError(t, answers["again"].Err)
	require.True(t, answers["no role"].Refused)
	require.True(t, answers["unknown"].Refused)
	var refusal *temporal.ApplicationError
	require.True(t, errors.As(answers["unknown"].Err, &refusal))
	require.Equal(t, contract.UnknownToken, refusal.Type())
}

func TestAccessHasRoomForSoManyTokens(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	env.OnUpsertMemo(mock.Anything).Return(nil)
	var full []access.Record
	for i := range access.MaxTokens {
		full = append(full, viewerToken(fmt.Sprint(i)))
	}
	refused := &workflowtest.Answer{}
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.CreateTokenUpdate.Name, "", refused,
			viewerToken("more"))
	}, time.Minute)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Hour)
	env.ExecuteWorkflow(contract.AccessWorkflow, contract.AccessInput{Tokens: full})
	require.ErrorContains(t, refused.Err, "revoke some")
}

// TestAccessCarriesTokensOn has a run whose history has become long.
func TestAccessCarriesTokensOn(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	env.OnUpsertMemo(mock.Anything).Return(nil)
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(contract.CreateTokenUpdate.Name, "", &workflowtest.Answer{}, viewerToken("last"))
	}, time.Minute)
	env.RegisterDelayedCallback(func() {
		env.SetCurrentHistoryLength(10_000)
		env.UpdateWorkflow(contract.RevokeTokenUpdate.Name, "", &workflowtest.Answer{},
			contract.RevokeTokenRequest{ID: "none"})
	}, time.Hour)
	env.ExecuteWorkflow(contract.AccessWorkflow, contract.AccessInput{Ended: []access.EndedSession{{ID: "s"}}})
	var next *workflow.ContinueAsNewError
	require.True(t, errors.As(env.GetWorkflowError(), &next))
	var input contract.AccessInput
	require.NoError(t, contract.Payloads.FromPayloads(next.Input, &input))
	require.Equal(t, "last", input.Tokens[0].ID)
	require.Equal(t, "s", input.Ended[0].ID)
	require.Equal(t, access.HashOf("last"), input.Tokens[0].Hash)
}

// TestALeakedTokenIsRevokedWithAllThatItMade has its holder revoke tokens between it and those that shall stay.
func TestALeakedTokenIsRevokedWithAllThatItMade(t *testing.T) {
	t.Parallel()
	const leaked, second, third, fourth = "00000000000a", "00000000000b", "00000000000c", "00000000000d"
	const other = "00000000000e"
	made := func(id, by string) access.Record {
		token := viewerToken(id)
		token.CreatedByID = by
		return token
	}
	chain := []any{made(leaked, other), made(second, leaked), made(third, second), made(fourth, third)}
	gone := func(id string) contract.RevokeTokenRequest { return contract.RevokeTokenRequest{ID: id} }
	family := func(id string) contract.RevokeTokenRequest {
		return contract.RevokeTokenRequest{ID: id, WithChildren: true}
	}
	expired := made(second, leaked)
	expired.ExpiresAt = workflowtest.NewEnvironment().Now().Add(-contract.ExpiredTokenKept)
	for name, c := range map[string]struct {
		before  []access.Record // made before ancestors were kept
		steps   []any
		refused bool // the last one
		left    []string
	}{
		"all are there":             {steps: append(chain, family(leaked))},
		"one between is gone":       {steps: append(chain, gone(second), family(leaked))},
		"several between are gone":  {steps: append(chain, gone(third), gone(second), family(leaked))},
		"in the other order":        {steps: append(chain, gone(second), gone(third), family(leaked))},
		"it is gone itself":         {steps: append(chain, gone(leaked), family(leaked))},
		"all but the last are gone": {steps: append(chain, gone(leaked), gone(second), gone(third), family(leaked))},
		"one that is gone is named": {steps: append(chain, gone(second), family(second)), left: []string{leaked}},
		"a later one has made more": {steps: append(chain, gone(second), made("0000000000aa", fourth), family(leaked))},
		"nothing of it is there":    {steps: append(chain, family(leaked), family(leaked)), refused: true},
		"none is known":             {steps: []any{family("0000000000ff")}, refused: true},
		"it has made nothing":       {steps: []any{family("ops.example.com")}, refused: true},
		"a certificate's": {
			steps: []any{made(leaked, "ops.example.com"), made(second, leaked), family("ops.example.com")},
		},
		"it is used once more":      {steps: append(chain, family(leaked), made("0000000000aa", leaked)), refused: true},
		"another is used once more": {steps: append(chain, family(leaked), made("0000000000aa", fourth)), refused: true},
		"children are not asked for": {
			steps: append(chain, gone(leaked), gone(leaked)), refused: true, left: []string{second, third, fourth},
		},
		"they were made long ago": {
			before: []access.Record{made(leaked, other), made(second, leaked), made(third, second), made(fourth, third)},
			steps:  []any{gone(second), gone(third), family(leaked)},
		},
		"one between expired": {
			before: []access.Record{made(leaked, other), expired, made(third, second)},
			steps:  []any{made("0000000000aa", third), family(leaked)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := workflowtest.NewEnvironment()
			worker.RegisterWorkflows(env)
			var left []string
			env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) {
				left = nil
				for _, token := range args.Get(0).(map[string]any)[contract.MemoTokens].([]access.Record) {
					left = append(left, token.ID)
				}
			}).Return(nil)
			answers := make([]workflowtest.Answer, len(c.steps))
			for i, step := range c.steps {
				update := contract.RevokeTokenUpdate.Name
				if _, creates := step.(access.Record); creates {
					update = contract.CreateTokenUpdate.Name
				}
				env.RegisterDelayedCallback(func() { env.UpdateWorkflow(update, "", &answers[i], step) },
					time.Duration(i+1)*time.Minute)
			}
			env.RegisterDelayedCallback(env.CancelWorkflow, time.Hour)
			root := made(other, "first-admin")
			env.ExecuteWorkflow(contract.AccessWorkflow, contract.AccessInput{Tokens: append(c.before, root)})
			last := len(answers) - 1
			for i := range answers[:last] {
				require.NoError(t, answers[i].Err)
			}
			require.Equal(t, c.refused, answers[last].Refused, "%v", answers[last].Err)
			require.ElementsMatch(t, append(c.left, other), left)
		})
	}
}

// TestAncestorsAreBounded has a token with as many as there may be.
func TestAncestorsAreBounded(t *testing.T) {
	t.Parallel()
	env := workflowtest.NewEnvironment()
	worker.RegisterWorkflows(env)
	env.OnUpsertMemo(mock.Anything).Return(nil)
	deep, root := viewerToken("00000000000a"), viewerToken("00000000000b")
	for i := range access.MaxAncestors - 1 {
		deep.Ancestors = append(deep.Ancestors, fmt.Sprint(i))
	}
	deep.CreatedByID, root.CreatedByID = deep.Ancestors[0], "first-admin"
	at := time.Duration(0)
	send := func(update string, arg any) *workflowtest.Answer {
		at += time.Minute
		answer := &workflowtest.Answer{}
		env.RegisterDelayedCallback(func() { env.UpdateWorkflow(update, "", answer, arg) }, at)
		return answer
	}
	create := func(id, by string) *workflowtest.Answer {
		token := viewerToken(id)
		token.CreatedByID = by
		return send(contract.CreateTokenUpdate.Name, token)
	}
	last := create("last", root.ID)
	beyond := create("beyond", root.ID)
	first := create("first", "first-admin")
	send(contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: deep.ID})
	room := create("room", root.ID)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Hour)
	env.ExecuteWorkflow(contract.AccessWorkflow, contract.AccessInput{Tokens: []access.Record{deep, root}})
	require.NoError(t, last.Err)
	require.ErrorContains(t, beyond.Err, "or revoke some")
	require.NoError(t, first.Err, "one that no token has made always has room")
	require.NoError(t, room.Err, "they went with their token")
}
