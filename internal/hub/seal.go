package hub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// sealer makes tokens that only holders of the key can make: base64url(json ‖ HMAC-SHA256(purpose ‖ json)).
type sealer struct{ key []byte }

var errSeal = errors.New("the token is missing, forged or damaged")

// sessionClaims identify one session at one hub. Token is the id of the join token that opened it; empty for one that
// is not stored.
type sessionClaims struct {
	Hub      string `json:"h"`
	Agent    string `json:"a"`
	Cluster  string `json:"c"`
	Instance string `json:"i"`
	Epoch    int64  `json:"e"`
	Token    string `json:"t,omitempty"`
}

// of reports whether the session belongs to the process that registers.
func (c *sessionClaims) of(reg *protocol.Register) bool {
	return c.Agent == reg.AgentID && c.Cluster == reg.Cluster && c.Instance == reg.InstanceID
}

// attemptClaims identify one attempt in one session. Temporal is the activity's task token.
type attemptClaims struct {
	Task     string `json:"t"`
	Attempt  int    `json:"n"`
	Agent    string `json:"a"`
	Instance string `json:"i"`
	Epoch    int64  `json:"e"`
	Lane     string `json:"l"`
	Temporal []byte `json:"k"`
	// Beacon is the task's beacon timeout, for a hub that takes the attempt over.
	Beacon api.Duration `json:"b,omitempty"`
	// Type and Tenant are the task's, for events.
	Type   string `json:"y,omitempty"`
	Tenant string `json:"f,omitempty"`
	// Elements are the numbers of a bundle's elements: its result may have no others. One alone is a delivery of that
	// element.
	Elements []int `json:"s,omitempty"`
	// JobInstance is set of an instance of a job, for a hub that takes it over.
	JobInstance *api.InstanceOf `json:"j,omitempty"`
	// Allocation has the resources that the attempt got from its agent, for a hub that takes the attempt over.
	Allocation *api.Allocation `json:"o,omitempty"`
	// ResultLimit is how many bytes its result may have, or those of a bundle together; 0: api.MaxPayloadBytes.
	ResultLimit int `json:"r,omitempty"`
	// StopGrace is how long its work has to end once it was asked to.
	StopGrace api.Duration `json:"g,omitempty"`
	// Grace is how long its agent may be out of touch. Fenced: the agent stops it when its lease ends.
	Grace  api.Duration `json:"d,omitempty"`
	Fenced bool         `json:"w,omitempty"`
	// Person: when it is lost, a person decides.
	Person bool `json:"q,omitempty"`
}

func (c *attemptClaims) key() attemptKey { return attemptKey{c.Task, c.Attempt} }

// logLimit bounds the attempt's log, in bytes of JSON.
func (c *attemptClaims) logLimit() int {
	if len(c.Elements) == 0 || c.ResultLimit == 0 {
		return contract.LogLimit
	}
	return contract.ElementLogLimit(c.ResultLimit)
}

// SessionsOf checks session tokens made with a key: it returns the token's agent and its cluster, and whether the token
// is good. It has no state and does no I/O, so a server can call it before it reads a request's body.
func SessionsOf(key []byte) func(token string) (agent, cluster string, good bool) {
	seal := sealer{key: key}
	return func(token string) (agent, cluster string, good bool) {
		claims, err := seal.openSession(token)
		return claims.Agent, claims.Cluster, err == nil
	}
}

func (s sealer) session(c sessionClaims) string { return s.sealJSON("session", c) }
func (s sealer) attempt(c attemptClaims) string { return s.sealJSON("attempt", c) }

func (s sealer) openSession(token string) (c sessionClaims, err error) {
	err = s.open("session", token, &c)
	return c, err
}

func (s sealer) openAttempt(token string) (c attemptClaims, err error) {
	err = s.open("attempt", token, &c)
	return c, err
}

func (s sealer) sealJSON(purpose string, claims any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		//nolint:forbidigo // plain structs: cannot happen
		panic(fmt.Sprintf("hub: claims of a %s token cannot be encoded: %v", purpose, err))
	}
	return base64.RawURLEncoding.EncodeToString(append(body, s.mac(purpose, body)...))
}

func (s sealer) open(purpose, token string, claims any) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) <= sha256.Size {
		return errSeal
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if !hmac.Equal(mac, s.mac(purpose, body)) {
		return errSeal
	}
	if json.Unmarshal(body, claims) != nil {
		return errSeal
	}
	return nil
}

func (s sealer) mac(purpose string, body []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write(body)
	return h.Sum(nil)
}
