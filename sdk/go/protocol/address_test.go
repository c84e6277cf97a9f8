package protocol_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/protocol"
)

func TestShownURL(t *testing.T) {
	t.Parallel()
	for address, shown := range map[string]string{
		"http://127.0.0.1:8080":             "http://127.0.0.1:8080",
		"http://bob:s3cret@hub:8080/x":      "http://***@hub:8080/x",
		"https://token@hub":                 "https://***@hub",
		"http://bob:s3@cret@hub/a@b":        "http://***@hub/a@b",
		"http://hub/a@b":                    "http://hub/a@b",
		"postgres://u:p%zz@db:5432/x?y=1@2": "postgres://***@db:5432/x?y=1@2",
		"bob:s3cret@hub:80":                 "***@hub:80",
		"":                                  "",
	} {
		require.Equal(t, shown, protocol.ShownURL(address), address)
	}
}

func TestUnreached(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, private, gone := httptest.NewServer(answer), httptest.NewTLSServer(answer), httptest.NewServer(answer)
	t.Cleanup(plain.Close)
	t.Cleanup(private.Close)
	gone.Close()
	for _, c := range []struct {
		url, says string
		lasting   bool
	}{
		{"https" + plain.URL[4:], "it does not speak https", true},
		{private.URL, "x509: certificate signed by unknown authority", true},
		{gone.URL, "connect: connection refused", false},
		{"http://no-such-host.invalid", "the name of its host is not known", false},
	} {
		_, err := http.Get(c.url)
		require.Error(t, err)
		lasting, reason := protocol.Unreached(err)
		require.ErrorContains(t, reason, c.says)
		require.Equal(t, c.lasting, lasting)
	}
}
