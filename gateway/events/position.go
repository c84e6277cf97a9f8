package events

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// positionWindow is how long a source stays in a position after its last event. The events of a source that is not
	// in it are older than this, so their time is enough to know them.
	positionWindow = time.Minute
	// maxPosition bounds a position in bytes; it travels in a header.
	maxPosition     = 16 << 10
	positionVersion = "1."
)

// position is how far a listener is in all sources: it has every event before that. Last-Event-ID carries it, so that
// any gateway can continue from there.
type position struct {
	at       time.Time
	clusters map[string]clusterMark
	hubs     map[string]hubMark
	tasks    time.Time // the listener has what visibility had by then
}

type clusterMark struct {
	created time.Time
	seq     int64
	at      time.Time // when it had an event last
}

type hubMark struct {
	process string
	seq     int64
	at      time.Time
}

// positionText is a position as it travels. Times are Unix milliseconds.
type positionText struct {
	At       int64               `json:"t"`
	Tasks    int64               `json:"v"`
	Clusters map[string][2]int64 `json:"c,omitempty"` // creation, number
	Hubs     map[string]hubText  `json:"h,omitempty"`
}

type hubText struct {
	Process string `json:"p"`
	Seq     int64  `json:"s"`
}

// String is the position for the wire.
func (p *position) String() string {
	text := positionText{At: p.at.UnixMilli(), Tasks: p.tasks.UnixMilli(), Clusters: map[string][2]int64{},
		Hubs: map[string]hubText{}}
	for name, m := range p.clusters {
		if p.at.Sub(m.at) < positionWindow {
			text.Clusters[name] = [2]int64{m.created.UnixMilli(), m.seq}
		}
	}
	for name, m := range p.hubs {
		if p.at.Sub(m.at) < positionWindow {
			text.Hubs[name] = hubText{m.process, m.seq}
		}
	}
	body, _ := json.Marshal(text) // plain: cannot fail
	return positionVersion + base64.RawURLEncoding.EncodeToString(body)
}

var errPosition = errors.New("is not the id of an event of this API")

// parsePosition reads what a listener sends back. It may be anything.
func parsePosition(s string) (position, error) {
	encoded, ok := strings.CutPrefix(s, positionVersion)
	if !ok || len(s) > maxPosition {
		return position{}, errPosition
	}
	body, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return position{}, errPosition
	}
	var text positionText
	if json.Unmarshal(body, &text) != nil || text.At <= 0 || text.Tasks <= 0 {
		return position{}, errPosition
	}
	p := position{at: time.UnixMilli(text.At), tasks: time.UnixMilli(text.Tasks), clusters: map[string]clusterMark{},
		hubs: map[string]hubMark{}}
	for name, m := range text.Clusters {
		if api.ValidateID("cluster", name) != nil || m[1] < 0 {
			return position{}, errPosition
		}
		p.clusters[name] = clusterMark{created: time.UnixMilli(m[0]), seq: m[1], at: p.at}
	}
	for name, m := range text.Hubs {
		if api.ValidateID("hub", name) != nil || m.Seq < 0 {
			return position{}, errPosition
		}
		p.hubs[name] = hubMark{process: m.Process, seq: m.Seq, at: p.at}
	}
	return p, nil
}

// from is since when events of a source that the position does not name are new.
func (p *position) from() time.Time { return p.at.Add(-positionWindow) }

// seal hides positions from listeners: a position names hubs and clusters and shows how busy they are, and a listener
// may be of one tenant. For the same reason it hides what event ids are made of. All gateways with the same key read
// each other's positions, and name events alike. Without a key both travel as they are.
type seal struct {
	cipher.AEAD
	key []byte
}

const sealedVersion = "2."

func newSeal(key []byte) seal {
	if len(key) == 0 {
		return seal{}
	}
	own := hmac.New(sha256.New, key)
	own.Write([]byte("event ids")) // the key is not only ours
	block, _ := aes.NewCipher(own.Sum(nil))
	aead, _ := cipher.NewGCM(block) // neither fails: the key's length is right
	return seal{aead, own.Sum(nil)}
}

func (s seal) close(position string) string {
	if s.AEAD == nil {
		return position
	}
	nonce := make([]byte, s.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return sealedVersion + base64.RawURLEncoding.EncodeToString(s.Seal(nonce, nonce, []byte(position), nil))
}

// name is the id of an event as listeners see it.
func (s seal) name(id string) string {
	if s.AEAD == nil {
		return id
	}
	sum := hmac.New(sha256.New, s.key)
	sum.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:18])
}

// open is the position that a listener sends back. A position that no gateway has sealed does not count: the feed asks
// each cluster that a position names, and the answers would reveal which clusters and hubs there are.
func (s seal) open(id string) string {
	if s.AEAD == nil {
		return id
	}
	encoded, sealed := strings.CutPrefix(id, sealedVersion)
	if !sealed || len(id) > 2*maxPosition {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(raw) < s.NonceSize() {
		return ""
	}
	position, err := s.Open(nil, raw[:s.NonceSize()], raw[s.NonceSize():], nil)
	if err != nil {
		return ""
	}
	return string(position)
}
