package access

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEndedSessions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	end := func(ended []EndedSession, id, token string) []EndedSession {
		return EndSession(ended, EndedSession{ID: id, Token: token, Expires: now.Add(time.Hour)}, now)
	}
	ended := end(end(end(nil, "a", "t"), "a", "t"), "b", "t")
	require.Len(t, ended, 2)
	require.True(t, EndsSession(ended, "a", "t", now))
	require.False(t, EndsSession(ended, "c", "t", now))
	require.False(t, EndsSession(ended, "", "t", now))
	now = now.Add(time.Hour)
	ended = end(ended, "c", "t")
	require.Len(t, ended, 1, "what has expired is forgotten")

	for i := range 10 * maxEnded {
		ended = end(ended, fmt.Sprint(i), "greedy")
	}
	require.LessOrEqual(t, len(ended), maxEnded)
	require.True(t, EndsSession(ended, "c", "t", now), "of other tokens nothing is forgotten")
	for _, id := range []string{"0", "1000", fmt.Sprint(10*maxEnded - 1)} {
		require.True(t, EndsSession(ended, id, "greedy", now), id)
	}
	require.False(t, EndsSession(ended, "new", "greedy", now.Add(time.Second)), "later ones go on")

	for i := len(ended); i < maxEnded; i++ {
		ended = end(ended, fmt.Sprint("again", i), "greedy")
	}
	ended = end(ended, "one", "modest")
	require.True(t, EndsSession(ended, "one", "modest", now))
	require.False(t, EndsSession(ended, "two", "modest", now), "the sessions of the token with most pay for that")
	require.Less(t, len(ended), 10)
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	made := func(id, by string) Record { return Record{ID: id, CreatedByID: by} }
	tokens := []Record{made("grandchild", "child"), made("other", "first-admin"), made("child", "parent"),
		made("parent", "first-admin"), made("join", "grandchild"), made("self", "self"), made("old", "")}
	var ids []string
	for _, r := range Descendants(tokens, "parent") {
		ids = append(ids, r.ID)
	}
	require.ElementsMatch(t, []string{"child", "grandchild", "join"}, ids)
	require.Empty(t, Descendants(tokens, "self"))
	require.Equal(t, []string{"join", "grandchild", "child", "parent"}, Line(tokens, "join"))
	require.Equal(t, []string{"self"}, Line(tokens, "self"))
	require.Empty(t, Line(tokens, "first-admin"))

	orphan := made("orphan", "gone")
	orphan.Ancestors = []string{"gone", "child", "parent"}
	tokens = append(tokens, orphan, made("late", "orphan"))
	require.Len(t, Descendants(tokens, "parent"), 5)
	require.Len(t, Descendants(tokens, "gone"), 2)
	require.Equal(t, []string{"late", "orphan", "gone", "child", "parent"}, Line(tokens, "late"))
}
