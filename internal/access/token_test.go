package access_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/sdk/api"
)

// mint makes a token of bytes that count up from seed.
func mint(kind api.TokenKind, seed byte) (string, access.Record) {
	var random [access.RandomBytes]byte
	for i := range random {
		random[i] = seed + byte(i)
	}
	return access.Mint(kind, random)
}

func TestTokensHaveTheirFormAndOnlyTheirHashIsKept(t *testing.T) {
	t.Parallel()
	for kind, prefix := range map[api.TokenKind]string{api.TokenAPI: "mst_", api.TokenJoin: "msj_"} {
		token, record := mint(kind, 7)
		require.True(t, strings.HasPrefix(token, prefix+record.ID+"_"))
		gotKind, id, ok := access.TokenID(token)
		require.True(t, ok)
		require.Equal(t, kind, gotKind)
		require.Equal(t, record.ID, id)
		require.True(t, record.Hash.Matches(token))
		other, otherRecord := mint(kind, 8)
		require.False(t, record.Hash.Matches(other))
		require.NotEqual(t, record.ID, otherRecord.ID)
		secret := token[strings.LastIndexByte(token, '_')+1:]
		require.NotContains(t, string(record.Hash)+record.ID, secret[:16], "the secret is nowhere in what is kept")
	}
}

// TestSealHoldsAllThatATokenIsGoodFor changes each field of a sealed record.
func TestSealHoldsAllThatATokenIsGoodFor(t *testing.T) {
	t.Parallel()
	key := []byte("a key")
	_, record := mint(api.TokenAPI, 1)
	record.Name, record.Role, record.Tenant = "ci", api.RoleOperator, "acme"
	record.CreatedAt = time.Date(2026, time.November, 22, 1, 2, 3, 0, time.UTC)
	record.Seal = record.SealWith(key)
	require.True(t, record.SealedWith(key))
	require.False(t, record.SealedWith([]byte("another key")))
	require.False(t, record.SealedWith(nil))
	text, err := json.Marshal(record)
	require.NoError(t, err)
	var kept access.Record
	require.NoError(t, json.Unmarshal(text, &kept))
	require.True(t, kept.SealedWith(key), "as Temporal keeps it")
	for name, change := range map[string]func(*access.Record){
		"id":      func(r *access.Record) { r.ID = "0123456789ab" },
		"name":    func(r *access.Record) { r.Name = "ops" },
		"kind":    func(r *access.Record) { r.Kind = api.TokenJoin },
		"hash":    func(r *access.Record) { r.Hash = access.HashOf("another") },
		"role":    func(r *access.Record) { r.Role = api.RoleAdmin },
		"tenant":  func(r *access.Record) { r.Tenant = "" },
		"cluster": func(r *access.Record) { r.Cluster = "build" },
		"agent":   func(r *access.Record) { r.AgentID = "a-1" },
		"made":    func(r *access.Record) { r.CreatedAt = r.CreatedAt.Add(time.Second) },
		"expiry":  func(r *access.Record) { r.ExpiresAt = r.CreatedAt.Add(time.Hour) },
		"uses":    func(r *access.Record) { r.MaxUses = 1 },
		"seal":    func(r *access.Record) { r.Seal = "" },
	} {
		changed := record
		change(&changed)
		require.False(t, changed.SealedWith(key), name)
	}
}

func TestWhatIsNoToken(t *testing.T) {
	t.Parallel()
	good, _ := mint(api.TokenAPI, 1)
	for name, token := range map[string]string{
		"empty": "", "prefix alone": "mst_", "another prefix": "mtt" + good[3:], "too short": good[:len(good)-1],
		"too long": good + "0",
		"capitals": strings.ToUpper(good), "no separator": strings.Replace(good, "_", "-", 2),
		"blank":               good[:20] + " " + good[21:],
		"separator elsewhere": good[:15] + "_" + good[15:16] + good[17:],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, ok := access.TokenID(token)
			require.False(t, ok, "%q", token)
		})
	}
}

