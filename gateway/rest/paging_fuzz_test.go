package rest

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageTokens(t *testing.T) {
	t.Parallel()
	tokens := PageTokens("the installation's key")
	token, err := tokens.Open("a list", tokens.Seal("a list", []byte("next")))
	require.NoError(t, err)
	require.Equal(t, "next", string(token))
	require.Empty(t, tokens.Seal("a list", nil))
	for name, text := range map[string]string{
		"of another list":     tokens.Seal("another list", []byte("next")),
		"that a client made":  PageTokens(nil).Seal("a list", []byte("next")),
		"of another key":      PageTokens("another").Seal("a list", []byte("next")),
		"that is none":        "AAAA",
		"without a token":     base64.RawURLEncoding.EncodeToString(tokens.sumOf("a list", nil)),
		"that is not encoded": "%%%",
	} {
		_, err = tokens.Open("a list", text)
		require.Error(t, err, name)
	}
}

// FuzzOpenToken looks for a page token that opens although it was not made for its list.
func FuzzOpenToken(f *testing.F) {
	tokens, others := PageTokens("the installation's key"), PageTokens("another key")
	for _, list := range []string{"", ByKey, "WorkflowType = 'Task'"} {
		f.Add(list, tokens.Seal(list, []byte("next")))
		f.Add(list, tokens.Seal("another list", []byte("next")))
		f.Add(list, others.Seal(list, []byte("next")))
	}
	f.Add(ByKey, "AAAA")
	f.Add(ByKey, "%%%")
	f.Fuzz(func(t *testing.T, list, text string) {
		token, err := tokens.Open(list, text)
		if err != nil || text == "" {
			require.Empty(t, token)
			return
		}
		given, err := base64.RawURLEncoding.DecodeString(text)
		require.NoError(t, err)
		made, err := base64.RawURLEncoding.DecodeString(tokens.Seal(list, token))
		require.NoError(t, err)
		require.Equal(t, made, given)
	})
}
