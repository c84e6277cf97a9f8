package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
)

func TestATokenOfASpawnIsForOneAgent(t *testing.T) {
	t.Parallel()
	key, until := []byte("the key of the installation"), time.Unix(2_000_000_000, 0)
	token := access.MintSpawn(key, [access.RandomBytes]byte{1, 2, 3}, "builders", "builders-1", until)
	require.LessOrEqual(t, len(token), access.MaxToken)
	require.True(t, strings.HasPrefix(token, "mss_"))
	require.Equal(t, token[:17]+"…", access.Redact(token), "the seal is its secret")
	record, ok := access.OpenSpawn(key, token)
	require.True(t, ok)
	require.True(t, record.Expired(until))
	require.False(t, record.Expired(until.Add(-time.Second)))
	who := record.Identity()
	require.True(t, access.Kept(who.ID), "sessions that it opened can resume")
	require.True(t, who.MayJoin("builders", "builders-1"))
	require.False(t, who.MayJoin("builders", "builders-2"))
	require.False(t, who.MayJoin("other", "builders-1"))

	claims, seal, _ := strings.Cut(token, ".")
	other := access.MintSpawn(key, [access.RandomBytes]byte{}, "builders", "builders-2", until)
	_, otherSeal, _ := strings.Cut(other, ".")
	for name, wrong := range map[string]string{
		"the seal of another": claims + "." + otherSeal, "no seal": claims, "an empty seal": claims + ".",
		"no claims": "mss_." + seal, "another prefix": "msj_" + strings.TrimPrefix(token, "mss_"), "nothing": "",
	} {
		_, ok := access.OpenSpawn(key, wrong)
		require.False(t, ok, name)
	}
	_, ok = access.OpenSpawn([]byte("another key"), token)
	require.False(t, ok)
	empty := access.MintSpawn(nil, [access.RandomBytes]byte{}, "builders", "builders-1", until)
	_, ok = access.OpenSpawn(nil, empty)
	require.False(t, ok, "without a key no seal is good")
}
