package mesh_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

func structured(attributes map[string]string, body string) *api.Envelope {
	return &api.Envelope{Attributes: attributes, Body: []byte(body)}
}

// One event is the same in each mode, however it is written; another is not.
func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(e *api.Envelope) string {
		text, err := mesh.DigestOf(e)
		require.NoError(t, err)
		return text
	}
	own := func(more ...string) map[string]string {
		all := map[string]string{"id": "1", "source": "/s", "type": "t"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	first := digest(structured(own(), `{"id":"1","data":{"a":1,"b":[2]}}`))
	for name, e := range map[string]*api.Envelope{
		"spaces":    structured(own(), `{"data": {"b": [2], "a": 1}, "id": "1"}`),
		"binary":    {Attributes: own("datacontenttype", "application/json"), Headers: map[string]string{"Ce-Id": "1"}, Body: []byte(`{"a":1,"b":[2]}`)},
		"base64":    structured(own(), `{"data_base64":"eyJhIjoxLCJiIjpbMl19"}`),
		"the trace": structured(own("traceparent", "00-1-2-01"), `{"data":{"a":1,"b":[2]}}`),
	} {
		require.Equal(t, first, digest(e), name)
	}
	for name, e := range map[string]*api.Envelope{
		"data":      structured(own(), `{"data":{"a":1.0,"b":[2]}}`),
		"no data":   structured(own(), `{}`),
		"subject":   structured(own("subject", "x"), `{"data":{"a":1,"b":[2]}}`),
		"extension": structured(own("region", "x"), `{"data":{"a":1,"b":[2]}}`),
	} {
		require.NotEqual(t, first, digest(e), name)
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	e := structured(map[string]string{"id": "1", "source": "/s", "type": "t"},
		`{"data":{"tenantId":"acme","correlationId":"c-1"}}`)
	mesh.Complete(e)
	require.Equal(t, "acme", e.Tenant())
	require.Equal(t, "c-1", e.Attr(api.AttrCorrelation))
	require.NoError(t, e.Validate())
	sum := sha256.Sum256([]byte("/s\x001"))
	require.Equal(t, "acme:"+hex.EncodeToString(sum[:16]), mesh.InboundID(e))
	require.Equal(t, map[string]string{"x": "y", "event": mesh.InboundID(e), "correlation_id": "c-1"},
		mesh.LabelOf(e, map[string]string{"x": "y"}))
	e.Attributes["tenant"] = "Not A Tenant"
	require.Error(t, e.Validate())
	require.ErrorIs(t, mesh.AssertTenant("acme", "beta"), mesh.ErrTenant)
	require.NoError(t, mesh.AssertTenant("acme", "acme"))

	binary := &api.Envelope{Headers: map[string]string{"Ce-Id": "1"}, Body: []byte("\x00\x01")}
	require.Nil(t, mesh.DataOf(binary), "other data than JSON")
}

func TestAssignments(t *testing.T) {
	t.Parallel()
	e := structured(map[string]string{"id": "1", "source": "/s", "type": "t", "tenant": "acme"}, `{}`)
	for name, c := range map[string]struct{ data, id, problem string }{
		"its id":                   {`{"id":"x","type":"exec","cluster":"c"}`, "acme:x", ""},
		"the other name":           {`{"taskId":"x","type":"exec","cluster":"c"}`, "acme:x", ""},
		"without an id":            {`{"type":"exec","cluster":"c"}`, "acme:e-" + mesh.InboundID(e)[len("acme:"):], ""},
		"the names of senders":     {`{"taskId":"x","type":"exec","cluster":"c","tenantId":"acme","eventId":"1","correlationId":"k"}`, "acme:x", ""},
		"another tenant's":         {`{"type":"exec","cluster":"c","tenant":"beta"}`, "", "tenant_mismatch"},
		"another sender's":         {`{"type":"exec","cluster":"c","tenantId":"beta"}`, "", "tenant_mismatch"},
		"an id of another tenant":  {`{"id":"beta:x","type":"exec","cluster":"c"}`, "", "tenant_mismatch"},
		"no task":                  {`[1]`, "", "no task"},
		"nothing":                  {``, "", "no task"},
		"a task without a cluster": {`{"type":"exec"}`, "", "cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, spec, err := mesh.ReadAssignment(e, json.RawMessage(c.data))
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.id, id)
			require.True(t, api.IsTaskID(id))
			require.Equal(t, "acme", spec.Tenant)
			require.Equal(t, mesh.InboundID(e), spec.Labels["event"])
		})
	}
}

