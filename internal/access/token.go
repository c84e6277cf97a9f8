package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

// A token is "mst_" or "msj_", its id, "_" and its secret, so that a person sees what it is and a scanner for leaked
// secrets finds it.
const (
	apiPrefix  = "mst_"
	joinPrefix = "msj_"
	// idBytes and secretBytes are how many random bytes id and secret have; both are written in hex.
	idBytes     = 6
	secretBytes = 32
	// RandomBytes is how many random bytes a token is made of.
	RandomBytes = idBytes + secretBytes
	// MinPlainToken is how many characters a token must have that was not made here, as the first admin token.
	MinPlainToken = 32
	// MaxToken is how many characters are looked at at all.
	MaxToken = 512
)

// Record is a token as it is kept: its secret is not in it.
type Record struct {
	ID   string        `json:"id"`
	Name string        `json:"name"`
	Kind api.TokenKind `json:"kind"`
	// Hash is the hash of the whole token.
	Hash      Hash           `json:"hash"`
	Role      api.AccessRole `json:"role,omitempty"`
	Tenant    string         `json:"tenant,omitempty"`
	Cluster   string         `json:"cluster,omitempty"`
	AgentID   string         `json:"agent_id,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	CreatedBy string         `json:"created_by,omitempty"`
	// CreatedByID is the id of the token, or the certificate's subject, that made it. Names can be reused, ids not.
	CreatedByID string `json:"created_by_id,omitempty"`
	// Ancestors are the token that made it, the one that made that, and so on, once the first of them is gone.
	Ancestors []string  `json:"ancestors,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// MaxUses is how many agents may join with a join token; 0: any number. Its cluster counts them.
	MaxUses int `json:"max_uses,omitempty"`
	// Seal shows that a gateway with the installation's key has made the record, so that writing to Temporal alone
	// makes no token.
	Seal string `json:"seal,omitempty"`
}

// SealWith is the seal of what the token is good for, under the installation's key.
func (r *Record) SealWith(key []byte) string {
	seconds := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.Unix()
	}
	text, _ := json.Marshal([]any{ // plain values: cannot fail
		"token", r.ID, r.Name, r.Kind, r.Hash, r.Role, r.Tenant, r.Cluster, r.AgentID,
		seconds(r.CreatedAt), seconds(r.ExpiresAt), r.MaxUses, r.CreatedByID,
	})
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// SealedWith reports whether the record's seal is good under a key. None is under an empty one.
func (r *Record) SealedWith(key []byte) bool {
	return len(key) > 0 && hmac.Equal([]byte(r.Seal), []byte(r.SealWith(key)))
}

// Hash is the SHA-256 of a token in hex. The secret has 256 random bits, so nobody finds it by trying: a slow hash, as
// for passwords, would only make each request slower.
type Hash string

// HashOf hashes a token.
func HashOf(token string) Hash {
	sum := sha256.Sum256([]byte(token))
	return Hash(hex.EncodeToString(sum[:]))
}

// Matches compares in constant time, so the time taken does not reveal where the two differ.
func (h Hash) Matches(token string) bool {
	other := HashOf(token)
	return subtle.ConstantTimeCompare([]byte(h), []byte(other)) == 1
}

// Mint makes a token and its record of random bytes: the first make the id, the rest the secret.
func Mint(kind api.TokenKind, random [RandomBytes]byte) (token string, r Record) {
	prefix := apiPrefix
	if kind == api.TokenJoin {
		prefix = joinPrefix
	}
	id := hex.EncodeToString(random[:idBytes])
	token = prefix + id + "_" + hex.EncodeToString(random[idBytes:])
	return token, Record{ID: id, Kind: kind, Hash: HashOf(token)}
}

