package mcptool

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
)

// Arguments and structured results keep their digits, over each transport.
func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	serving := func(options *mcp.StreamableHTTPOptions) string {
		listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			return (&toolServer{}).server()
		}, options))
		t.Cleanup(listening.Close)
		return listening.URL
	}
	for name, server := range map[string]*Server{
		"program": {Command: []string{program, "serve-tools"}},
		"events":  {URL: serving(nil)},
		"JSON":    {URL: serving(&mcp.StreamableHTTPOptions{JSONResponse: true})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const numbers = `{"n":[9007199254740993,1.10,12e4,1e400,-0,12345678901234567890],"text":"structuredContent 1.10"}`
			result, err := tools(t, server).Handle(t.Context(), &agent.Task{ID: "t-1",
				Payload: json.RawMessage(`{"server":"s","tool":"mirror","arguments":` + numbers + `}`)})
			require.NoError(t, err)
			text, err := json.Marshal(result)
			require.NoError(t, err)
			var read struct {
				Content    []struct{ Text string }
				Structured json.RawMessage
			}
			require.NoError(t, json.Unmarshal(text, &read))
			require.Equal(t, numbers, string(read.Structured))
			require.Equal(t, numbers, read.Content[0].Text)
		})
	}
}

func TestMessagesWithoutStructuredContentStay(t *testing.T) {
	t.Parallel()
	for _, message := range []string{`{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"structuredContent"}]}}`,
		`{"structuredContent":1}`, `structuredContent`, `{"result":{"structuredContent":null}}`, `{"result":[]}`} {
		require.Equal(t, message, string(exact([]byte(message))))
	}
}
