package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

func entries(t *testing.T, file string) (list []Entry, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range bytes.Lines(data) {
		var e Entry
		require.NoError(t, json.Unmarshal(line, &e))
		list = append(list, e)
	}
	return list, string(data)
}

// TestReadsAreWrittenDownIfAsked does not write what agents ask all day, nor probes.
func TestReadsAreWrittenDownIfAsked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	audit, err := OpenAudit(file, zap.NewNop())
	require.NoError(t, err)
	s := newShelf()
	token, record := s.add(1, access.Record{Name: "ci", Kind: api.TokenAPI, Role: api.RoleViewer})
	g := s.gate(Options{Audit: audit, AuditReads: true})
	ask(t, g, access.View.Scoped(), request(http.MethodGet, token))
	ask(t, g, access.Open, request(http.MethodGet, token))
	ask(t, g, access.Session, request(http.MethodPost, "sealed-by-a-hub"))
	list, _ := entries(t, file)
	require.Len(t, list, 1)
	require.Equal(t, []any{record.ID, http.MethodGet, "done"}, []any{list[0].ID, list[0].Method, list[0].Outcome})
}

func TestEveryChangeIsWrittenDown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	audit, err := OpenAudit(file, zap.NewNop())
	require.NoError(t, err)
	s := newShelf()
	token, record := s.add(1, access.Record{Name: "ci", Kind: api.TokenAPI, Role: api.RoleOperator, Tenant: "acme"})
	g := s.gate(Options{Audit: audit, Rate: 1000, Burst: 1000})
	begun := s.now

	ask(t, g, access.Operate.Scoped(), request(http.MethodPost, token))
	ask(t, g, access.Administer, request(http.MethodDelete, token))
	ask(t, g, access.View, request(http.MethodGet, "a-wrong-token"))
	ask(t, g, access.View.Scoped(), request(http.MethodGet, token))
	ask(t, g, access.Session, request(http.MethodPost, "sealed-by-a-hub"))
	ask(t, g, access.Open, request(http.MethodGet, ""))
	for range failedBurst * 2 {
		ask(t, g, access.View, request(http.MethodGet, "a-wrong-token"))
	}
	list, text := entries(t, file)
	require.NotContains(t, text, token)
	require.NotContains(t, text, "a-wrong-token")
	require.Equal(t, failedBurst+2, len(list), "a flood does not become one here")
	require.Equal(t, "done", list[0].Outcome)
	require.Equal(t, []any{record.ID, "ci", api.RoleOperator, "acme", http.MethodPost, "/x", 200},
		[]any{list[0].ID, list[0].Name, list[0].Role, list[0].Tenant, list[0].Method, list[0].Route, list[0].Status})
	require.Equal(t, begun, list[0].Time)
	require.Equal(t, []any{"refused", 403, record.ID}, []any{list[1].Outcome, list[1].Status, list[1].ID})
	require.Equal(t, []any{"refused", 401, ""}, []any{list[2].Outcome, list[2].Status, list[2].ID})

	again, err := OpenAudit(file, zap.NewNop())
	require.NoError(t, err)
	again.write(&Entry{Status: 500, Outcome: outcomeOf(http.MethodGet, 500, true)})
	require.NoError(t, again.Close())
	list, _ = entries(t, file)
	require.Len(t, list, failedBurst+3, "it is appended to")
	require.Equal(t, "failed", list[len(list)-1].Outcome)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, audit.Close())
}

// TestStrangersDoNotFillTheDisk has requests without a credential from very many addresses, as long as they can be.
func TestStrangersDoNotFillTheDisk(t *testing.T) {
	t.Parallel()
	odd := strings.Repeat("%01", 128)
	for name, c := range map[string]struct{ method, path, body string }{
		"refused":              {http.MethodPost, "/runs/" + odd + "/steps/" + odd, ""},
		"a wrong sign-in":      {http.MethodPost, "/api/v1/session", `{"token":"guess"}`},
		"an odd sign-in":       {http.MethodPost, "/api/v1/session", `{`},
		"out of no session":    {http.MethodDelete, "/api/v1/session", ""},
		"an agent's, made up":  {http.MethodPost, "/agents/" + odd, ""},
		"with another's proof": {http.MethodPut, "/agents/" + odd, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "audit.jsonl")
				audit, err := OpenAudit(file, zap.NewNop())
				require.NoError(t, err)
				const admin = "0123456789-the-first-admin-token-0123"
				g := New(Options{Tokens: newShelf().read, AdminToken: admin, Audit: audit, Rate: DefaultRate, Burst: DefaultBurst})
				api := httpapi.New(httpapi.Options{Gate: g})
				RegisterSession(api.API(), g)
				good := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
				api.Handle(access.Operate, http.MethodPost, "/runs/{run}/steps/{step}", good)
				api.Handle(access.Session, http.MethodPost, "/agents/{id}", good)
				api.Handle(access.Join, http.MethodPut, "/agents/{id}", good)
				ask := func(method, path, body, token string, from int) {
					r := httptest.NewRequest(method, path, strings.NewReader(body))
					r.RemoteAddr = fmt.Sprintf("127.1.%d.%d:65535", from>>8, from&255)
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set(httpapi.RequestIDHeader, strings.Repeat("x", 128))
					if token != "" {
						r.Header.Set("Authorization", "Bearer "+token)
					}
					api.Handler().ServeHTTP(httptest.NewRecorder(), r)
				}
				const flood, beyond = strangersBurst + 500, 500
				for i := range flood {
					ask(c.method, c.path, c.body, "", i)
				}
				list, text := entries(t, file)
				require.Len(t, list, strangersBurst)
				require.Less(t, len(text), strangersBurst*1024, "the lines are short: %s", text[:2048])

				ask(http.MethodPost, "/runs/r/steps/s", "", admin, 1)
				ask(http.MethodPost, "/api/v1/session", `{"token":"`+admin+`"}`, "", 2)
				list, _ = entries(t, file)
				require.Len(t, list, strangersBurst+2, "what those with a credential do is always written")
				require.Equal(t, []string{"done", "done"}, []string{list[strangersBurst].Outcome, list[strangersBurst+1].Outcome})

				<-time.After(leftOutSaid)
				synctest.Wait()
				_, text = entries(t, file)
				lines := strings.Split(strings.TrimSpace(text), "\n")
				var said LeftOut
				require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &said))
				require.Equal(t, LeftOut{Time: said.Time, Outcome: "left_out", LeftOut: beyond}, said)
				require.Len(t, lines, strangersBurst+3)

				ask(c.method, c.path, c.body, "", 3)
				list, _ = entries(t, file)
				require.Len(t, list, strangersBurst+4, "there is room again")
				for i := range flood {
					ask(c.method, c.path, c.body, "", i)
				}
				require.NoError(t, audit.Close())
				_, text = entries(t, file)
				require.Contains(t, text[len(text)-100:], `"outcome":"left_out"`, "it is said at the end too")
			})
		})
	}
}

