package inbound

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// The envelope does not tell how deep data is nested that stands in it as base64.
func TestDataInBase64IsNoDeeperThanAgentsRead(t *testing.T) {
	t.Parallel()
	event := func(levels int) string {
		data := `{"payload":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`
		return `{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"application/json",` +
			`"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"}`
	}
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	batch := http.Header{"Content-Type": {"application/cloudevents-batch+json"}}
	nested := func(err error) bool {
		problem, _ := httpapi.Body(err)
		return len(problem.Errors) == 1 && strings.Contains(problem.Errors[0].Message, "nested")
	}
	_, _, err := read(t.Context(), structured, []byte(event(9000)))
	require.True(t, nested(err), err)
	_, _, err = read(t.Context(), batch, []byte("["+event(300)+"]"))
	require.True(t, nested(err), err)
	events, _, err := read(t.Context(), structured, []byte(event(200)))
	require.NoError(t, err)
	require.Len(t, events, 1)
}

func TestHeadersAreDecodedAsTheBindingSays(t *testing.T) {
	t.Parallel()
	binary := func(subject ...string) ([]api.Envelope, error) {
		header := http.Header{"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"a%20b"},
			"Ce-Source": {"/s%2fx"}, "Ce-Type": {"t"}, "Ce-Subject": subject, "Ce-Own": {`"x\"y"`}}
		events, _, err := read(t.Context(), header, []byte(`{"n":1}`))
		return events, err
	}
	twin := `{"specversion":"1.0","id":"a b","source":"/s/x","type":"t","subject":"Euro €","own":"x\"y","data":{"n":1}}`
	structured, _, err := read(t.Context(), http.Header{"Content-Type": {"application/cloudevents+json"}}, []byte(twin))
	require.NoError(t, err)
	want, err := mesh.DigestOf(&structured[0])
	require.NoError(t, err)
	for _, subject := range []string{"Euro%20%E2%82%AC", "Euro €", `"Euro €"`, `"Euro %e2%82%aC"`, `"\E\uro %E2%82%AC"`} {
		events, err := binary(subject)
		require.NoError(t, err, subject)
		require.Equal(t, "Euro €", events[0].Attr("subject"))
		require.Equal(t, mesh.InboundID(&structured[0]), mesh.InboundID(&events[0]))
		digest, err := mesh.DigestOf(&events[0])
		require.NoError(t, err)
		require.Equal(t, want, digest, subject)
		require.Equal(t, subject, events[0].Headers["Ce-Subject"], "as it was received")
	}
	for subject, says := range map[string]string{"100%": "write % as %25", "%zz": "write % as %25", "%ff": "is not UTF-8",
		"\xff": "is not UTF-8", `"a`: "no closing quote", `"a" b`: "goes on after", `"a\"`: "no closing quote"} {
		_, err := binary(subject)
		problem, _ := httpapi.Body(err)
		require.Len(t, problem.Errors, 1, subject)
		require.Contains(t, problem.Errors[0].Message, "header ce-subject ", subject)
		require.Contains(t, problem.Errors[0].Message, says, subject)
	}
	_, err = binary("a", "b")
	problem, _ := httpapi.Body(err)
	require.Contains(t, problem.Errors[0].Message, "more than once")
}

func TestAllInvalidEventsOfABatchAreNamed(t *testing.T) {
	t.Parallel()
	good, bad := `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, `{"specversion":"1.0","source":"/s","type":"t"}`
	_, _, err := read(t.Context(), http.Header{"Content-Type": {"application/cloudevents-batch+json"}},
		[]byte("\ufeff["+good+","+bad+","+good+","+bad+"]"))
	problem, _ := httpapi.Body(err)
	require.Contains(t, problem.Detail, "none of the batch was taken: 2 events are not valid")
	require.Len(t, problem.Errors, 2)
	require.Equal(t, "body[1]", problem.Errors[0].Location)
	require.Equal(t, "body[3]", problem.Errors[1].Location)
}

func TestDataOfAnEventMayHaveAnyNumber(t *testing.T) {
	t.Parallel()
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	for _, data := range []string{`{"n":1e400}`, `[1e400]`, `1e400`, `"text"`, `null`, `{"n":1.10}`} {
		body := `{"data":` + data + `,"specversion":"1.0","id":"1","source":"/s","type":"t"}`
		events, _, err := read(t.Context(), structured, []byte(body))
		require.NoError(t, err, data)
		require.Equal(t, body, string(events[0].Body))
		events, _, err = read(t.Context(), http.Header{"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"},
			"Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}}, []byte(data))
		require.NoError(t, err, data)
		require.Equal(t, data, string(mesh.DataOf(&events[0])))
	}
}

func TestWhatIsWrongWithAnEvent(t *testing.T) {
	t.Parallel()
	for body, says := range map[string]string{
		`{"specversion":"1.0","source":"/s"}`: "it lacks id, type",
		`[]`:                                  "it lacks specversion, id, source, type",
		`{"specversion":"1.0","id":7,"source":"/s","type":"t"}`:                    "id and type are text",
		`{"specversion":"1.0","id":"7","source":"/s","type":"t","time":"today"}`:   "time is as in RFC 3339",
		`{"specversion":"1.0","id":"7","source":"/s","type":"t","size":1e400}`:     "whole numbers",
		`{"specversion":"0.3","id":"7","source":"/s","type":"t","data":{"n":9e9}}`: "specversion must be 1.0",
	} {
		_, _, err := read(t.Context(), http.Header{"Content-Type": {"application/cloudevents+json"}}, []byte(body))
		problem, _ := httpapi.Body(err)
		require.Len(t, problem.Errors, 1, body)
		require.Contains(t, problem.Errors[0].Message, says, body)
	}
	_, _, err := read(t.Context(), http.Header{"Content-Type": {"text/plain"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}},
		nil)
	problem, _ := httpapi.Body(err)
	require.Contains(t, problem.Errors[0].Message, "it lacks source, type")
}
