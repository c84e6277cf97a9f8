package inbound

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/httpapi"
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
