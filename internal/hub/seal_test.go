package hub

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	ours        = sealer{key: []byte("0123456789abcdef")}
	someSession = sessionClaims{Hub: "hub-1", Agent: "a", Cluster: "c", Instance: "12345678", Epoch: 7}
	someAttempt = attemptClaims{Task: "t", Attempt: 2, Agent: "a", Instance: "12345678", Epoch: 7, Lane: "lane/c",
		Temporal: []byte{0, 1, 2}}
	sessionSealed = ours.session(someSession)
	attemptSealed = ours.attempt(someAttempt)
)

func TestSealedTokensOpen(t *testing.T) {
	t.Parallel()
	s, err := ours.openSession(sessionSealed)
	require.NoError(t, err)
	require.Equal(t, someSession, s)
	a, err := ours.openAttempt(attemptSealed)
	require.NoError(t, err)
	require.Equal(t, someAttempt, a)
}

func TestTokensThatAreNotOurs(t *testing.T) {
	t.Parallel()
	theirs := sealer{key: []byte("fedcba9876543210")}
	for name, token := range map[string]string{
		"empty": "", "not base64": "%%%", "too short": "AAAA", "another key": theirs.session(someSession),
		"another purpose": attemptSealed, "only a MAC": base64.RawURLEncoding.EncodeToString(ours.mac("session", nil)),
		"not JSON": base64.RawURLEncoding.EncodeToString(append([]byte("x"), ours.mac("session", []byte("x"))...)),
	} {
		_, err := ours.openSession(token)
		require.ErrorIs(t, err, errSeal, name)
	}
	_, err := ours.openAttempt(sessionSealed)
	require.ErrorIs(t, err, errSeal, "a session token is no attempt token")
}

func TestDamagedTokens(t *testing.T) {
	t.Parallel()
	raw, err := base64.RawURLEncoding.DecodeString(sessionSealed)
	require.NoError(t, err)
	for i := range raw {
		damaged := append([]byte(nil), raw...)
		damaged[i] ^= 1
		_, err := ours.openSession(base64.RawURLEncoding.EncodeToString(damaged))
		require.ErrorIs(t, err, errSeal, "byte %d changed", i)
	}
	for n := range len(sessionSealed) {
		_, err := ours.openSession(sessionSealed[:n])
		require.ErrorIs(t, err, errSeal, "cut after %d", n)
	}
}

// FuzzOpenSession looks for a token that opens and is not the one token that was sealed.
func FuzzOpenSession(f *testing.F) {
	sealed, err := base64.RawURLEncoding.DecodeString(sessionSealed)
	require.NoError(f, err)
	for _, seed := range []string{"", sessionSealed, attemptSealed, sessionSealed[:20], "e30"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := ours.openSession(token); err != nil {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		require.NoError(t, err)
		require.Equal(t, sealed, raw, "a token that was never sealed opened")
	})
}
