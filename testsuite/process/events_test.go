package process

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// eventCount can be raised: -args -events 5000.
var eventCount = flag.Int("events", 200, "how many events each tenant of TestEventsThroughKills sends")

// TestEventsThroughKills sends events of two tenants, each twice, while the control plane and its Temporal are killed
// again and again: each event has one end, the sums match, and nothing of one tenant is under the other's token.
func TestEventsThroughKills(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	const perBatch, kills = 20, 4
	each := *eventCount / perBatch * perBatch
	dir, address := t.TempDir(), freeAddress(t)
	admin := strings.Repeat("0123456789abcdef", 3)
	t.Cleanup(func() { killAgents(dir) })
	up := func() *program { // on a busy machine a start with much to catch up on may take longer than its limit
		for range 20 {
			p := start(t, []string{"MAINSTAY_ADMIN_TOKEN=" + admin}, append(devArgs(dir, address), "--allow-exec")...)
			require.Eventually(t, func() bool { return p.over() || json.Valid([]byte(p.stdout.String())) }, patience,
				20*time.Millisecond)
			if !p.over() {
				return p
			}
			t.Logf("it did not come up, and is started again: %s", &p.stderr)
		}
		t.Fatal("it does not come up")
		return nil
	}
	p := up()
	connect := func(token string) *client.Client {
		c, err := client.New(client.Options{URL: "http://" + address, Token: token})
		require.NoError(t, err)
		return c
	}
	tenants, of := []string{"acme", "beta"}, map[string]*client.Client{}
	for _, tenant := range tenants {
		token, err := connect(admin).Tokens.Create(t.Context(), api.TokenRequest{Name: tenant, Role: api.RoleOperator,
			Tenant: tenant})
		require.NoError(t, err)
		of[tenant] = connect(token.Secret)
		_, err = of[tenant].Jobs.Apply(t.Context(), "counted", []byte(`{job: counted, cluster: default, safety: idempotent,
			on: [{event: {type: counted, where: "event.data.n % 5 == 0"}}],
			steps: {a: {task: {type: exec, payload: {command: ["true"]}}}}}`), "")
		require.NoError(t, err)
	}
	var acknowledged, repeated atomic.Int64
	var senders sync.WaitGroup
	begun := time.Now()
	for _, tenant := range tenants {
		batches := make(chan []string, each/perBatch)
		for from := 0; from < each; from += perBatch {
			var events []string
			for n := from; n < from+perBatch; n++ {
				data := fmt.Sprintf(`, "data": {"n": %d, "secret": "of %s"}`, n, tenant)
				if n%perBatch == perBatch-1 {
					data = "" // where fails without data
				}
				events = append(events, fmt.Sprintf(`{"specversion": "1.0", "id": "%d", "source": "/%s", "type": "counted"%s}`,
					n, tenant, data))
			}
			batches <- events
		}
		close(batches)
		for range 4 {
			senders.Go(func() {
				for batch := range batches {
					for range 2 {
						repeated.Add(sendUntilTaken(t.Context(), of[tenant], batch))
						acknowledged.Add(perBatch)
					}
				}
			})
		}
	}
	total := int64(4 * each)
	for n := range int64(kills) {
		require.Eventually(t, func() bool { return acknowledged.Load() >= total*(n+1)/(kills+1) }, patience*10,
			10*time.Millisecond)
		t.Logf("kill %d after %s, with %d of %d acknowledged", n+1, time.Since(begun).Round(time.Second),
			acknowledged.Load(), total)
		p.signal(t, syscall.SIGKILL)
		require.Equal(t, -1, p.exit(t))
		p = up()
	}
	senders.Wait()
	t.Logf("all sent twice after %s; %d were sent once more, since no answer said that they are taken",
		time.Since(begun).Round(time.Second), repeated.Load())
	// Only events that are not settled are listed here: each event in a list costs a question to its workflow.
	for _, tenant := range tenants {
		require.Eventually(t, func() bool {
			open, err := of[tenant].Inbound.List(client.InboundQuery{Status: api.InboundReceived}).Take(t.Context(), 1)
			return err == nil && len(open) == 0
		}, patience*5, time.Second)
	}
	t.Logf("all settled after %s", time.Since(begun).Round(time.Second))
	for i, tenant := range tenants {
		counts, last := map[api.InboundStatus]int{}, ""
		require.Eventually(t, func() bool { // visibility may be behind
			events, err := of[tenant].Inbound.List(client.InboundQuery{}).Take(t.Context(), 0)
			clear(counts)
			for _, e := range events {
				counts[e.Status]++
				if last = e.ID; e.Tenant != tenant {
					t.Errorf("event %s of %s is in the list of %s", e.ID, e.Tenant, tenant)
				}
			}
			return err == nil && len(events) == each
		}, patience*5, time.Second, "%v", counts)
		require.Equal(t, map[api.InboundStatus]int{api.InboundDispatched: each / 5, api.InboundUnmatched: each - each/5 - each/perBatch,
			api.InboundQuarantined: each / perBatch}, counts)
		runs, err := of[tenant].Runs.List(client.RunQuery{Job: "counted"}).Take(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, runs, each/5, "each event started one run")
		_, err = of[tenants[1-i]].Inbound.Get(t.Context(), last)
		require.ErrorContains(t, err, "unknown_event")
		t.Logf("%s: %v, after %s", tenant, counts, time.Since(begun).Round(time.Second))
	}
}

