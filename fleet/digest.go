package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Digest tells two submissions apart that claim to be the same task. What means the same gives the same digest: a
// default that is written out, the order of capabilities and of a payload's fields, blanks.
func (s TaskSpec) Digest() (string, error) {
	payload, err := canonicalJSON(s.Payload)
	if err != nil {
		return "", fmt.Errorf("read the payload: %w", err)
	}
	s.Payload = payload
	s.Priority = s.Priority.OrDefault()
	s.RetrySafety = s.Safety()
	s.StartAt = s.StartAt.UTC()
	s.Timeout = Duration(s.Timeout.Or(DefaultTaskTimeout))
	s.ExpiresIn = Duration(s.ExpiresIn.Or(DefaultExpiration))
	s.Retry = s.Retry.withDefaults()
	s.RequiredCapabilities, s.PreferredCapabilities = set(s.RequiredCapabilities), set(s.PreferredCapabilities)
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the task: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// withDefaults fills what was left out.
func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.MaxTransfers == 0 {
		p.MaxTransfers = DefaultMaxTransfers
	}
	p.InitialInterval = Duration(p.InitialInterval.Or(DefaultInitialInterval))
	p.MaxInterval = Duration(p.MaxInterval.Or(DefaultMaxInterval))
	p.NonRetryable = set(p.NonRetryable)
	return p
}

// set sorts a list and drops what it repeats.
func set(list []string) []string {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// canonicalJSON sorts the fields of objects and drops blanks. Numbers keep their digits.
func canonicalJSON(data json.RawMessage) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if value == nil {
		return nil, nil // null is no payload
	}
	return json.Marshal(value)
}
