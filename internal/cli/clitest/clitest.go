// Package clitest runs commands in tests as a process would, against an API that the test makes up.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
)

// root is the program's root command in the tests of a package.
var root func(*app.App) *cobra.Command

// Main runs a package's tests with the commands below of. The test's binary stands in for the program: commands that
// start agents or servers of tools start it again.
func Main(m *testing.M, of func(*app.App) *cobra.Command) {
	root = of
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		a := app.New("dev")
		a.Program = itself
		ctx, stop := a.Signals()
		code := a.Execute(ctx, root(a), os.Args[1:])
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// itself is the test's binary, whichever program is wanted.
func itself(string) (string, error) { return os.Executable() }

// Root is a root command with some of the program's groups.
func Root(groups ...func(*app.App) *cobra.Command) func(*app.App) *cobra.Command {
	return func(a *app.App) *cobra.Command {
		root := &cobra.Command{Use: "mainstay"}
		for _, group := range groups {
			root.AddCommand(group(a))
		}
		return root
	}
}

// Request is what the fake API was asked.
type Request struct {
	Method, URI string
	Body        string
}

// API answers "METHOD /path" with a status and a body, and keeps what it was asked.
type API struct {
	*httptest.Server
	Requests []Request
}

// Answer is what the API answers.
type Answer struct {
	Status int
	Body   string
}

// NewAPI starts one; what it has no answer for is not found.
func NewAPI(t *testing.T, answers map[string]Answer) *API {
	t.Helper()
	f := &API{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		f.Requests = append(f.Requests, Request{r.Method, r.URL.RequestURI(), body.String()})
		found, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			found = Problem(404, "not_found", "there is nothing here")
		}
		w.WriteHeader(found.Status)
		_, _ = w.Write([]byte(found.Body))
	}))
	t.Cleanup(f.Close)
	return f
}

// Problem is a refusal.
func Problem(status int, code, detail string) Answer {
	body, _ := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "code": code,
		"detail": detail})
	return Answer{status, string(body)}
}

// At runs a command line against the fake API. The first two words are the command.
func (f *API) At(t *testing.T, args ...string) Ran {
	t.Helper()
	return Run(t.Context(), "", slices.Insert(slices.Clone(args), min(2, len(args)), "--server", f.URL)...)
}

// Ran is what a command line left behind.
type Ran struct {
	Code           int
	Stdout, Stderr string
}

// Now is the time in tests.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Run runs a command line as a process would.
func Run(ctx context.Context, stdin string, args ...string) Ran { return run(ctx, stdin, false, args) }

// RunOnTerminal runs a command line whose output goes to a terminal.
func RunOnTerminal(ctx context.Context, args ...string) Ran { return run(ctx, "", true, args) }

func run(ctx context.Context, stdin string, terminal bool, args []string) Ran {
	var stdout, stderr bytes.Buffer
	a := &app.App{
		Version: "dev",
		Stdin:   strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, StdoutTTY: terminal,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return Now },
		Program: itself,
	}
	code := a.Execute(ctx, root(a), args)
	return Ran{code, stdout.String(), stderr.String()}
}

// Answering is a server that gives one answer to everything; it keeps the last request's body.
func Answering(t *testing.T, status int, contentType, body string) (url string, last *bytes.Buffer) {
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

// Recorder answers every request alike, after it was seen.
func Recorder(t *testing.T, see func(*http.Request), with Answer) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		w.WriteHeader(with.Status)
		_, _ = w.Write([]byte(with.Body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// ConfigFile writes a configuration.
func ConfigFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mainstay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