// sendUntilTaken sends events, and again those of them that were not acknowledged. It returns how many these were.
func sendUntilTaken(ctx context.Context, c *client.Client, events []string) (again int64) {
	for ctx.Err() == nil {
		sent, err := c.Inbound.Send(ctx, []byte("["+strings.Join(events, ",")+"]"))
		var left []string
		for i, text := range events {
			if err != nil || sent.Events[i].Error != nil {
				left = append(left, text)
			}
		}
		if len(left) == 0 {
			return again
		}
		events, again = left, again+int64(len(left))
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return again
}

// TestKeysStayInTheAgent has providers of models send back the key, in an error and in an answer. It is then searched
// for in all that the control plane stores and logs, in what the API answers, and in the traces.
func TestKeysStayInTheAgent(t *testing.T) {
	t.Parallel()
	const key, marker = "sk-process-0123456789abcdef", "scene-4711"
	var traces build.Output
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&traces, r.Body)
	}))
	t.Cleanup(collector.Close)
	var calls atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization")
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"error": {"message": "what is %s?"}}`, sent)
			return
		}
		_, _ = fmt.Fprintf(w, `{"id": "x", "model": "m-1", "choices": [{"message": {"content": "you sent %s"},
			"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}`, sent)
	}))
	t.Cleanup(provider.Close)
	dir, models := t.TempDir(), filepath.Join(t.TempDir(), "models.yaml")
	require.NoError(t, os.WriteFile(models, fmt.Appendf(nil, "providers:\n  a: {kind: openai, url: %[1]q, key_env: MODEL_KEY}\n"+
		"  b: {kind: openai, url: %[1]q, key_env: MODEL_KEY}\n", provider.URL), 0o600))
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "MODEL_KEY=" + key}
	p, dev := startDevIn(t, env[:1], dir, freeAddress(t), "--agents", "0")
	a := start(t, env, "agent", "run", "--hub", dev.URL, "--id", "models", "--models", models, "--health", "")
	online(t, dev.URL, "models")
	id := submit(t, dev.URL, map[string]any{"type": "model", "cluster": "default",
		"routes":  []map[string]any{{"provider": "a", "model": "m"}, {"provider": "b", "model": "m"}},
		"payload": map[string]any{"messages": []map[string]any{{"role": "user", "content": marker}}}})
	done := completed(t, dev.URL, id, patience)
	require.Contains(t, string(done.Result), "you sent Bearer [key]")
	require.Equal(t, "auth", done.Attempts[0].ErrorType)
	require.Contains(t, done.Attempts[0].Reason, "[key]")
	require.EqualValues(t, 2, calls.Load())
	answer, err := json.Marshal(done)
	require.NoError(t, err)
	for _, process := range []*program{a, p} {
		process.signal(t, syscall.SIGINT)
		require.Equal(t, 0, process.exit(t))
	}
	require.Contains(t, traces.String(), "chat m", "the agent has sent its spans")
	require.Contains(t, traces.String(), "gen_ai.client.token.usage", "and its metrics")
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), key, path)
		found[filepath.Ext(path)] = found[filepath.Ext(path)] || bytes.Contains(data, []byte(marker))
		return err
	}))
	require.True(t, found[".db"], "the search finds what is there: %v", found)
	for _, text := range []string{string(answer), traces.String(), a.stdout.String(), a.stderr.String(), p.stderr.String()} {
		require.NotContains(t, text, key)
	}
	require.Equal(t, api.TaskCompleted, done.Status)
}
