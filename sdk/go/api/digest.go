package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Digest distinguishes submissions with the same id or key. Submissions with the same meaning have the same digest:
// written-out defaults, blanks, times of start and expiry, and the order of capabilities and of a payload's fields make
// no difference.
func (s TaskSpec) Digest() (string, error) {
	payload, err := canonicalJSON(s.Payload)
	if err != nil {
		return "", fmt.Errorf("read the payload: %w", err)
	}
	s.Payload = payload
	s.Priority = s.Priority.OrDefault()
	s.RetrySafety = s.Safety()
	s.StartAt, s.ExpiresAt = time.Time{}, time.Time{} // a command that says +2h names another time when it is repeated
	s.Timeout = Duration(s.AttemptTimeout())
	s.ExpiresIn = Duration(s.Expiration())
	s.Recovery = s.EffectiveRecovery()
	s.Retry = s.Retry.withDefaults()
	s.RequiredCapabilities = SortedSet(s.RequiredCapabilities)
	s.PreferredCapabilities = SortedSet(s.PreferredCapabilities)
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the task: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// JSONDigest is the SHA-256 of JSON in canonical form; if data is no JSON, of its bytes.
func JSONDigest(data json.RawMessage) string {
	if text, err := canonicalJSON(data); err == nil {
		data = text
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withDefaults fills what was left out.
func (p RetryPolicy) withDefaults() RetryPolicy {
	defaultTo(&p.MaxAttempts, DefaultMaxAttempts)
	defaultTo(&p.MaxTransfers, DefaultMaxTransfers)
	defaultTo(&p.InitialInterval, Duration(DefaultInitialInterval))
	defaultTo(&p.MaxInterval, Duration(DefaultMaxInterval))
	p.NonRetryable = SortedSet(p.NonRetryable)
	return p
}

// canonicalJSON sorts the fields of objects and drops blanks. Numbers keep their digits.
func canonicalJSON(data json.RawMessage) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	text, err := appendCanonical(nil, decoder)
	if err != nil {
		return nil, err
	}
	if string(text) == "null" {
		return nil, nil // null is no payload
	}
	return text, nil
}

// appendCanonical appends the decoder's next value to text, as json.Marshal would write it. It builds no values, which
// may take many times the memory of their text.
func appendCanonical(text []byte, decoder *json.Decoder) ([]byte, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		text = append(text, '[')
		for i := 0; decoder.More(); i++ {
			if i > 0 {
				text = append(text, ',')
			}
			if text, err = appendCanonical(text, decoder); err != nil {
				return nil, err
			}
		}
		_, err = decoder.Token()
		return append(text, ']'), err
	case json.Delim('{'):
		return appendCanonicalObject(text, decoder)
	}
	plain, err := json.Marshal(token)
	return append(text, plain...), err
}

func appendCanonicalObject(text []byte, decoder *json.Decoder) ([]byte, error) {
	var members map[string][]byte
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		value, err := appendCanonical(nil, decoder)
		if err != nil {
			return nil, err
		}
		if members == nil {
			members = map[string][]byte{}
		}
		name, _ := key.(string)
		members[name] = value
	}
	text = append(text, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			text = append(text, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		text = append(append(append(text, key...), ':'), members[name]...)
	}
	_, err := decoder.Token()
	return append(text, '}'), err
}
