package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func digestOf(t *testing.T, spec TaskSpec) string {
	t.Helper()
	digest, err := spec.Digest()
	require.NoError(t, err)
	return digest
}

func TestDigestOfTheSameTask(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, pair := range map[string][2]TaskSpec{
		"defaults": {{}, {Priority: PriorityNormal, RetrySafety: Idempotent, Timeout: Duration(DefaultTaskTimeout),
			ExpiresIn: Duration(DefaultExpiration),
			Retry: RetryPolicy{MaxAttempts: 3, MaxTransfers: 3, InitialInterval: Duration(2 * time.Second),
				MaxInterval: Duration(5 * time.Minute)}}},
		"fields and blanks": {{Payload: json.RawMessage(`{"a":1,"b":[1, 2]}`)},
			{Payload: json.RawMessage(` {"b":[1,2], "a":1}`)}},
		"no payload": {{}, {Payload: json.RawMessage(`null`)}},
		"capabilities": {{RequiredCapabilities: []string{"gpu", "arm"}},
			{RequiredCapabilities: []string{"arm", "gpu", "arm"}}},
		"empty lists": {{PreferredCapabilities: []string{}, Labels: map[string]string{}}, {}},
		"times":       {{StartAt: at, ExpiresAt: at}, {StartAt: at.Add(time.Second), ExpiresAt: at.Add(time.Second)}},
	} {
		require.Equal(t, digestOf(t, pair[0]), digestOf(t, pair[1]), name)
	}
}

func TestDigestsOfDifferentTasks(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, spec := range []TaskSpec{
		{}, {Type: "x"}, {Cluster: "x"}, {Payload: json.RawMessage(`1`)}, {Payload: json.RawMessage(`1.0`)},
		{Payload: json.RawMessage(`12345678901234567890`)},
		{Payload: json.RawMessage(`12345678901234567891`)}, {Payload: json.RawMessage(`[1,2]`)},
		{Payload: json.RawMessage(`[2,1]`)}, {Priority: 1}, {Agent: "a"},
		{ShardKey: "a"}, {RequiredCapabilities: []string{"a"}}, {PreferredCapabilities: []string{"a"}}, {Affinity: "a"},
		{Retry: RetryPolicy{MaxAttempts: 1}},
		{Retry: RetryPolicy{NonRetryable: []string{"a"}}}, {RetrySafety: Fenced}, {Timeout: 1}, {ExpiresIn: 1},
		{BeaconTimeout: 1}, {Tenant: "a"},
		{Labels: map[string]string{"a": "1"}},
	} {
		digest := digestOf(t, spec)
		other, twice := seen[digest]
		require.False(t, twice, "%d and %d", other, i)
		seen[digest] = i
	}
	_, err := (&TaskSpec{Payload: json.RawMessage(`{`)}).Digest()
	require.Error(t, err)
}

// TestCanonicalJSONIsWhatTheParserAndTheWriterMake compares the digests' text with what encoding/json makes.
func TestCanonicalJSONIsWhatTheParserAndTheWriterMake(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `7`, `"<a&\u00e9\u2028\ud800>"`,
		` { "b" : [ 1.0 , 1e5, -0, {"z":null,"a":true} ] , "a" : {} , "b" : [2,{}]} `,
		`{"<":1,"\u003c":2,"é":3,"":4}`, `[[[]],[{}],"",false]`, `123456789012345678901234567890`, `"\ufffd"`,
	} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		var value any
		require.NoError(t, decoder.Decode(&value))
		want, err := json.Marshal(value)
		require.NoError(t, err)
		got, err := canonicalJSON([]byte(text))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), text)
	}
	for _, text := range []string{`[1`, `{"a"}`, `{"a":}`, `]`, `{"a":1`} {
		_, err := canonicalJSON([]byte(text))
		require.Error(t, err, text)
	}
}
