package rest

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzOpenToken looks for a page token that opens although it was not made for its list.
func FuzzOpenToken(f *testing.F) {
	for _, list := range []string{"", ByKey, "WorkflowType = 'Task'"} {
		f.Add(list, SealToken(list, []byte("next")))
		f.Add(list, SealToken("another list", []byte("next")))
	}
	f.Add(ByKey, "AAAA")
	f.Add(ByKey, "%%%")
	f.Fuzz(func(t *testing.T, list, text string) {
		token, err := OpenToken(list, text)
		if err != nil || text == "" {
			require.Empty(t, token)
			return
		}
		given, err := base64.RawURLEncoding.DecodeString(text)
		require.NoError(t, err)
		made, err := base64.RawURLEncoding.DecodeString(SealToken(list, token))
		require.NoError(t, err)
		require.Equal(t, made, given)
	})
}
