package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mainstay.dev/mainstay/cli/app"
)

// ran is what a command line left behind.
type ran struct {
	code           int
	stdout, stderr string
}

var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// run runs a command line as a process would.
func run(ctx context.Context, stdin string, args ...string) ran {
	var stdout, stderr bytes.Buffer
	a := &app.App{
		Version: "dev",
		Stdin:   strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return testNow },
	}
	code := a.Execute(ctx, rootCommand(a), args)
	return ran{code, stdout.String(), stderr.String()}
}

// answering is a server that gives one answer to everything; it keeps the last request's body.
func answering(t *testing.T, status int, contentType, body string) (url string, last *bytes.Buffer) {
	t.Helper()
	last = &bytes.Buffer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Reset()
		_, _ = last.ReadFrom(r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL, last
}