// TestAFirstTokenSentAsAnIDIsNotWritten has an admin revoke a token by the secret and not by its id.
func TestAFirstTokenSentAsAnIDIsNotWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	audit, err := OpenAudit(file, zap.NewNop())
	require.NoError(t, err)
	const admin, join = "0123456789-the-first-admin-token-0123", "0123456789-the-first-join-token-0123"
	g := newShelf().gate(Options{Audit: audit, AdminToken: admin, JoinToken: join})
	for _, sent := range []string{admin, join, " " + admin + "\n", "8a1c3d5ed7bf"} {
		_, done, err := g.Admit(request(http.MethodDelete, admin), httpapi.Route{Method: http.MethodDelete,
			Policy: access.Administer}, map[string]string{"id": sent})
		require.NoError(t, err)
		done(http.StatusNotFound)
	}
	list, text := entries(t, file)
	require.NotContains(t, text, "0123456789-the")
	var ids []string
	for i := range list {
		ids = append(ids, list[i].Target["id"])
	}
	require.Equal(t, []string{"first-admin…", "first-join…", "first-admin…", "8a1c3d5ed7bf"}, ids)
}

// TestWhatMayStandHasNotFailed has answers to requests whose client may have left, or that Temporal was slow with.
func TestWhatMayStandHasNotFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method  string
		status  int
		away    bool // the tokens cannot be read
		outcome string
	}{
		"a change without an answer":   {http.MethodPost, http.StatusServiceUnavailable, false, "unknown"},
		"a change with a fault":        {http.MethodDelete, http.StatusInternalServerError, false, "unknown"},
		"a change that cannot be made": {http.MethodPost, http.StatusNotImplemented, false, "failed"},
		"a change that was refused":    {http.MethodPost, http.StatusConflict, false, "refused"},
		"a change that never began":    {http.MethodPost, http.StatusServiceUnavailable, true, "failed"},
		"a read":                       {http.MethodGet, http.StatusServiceUnavailable, false, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			audit, err := OpenAudit(file, zap.NewNop())
			require.NoError(t, err)
			s := newShelf()
			token, _ := s.add(1, access.Record{Name: "ci", Kind: api.TokenAPI, Role: api.RoleOperator})
			g := s.gate(Options{Audit: audit, AuditReads: true})
			if c.away {
				s.set(errors.New("canary"))
			}
			r := request(c.method, token)
			left, leave := context.WithCancel(r.Context())
			_, done, err := g.Admit(r.WithContext(left),
				httpapi.Route{Method: c.method, Path: "/x", Policy: access.Operate}, nil)
			require.Equal(t, c.away, err != nil, err)
			leave()
			done(c.status)
			list, _ := entries(t, file)
			require.Len(t, list, 1)
			require.Equal(t, c.outcome, list[0].Outcome)
		})
	}
}

func TestTheAuditLogCanBeTheProcesssOwn(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	audit, err := OpenAudit("log", zap.New(core))
	require.NoError(t, err)
	audit.write(&Entry{Outcome: "done", Status: 201})
	require.Equal(t, 1, logs.FilterMessage("done").Len())
	none, err := OpenAudit("off", zap.New(core))
	require.NoError(t, err)
	none.write(&Entry{Outcome: "done"})
	require.NoError(t, none.Close())
	require.Equal(t, 1, logs.Len())
	_, err = OpenAudit(filepath.Join(t.TempDir(), "no", "such", "folder"), zap.NewNop())
	require.Error(t, err)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }
func (fullDisk) Close() error              { return nil }

func TestAFullDiskIsSaid(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	(&Audit{out: fullDisk{}, logger: zap.New(core)}).write(&Entry{ID: "abc"})
	require.Equal(t, 1, logs.FilterMessage("The audit log could not be written").Len())
}
