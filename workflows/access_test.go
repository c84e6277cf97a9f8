package workflows_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
)

func viewerToken(id string) access.Record {
	return access.Record{ID: id, Name: id, Kind: access.APIToken, Role: access.Viewer, Hash: access.HashOf(id)}
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
	send("no role", contract.CreateTokenUpdate.Name, access.Record{ID: "x", Kind: access.APIToken})
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
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
	require.Equal(t, "last", input.Tokens[0].ID)
	require.Equal(t, "s", input.Ended[0].ID)
	require.Equal(t, access.HashOf("last"), input.Tokens[0].Hash)
}
