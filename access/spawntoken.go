package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// spawnPrefix begins a token that a spawner made for one agent.
const spawnPrefix = "mss_"

// spawnClaims are what such a token says.
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

// OpenSpawn returns the record that such a token stands for; ok is false when it has another form or seal. The caller
// checks whether it has expired.
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
	return Record{ID: c.ID, Name: "spawned " + c.Agent, Kind: JoinToken, Cluster: c.Cluster, AgentID: c.Agent,
		ExpiresAt: time.Unix(c.Until, 0)}, true
}