// A task never loses what its sender asked for, so that work that may not run twice does not become idempotent.
func TestNoFieldOfAnAssignmentIsLost(t *testing.T) {
	t.Parallel()
	e := structured(map[string]string{"id": "1", "source": "/s", "type": "t"}, `{}`)
	for fields, want := range map[string]string{
		`"retrySafety":"at_most_once"`:                                     `"retry_safety":"at_most_once"`,
		`"retry":{"maxAttempts":1},"beaconTimeout":"9s"`:                   `"retry":{"max_attempts":1},"beacon_timeout":"9s"`,
		`"recovery":{"restart":{"delayFunction":"constant","attempts":1}}`: `"recovery":{"restart":{"delay_function":"constant","attempts":1}}`,
		`"recovery":"manual_recover","agentId":"a"`:                        `"recovery":"manual_recover","agent":"a"`,
		`"place":{"ports":{"httpPort":{"static":80}}}`:                     `"place":{"ports":{"httpPort":{"static":80}}}`,
		`"payload":{"retrySafty":1,"aB":[{"cD":1}]},"labels":{"aB":"x"}`:   `"payload":{"retrySafty":1,"aB":[{"cD":1}]},"labels":{"aB":"x"}`,
		`"retry_safe":"at_most_once"`:                                      "retry_safe is no field of a task",
		`"Retry-Safety":"at_most_once"`:                                    "is no field of a task",
		`"retry.max_attempts":1`:                                           "retry.max_attempts is no field of a task",
		`"timeout[0]":"1s"`:                                                "is no field of a task",
		`"maxCorrectionAttempts":2`:                                        "maxCorrectionAttempts is no field of a task",
		`"retry":{"maxAttemps":1}`:                                         "retry.maxAttemps is no field of a task",
		`"retry":{"eventId":"1"}`:                                          "retry.eventId is no field of a task",
		`"place":{"devices":[{"kind":"gpu","cnt":1}]}`:                     "place.devices[0].cnt is no field of a task",
		`"place":{"ports":{"http":{"statik":80}}}`:                         "place.ports.http.statik is no field of a task",
		`"routes":[{"provider":"p","model":"m","x":1}]`:                    "routes[0].x is no field of a task",
		`"retry_safety":"at_most_once","retrySafety":"idempotent"`:         "retry_safety is there twice",
		`"retry_safety":"at_most_once","retry_safety":"idempotent"`:        "retry_safety is there twice",
	} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			_, got, err := mesh.ReadAssignment(e, json.RawMessage(`{"id":"x","type":"any","cluster":"c",`+fields+`}`))
			if want[0] != '"' {
				require.ErrorContains(t, err, want)
				return
			}
			_, plain, plainErr := mesh.ReadAssignment(e, json.RawMessage(`{"id":"x","type":"any","cluster":"c",`+want+`}`))
			require.Equal(t, plainErr, err)
			require.Equal(t, plain, got)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			var all, asked map[string]any
			require.NoError(t, json.Unmarshal(text, &all))
			require.NoError(t, json.Unmarshal([]byte(`{`+want+`}`), &asked))
			for name := range asked {
				require.Contains(t, all, name)
			}
		})
	}
}

func TestRunIDs(t *testing.T) {
	t.Parallel()
	event := func(source, id string) *api.Envelope {
		return structured(map[string]string{"id": id, "source": source, "tenant": "acme"}, `{}`)
	}
	one := mesh.RunID("acme:triage", event("/s", "1"), "")
	require.Regexp(t, `^acme:triage-[0-9a-f]{24}$`, one)
	require.True(t, api.IsTaskID(one))
	require.Equal(t, one, mesh.RunID("acme:triage", event("/s", "1"), ""))
	require.NotEqual(t, one, mesh.RunID("acme:triage", event("/t", "1"), ""))
	require.NotEqual(t, one, mesh.RunID("acme:other", event("/s", "1"), ""))
	keyed := mesh.RunID("acme:triage", event("/s", "1"), "T-7")
	require.Equal(t, keyed, mesh.RunID("acme:triage", event("/s", "2"), "T-7"), "one key is one run")
	require.NotEqual(t, one, keyed)
}

// Five tries, each wait twice as long as the one before.
func TestTries(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	for n := 1; ; n++ {
		wait, again := mesh.NextTry(n)
		if !again {
			require.Equal(t, 5, n)
			break
		}
		waits = append(waits, wait)
	}
	require.Equal(t, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}, waits)
	record := api.InboundEvent{}
	mesh.AddDispatches(&record, []api.Dispatch{{ID: "a", Outcome: "started"}})
	mesh.AddDispatches(&record, []api.Dispatch{{ID: "a", Outcome: "already_exists"}, {ID: "b"}})
	require.Len(t, record.Dispatches, 2)
	require.Equal(t, "started", record.Dispatches[0].Outcome, "what was known stays")
	for range 30 {
		mesh.FailEvent(&record, "disk full", time.Time{})
	}
	require.Len(t, record.Tries, 20)
}
