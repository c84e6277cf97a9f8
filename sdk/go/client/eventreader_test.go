package client_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/client"
)

func TestReaderReadsWhatTheStandardAllows(t *testing.T) {
	t.Parallel()
	r := client.NewEventReader(strings.NewReader(
		": hello\nretry: 1\n\nid: 1\n\ndata: {\"id\":\ndata:\"a\"}\n\nevent: x\nid:2\ndata: {\"id\":\"b\"}\n\nid: 3\ndata: {"))
	_, e, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, "a", e.ID)
	require.Equal(t, "1", r.LastID)
	_, e, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, "b", e.ID)
	require.Equal(t, "2", r.LastID)
	_, _, err = r.Next()
	require.True(t, errors.Is(err, io.EOF))
	require.Equal(t, "2", r.LastID, "half an event is none")
	_, _, err = client.NewEventReader(strings.NewReader("data: no\n\n")).Next()
	require.ErrorContains(t, err, "read an event")
}
