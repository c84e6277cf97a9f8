package controlplane

import (
	"bytes"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
)

// TestEveryArrayOfARequestIsBounded walks the bodies of all operations: without a bound, a small request costs much
// memory.
func TestEveryArrayOfARequestIsBounded(t *testing.T) {
	t.Parallel()
	document := everyRoute(t, httpapi.Options{}).API().OpenAPI()
	arrays := 0
	var walk func(schema *huma.Schema, at string, within map[string]bool)
	walk = func(schema *huma.Schema, at string, within map[string]bool) {
		if schema == nil {
			return
		}
		if schema.Ref != "" {
			if within[schema.Ref] {
				return
			}
			within[schema.Ref] = true
			walk(document.Components.Schemas.SchemaFromRef(schema.Ref), at, within)
			delete(within, schema.Ref)
			return
		}
		if schema.Type == huma.TypeArray {
			arrays++
			most := 10_000
			if at == "POST /api/v1/agents/arrays body.items" {
				most = api.MaxElements // raw JSON, bounded by the body
			}
			if schema.MaxItems == nil || *schema.MaxItems > most {
				t.Errorf("%s has no maxItems of at most %d", at, most)
			}
		}
		walk(schema.Items, at+"[]", within)
		for name, member := range schema.Properties {
			walk(member, at+"."+name, within)
		}
		if others, ok := schema.AdditionalProperties.(*huma.Schema); ok {
			walk(others, at+".*", within)
		}
	}
	for path, item := range document.Paths {
		for method, op := range map[string]*huma.Operation{"POST": item.Post, "PUT": item.Put, "PATCH": item.Patch,
			"DELETE": item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, content := range op.RequestBody.Content {
				walk(content.Schema, method+" "+path+" body", map[string]bool{})
			}
		}
	}
	require.Greater(t, arrays, 20, "the walk finds them")
}

// emptyObjects is the text of an array of them, with a number of bytes.
func emptyObjects(size int) string {
	return "[" + strings.Repeat("{},", size/3) + "{}]"
}

// TestLargeBodiesCostLittle sends bodies of many small values, without a proof and with one. It does not run beside
// other tests, because it measures what the process allocates.
func TestLargeBodiesCostLittle(t *testing.T) { //nolint:paralleltest // see above
	tokens, gate := testTokens()
	server := everyRoute(t, httpapi.Options{Gate: gate})
	const batch, poll = "/api/v1/agents/tasks/batch", "/api/v1/agents/x/poll"
	polled := `{"sequence":1,"running":`
	var fields strings.Builder
	for i := range 600_000 {
		fields.WriteString(`,"` + strconv.FormatInt(int64(i), 36) + `":1`)
	}
	for _, c := range []struct {
		name, path, token, body string
		status                  int
		most                    uint64 // bytes that may be allocated
	}{
		{"poll without a proof", poll, "wrong", polled + emptyObjects(8<<20-100) + "}", 401, 1 << 20},
		{"poll by an admin", poll, "admin", polled + emptyObjects(8<<20-100) + "}", 401, 1 << 20},
		{"batch without a proof", batch, "wrong", emptyObjects(32<<20 - 100), 401, 1 << 20},
		{"batch by a viewer", batch, "viewer", emptyObjects(32<<20 - 100), 403, 1 << 20},
		{"signing in", "/api/v1/session", "nobody", `{"token":` + emptyObjects(2<<20-100) + "}", 413, 1 << 20},
		{"too many elements", poll, "registered agent", polled + emptyObjects(8<<20-100) + "}", 422, 4 << 20},
		{"too many elements under another case", poll, "registered agent", `{"RUNNING":` + emptyObjects(8<<20-100) +
			"}", 422, 4 << 20},
		{"too many elements under an escaped name", poll, "registered agent",
			`{"\u0072unning":` + emptyObjects(8<<20-100) + "}", 422, 4 << 20},
		{"as many elements as may be", poll, "registered agent", polled + emptyObjects(29_000) + "}", 422, 64 << 20},
		{"too many fields", poll, "registered agent", `{"sequence":1` + fields.String() + "}", 422, 4 << 20},
		{"too many members", poll, "registered agent", `{"sequence":1,"providers":{"a":{}` + fields.String() + "}}",
			422, 16 << 20},
		{"a list in place of a text", poll, "registered agent", `{"health_note":` + emptyObjects(7<<20) + "}", 422,
			64 << 20},
		{"a list that nothing is known of", poll, "registered agent", `{"colour":` + emptyObjects(7<<20) + "}", 422,
			64 << 20},
		{"too many tasks", batch, "operator", emptyObjects(32<<20 - 100), 422, 4 << 20},
		{"a task that is a list", batch, "operator", "[" + emptyObjects(1<<20) + "]", 202, 64 << 20},
		{"a task that is larger than one may be", batch, "operator", "[" + emptyObjects(4<<20) + "]", 422, 64 << 20},
		{"nested too deep", batch, "operator", strings.Repeat("[", 8<<20), 422, 4 << 20},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+tokens[c.token])
		r.RemoteAddr = "192.0.2.1:1"
		w := &discarding{header: http.Header{}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		server.Handler().ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-40s %5.1f MiB allocated %6.1f MiB: %d", c.name, float64(len(c.body))/(1<<20),
			float64(allocated)/(1<<20), w.status)
		require.Equal(t, c.status, w.status, "%s: %s", c.name, w.body.String())
		require.LessOrEqual(t, allocated, c.most, c.name)
		if c.name == "a task that is larger than one may be" {
			require.Contains(t, w.body.String(), `"location":"body[0]","message":"expected at most 2097152 bytes"`)
		}
	}
}

type discarding struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(status int)      { d.status = status }
func (d *discarding) Write(p []byte) (int, error) { return d.body.Write(p) }

// TestARefusedBodyIsNotWaitedFor has clients announce a body and send none of it.
func TestARefusedBodyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	_, gate := testTokens()
	server := everyRoute(t, httpapi.Options{Gate: gate}).HTTPServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	for name, c := range map[string]struct {
		header string
		closes bool
	}{
		"large":   {"Content-Length: 8000000", true},
		"chunked": {"Transfer-Encoding: chunked", true},
		"expects": {"Content-Length: 10\r\nExpect: 100-continue", true},
		"none":    {"Content-Length: 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = conn.Write([]byte(
				"POST /api/v1/agents/x/poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n" + c.header +
					"\r\n\r\n"))
			require.NoError(t, err)
			var head [1024]byte
			n, err := conn.Read(head[:])
			require.NoError(t, err)
			answer := string(head[:n])
			require.True(t, strings.HasPrefix(answer, "HTTP/1.1 401 "), answer)
			require.Equal(t, c.closes, strings.Contains(answer, "\r\nConnection: close\r\n"), answer)
		})
	}
}
