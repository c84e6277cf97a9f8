package events

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// seal hides positions from listeners, because one names hubs and clusters and how busy they are, and a listener may be
// of one tenant. It hides what the ids of events are made of for the same reason. All gateways with the same key read
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

// open is the position that a listener sends back. What was not sealed, as by an older gateway, it leaves as it is.
func (s seal) open(id string) string {
	encoded, sealed := strings.CutPrefix(id, sealedVersion)
	if !sealed || s.AEAD == nil || len(id) > 2*maxPosition {
		return id
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(raw) < s.NonceSize() {
		return id
	}
	position, err := s.Open(nil, raw[:s.NonceSize()], raw[s.NonceSize():], nil)
	if err != nil {
		return id
	}
	return string(position)
}