// FuzzTokenID holds whatever is sent as a token to this: it is refused, or it has exactly the form of one, and its hash
// matches it alone.
func FuzzTokenID(f *testing.F) {
	good, record := mint(api.TokenAPI, 3)
	join, _ := mint(api.TokenJoin, 4)
	for _, seed := range []string{"", good, join, good + "x", "mst__", strings.Repeat("_", 81), "msj_\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		kind, id, ok := access.TokenID(token)
		if token != good && record.Hash.Matches(token) {
			t.Fatalf("%q matches another token's hash", token)
		}
		if !ok {
			if kind == "" != (id == "") && id != "" {
				t.Fatal("a refused token has an id")
			}
			return
		}
		prefix := map[api.TokenKind]string{api.TokenAPI: "mst_", api.TokenJoin: "msj_"}[kind]
		if prefix == "" || !strings.HasPrefix(token, prefix+id+"_") || len(token) != len(good) {
			t.Fatalf("%q is taken for a token with id %q", token, id)
		}
		if !access.HashOf(token).Matches(token) {
			t.Fatal("a token does not match its own hash")
		}
	})
}

func TestValidateRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		record access.Record
		field  string
	}{
		"viewer":                 {access.Record{Kind: api.TokenAPI, Role: api.RoleViewer}, ""},
		"operator of a tenant":   {access.Record{Kind: api.TokenAPI, Role: api.RoleOperator, Tenant: "acme"}, ""},
		"admin":                  {access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin}, ""},
		"admin of a tenant":      {access.Record{Kind: api.TokenAPI, Role: api.RoleAdmin, Tenant: "acme"}, "tenant"},
		"no role":                {access.Record{Kind: api.TokenAPI}, "role"},
		"made-up role":           {access.Record{Kind: api.TokenAPI, Role: "root"}, "role"},
		"api token of a cluster": {access.Record{Kind: api.TokenAPI, Role: api.RoleViewer, Cluster: "c"}, "cluster"},
		"join":                   {access.Record{Kind: api.TokenJoin, Cluster: "c", AgentID: "a"}, ""},
		"join without cluster":   {access.Record{Kind: api.TokenJoin}, "cluster"},
		"join with a role":       {access.Record{Kind: api.TokenJoin, Cluster: "c", Role: api.RoleViewer}, "role"},
		"no kind":                {access.Record{Role: api.RoleViewer}, "kind"},
		"over before it began": {access.Record{Kind: api.TokenAPI, Role: api.RoleViewer, CreatedAt: now,
			ExpiresAt: now}, "expires_in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			field, err := c.record.Validate()
			require.Equal(t, c.field, field)
			require.Equal(t, c.field != "", err != nil)
		})
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	never, r := access.Record{}, access.Record{ExpiresAt: at}
	require.False(t, never.Expired(at.AddDate(100, 0, 0)))
	require.False(t, r.Expired(at.Add(-1)))
	require.True(t, r.Expired(at))
}

func TestASecretIsNotShownWhereAnIDBelongs(t *testing.T) {
	t.Parallel()
	for _, kind := range []api.TokenKind{api.TokenAPI, api.TokenJoin} {
		token, record := access.Mint(kind, [access.RandomBytes]byte{1, 2, 3})
		targets := access.NewTargets(map[string]string{"id": token, "task": "t-1"})
		require.Equal(t, map[string]string{"id": token[:4] + record.ID + "_…", "task": "t-1"}, targets.Names())
		require.True(t, access.Kept(record.ID))
	}
	whole, _ := mint(api.TokenAPI, 7)
	for name, c := range map[string]struct{ sent, shown string }{
		"an id":              {"0123456789ab", "0123456789ab"},
		"a task's id":        {"mst_deploy", "mst_deploy"},
		"one that is quoted": {`"` + whole + `"`, `"` + whole[:17] + "…"},
		"with a header":      {"Bearer " + whole, "Bearer " + whole[:17] + "…"},
		"with a letter more": {whole + "x", whole[:17] + "…"},
		"cut short":          {whole[:60], whole[:17] + "…"},
		"with a letter lost": {whole[:9] + whole[10:], whole[:9] + whole[10:18] + "…"},
		"in capitals inside": {whole[:20] + strings.ToUpper(whole[20:]), whole[:17] + "…"},
		"two at once":        {whole + "," + whole, whole[:17] + "…"},
		"a spawner's":        {"mss_eyJpZCI6IjAxMjM.c2VhbA", "mss_eyJpZCI6IjAxM…"},
	} {
		require.Equal(t, c.shown, access.Redact(c.sent), name)
	}
	for _, id := range []string{"", "first-join", "first-admin", "0123456789AB", "0123456789abc"} {
		require.False(t, access.Kept(id))
	}
}