// TokenID reads the id out of a token of our form.
func TokenID(token string) (kind api.TokenKind, id string, ok bool) {
	rest, isAPI := strings.CutPrefix(token, apiPrefix)
	kind = api.TokenAPI
	if !isAPI {
		if rest, ok = strings.CutPrefix(token, joinPrefix); !ok {
			return "", "", false
		}
		kind = api.TokenJoin
	}
	if len(rest) != 2*idBytes+1+2*secretBytes || rest[2*idBytes] != '_' {
		return "", "", false
	}
	id, secret := rest[:2*idBytes], rest[2*idBytes+1:]
	if !lowerHex(id) || !lowerHex(secret) {
		return "", "", false
	}
	return kind, id, true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Expired reports whether the token's time is over.
func (r *Record) Expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// Identity is who shows the token.
func (r *Record) Identity() Identity {
	id := Identity{Kind: api.IdentityToken, ID: r.ID, Name: r.Name, Role: r.Role, Tenant: r.Tenant}
	if r.Kind == api.TokenJoin {
		id = Identity{Kind: api.IdentityJoin, ID: r.ID, Name: r.Name, Cluster: r.Cluster, AgentID: r.AgentID,
			Joins:   true,
			MaxUses: r.MaxUses, ExpiresAt: r.ExpiresAt}
	}
	return id
}

// Kept reports whether an id is of a stored token, which can be revoked, and not of one known beforehand.
func Kept(id string) bool { return len(id) == 2*idBytes && lowerHex(id) }

// Redact removes the secret from a text that may be a token, whole or damaged, sent where its id belongs: of anything
// that begins as a token does, it keeps only as much as an id takes.
func Redact(text string) string {
	for _, prefix := range []string{apiPrefix, joinPrefix, spawnPrefix} {
		at := strings.Index(text, prefix)
		if end := at + len(prefix) + 2*idBytes + 1; at >= 0 && len(text) > end {
			text = text[:end] + "…"
		}
	}
	return text
}

// Line lists the id of a token, of the token that made it, and so on, whether they are stored or gone.
func Line(tokens []Record, id string) (line []string) {
	for !slices.Contains(line, id) {
		i := slices.IndexFunc(tokens, func(t Record) bool { return t.ID == id })
		if i < 0 {
			break
		}
		line, id = append(line, id), tokens[i].CreatedByID
		if gone := tokens[i].Ancestors; len(gone) > 0 {
			return append(line, gone...)
		}
	}
	return line
}

// Descendants are the tokens that a token has made, those that these have made, and so on. It may be gone itself, as
// may those between.
func Descendants(tokens []Record, id string) []Record {
	var found []Record
	made := map[string]bool{id: true}
	for again := true; again; {
		again = false
		for i := range tokens {
			t := &tokens[i]
			ours := made[t.CreatedByID] || slices.ContainsFunc(t.Ancestors, func(id string) bool { return made[id] })
			if ours && !made[t.ID] {
				made[t.ID], again = true, true
				found = append(found, *t)
			}
		}
	}
	return found
}

// MaxTokens is how many tokens an installation keeps.
const MaxTokens = 500

// MaxAncestors is how many ancestors all tokens together may have. A token's go with it.
const MaxAncestors = 10_000

// Validate checks the rights that a token is to have. Names and ids are checked by their own rules before. The field is
// where the mistake is.
func (r *Record) Validate() (field string, err error) {
	wrong := func(field, what string) (string, error) { return field, errors.New(what) }
	switch r.Kind {
	case api.TokenAPI:
		switch {
		case r.Role.Rank() == 0:
			return wrong("role", "an api token needs a role: viewer, operator or admin")
		case r.Role == api.RoleAdmin && r.Tenant != "":
			return wrong("tenant", "an admin token is of no tenant: clusters and tokens are everybody's")
		case r.MaxUses != 0:
			return wrong("max_uses", "is for join tokens; an api token's requests are bounded by the rate limit")
		case r.Cluster != "" || r.AgentID != "":
			return wrong("cluster", "cluster and agent_id are for join tokens")
		}
	case api.TokenJoin:
		switch {
		case r.Cluster == "":
			return wrong("cluster", "a join token needs the cluster that its agents may join")
		case r.Role != "" || r.Tenant != "":
			return wrong("role", "a join token has neither role nor tenant: it only lets agents register")
		case r.MaxUses < 0:
			return wrong("max_uses", "must not be negative; 0: no limit")
		}
	default:
		return wrong("kind", "the kind must be api or join")
	}
	if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(r.CreatedAt) {
		return wrong("expires_in", "a token must live for some time")
	}
	return "", nil
}

// spawnPrefix begins a token that a spawner made for one agent.
const spawnPrefix = "mss_"

// spawnClaims are the contents of a spawn token.
type spawnClaims struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Agent   string `json:"agent"`
	Until   int64  `json:"until"` // Unix seconds
}

// MintSpawn makes a join token with which one agent of one cluster can register until a time. It is kept nowhere: the
// seal under the installation's key is its proof. Only the first bytes of random are used, for its id.
func MintSpawn(key []byte, random [RandomBytes]byte, cluster, agent string, until time.Time) string {
	text, _ := json.Marshal(spawnClaims{hex.EncodeToString(random[:idBytes]), cluster, agent, until.Unix()})
	claims := base64.RawURLEncoding.EncodeToString(text) // plain values: cannot fail
	return spawnPrefix + claims + "." + spawnSeal(key, claims)
}

func spawnSeal(key []byte, claims string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("spawn token\x00" + claims))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// OpenSpawn returns the record in a spawn token; ok is false when the token has another form or seal. The caller checks
// whether it has expired.
func OpenSpawn(key []byte, token string) (r Record, ok bool) {
	rest, ok := strings.CutPrefix(token, spawnPrefix)
	claims, seal, both := strings.Cut(rest, ".")
	if !ok || !both || len(key) == 0 || !hmac.Equal([]byte(seal), []byte(spawnSeal(key, claims))) {
		return Record{}, false
	}
	var c spawnClaims
	text, err := base64.RawURLEncoding.DecodeString(claims)
	if err != nil || json.Unmarshal(text, &c) != nil {
		return Record{}, false
	}
	return Record{ID: c.ID, Name: "spawned " + c.Agent, Kind: api.TokenJoin, Cluster: c.Cluster, AgentID: c.Agent,
		ExpiresAt: time.Unix(c.Until, 0)}, true
}
