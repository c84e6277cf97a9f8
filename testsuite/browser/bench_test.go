package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
)

// Size of the installation that BenchmarkPage looks at.
const (
	benchAgents = 500
	benchTasks  = 5000
	benchBatch  = 200
)

// BenchmarkPage measures, from the start of a navigation with an empty cache, how long it takes until a view is
// complete on the screen, beside the same calls of the API without a browser and beside a page that shows nothing.
func BenchmarkPage(b *testing.B) {
	browserFor(b)
	dev, err := startDev("--agents", "0", "--ui", "off")
	require.NoError(b, err)
	f := &fleet{TB: b, devReport: dev, cluster: "default"}
	f.fill()
	for _, view := range []struct {
		name, hash string
		calls      []string
	}{
		{"overview", "#/", []string{"/overview"}},
		{"agents", "#/agents", []string{""}},
		{"tasks", "#/tasks", []string{"/tasks?page_size=50"}},
		{"queue", "#/queue", []string{"/queue", "/tasks/queue?page_size=20"}},
	} {
		b.Run(view.name, func(b *testing.B) {
			drawn, raw, bare := times{}, times{}, times{}
			for range b.N {
				drawn.add(f.loads(b, "/"+view.hash, `performance.getEntriesByName("drawn")[0]?.startTime ?? 0`))
				bare.add(f.loads(b, "/healthz", `performance.timing.domContentLoadedEventEnd && performance.now()`))
				begun := time.Now()
				for _, call := range view.calls {
					f.read(b, call)
				}
				raw.add(time.Since(begun))
			}
			b.ReportMetric(0, "ns/op")
			fmt.Fprintf(os.Stderr, "%-9s complete %s   API alone %s   bare page %s   (%d agents, %d tasks, %d loads)\n",
				view.name, drawn, raw, bare, benchAgents, benchTasks, b.N)
		})
	}
}

// fill brings the agents and tasks in: a tenth of the tasks done, the rest waiting for their time.
func (f *fleet) fill() {
	f.Helper()
	later := time.Now().Add(10 * time.Hour).UTC().Format(time.RFC3339)
	for from := 0; from < benchTasks; from += benchBatch {
		batch := make([]map[string]any, benchBatch)
		for i := range batch {
			n := fmt.Sprint(from + i)
			batch[i] = map[string]any{"type": "noop", "cluster": f.cluster, "labels": map[string]string{"n": n},
				"idempotency_key": "bench-" + n}
			if i%10 != 0 {
				batch[i]["start_at"] = later
			}
		}
		for answer := (struct{ Rejected int }{1}); answer.Rejected > 0; { // a busy machine may have no time for some
			f.call(http.MethodPost, "/tasks/batch", batch, &answer)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	atEnd(stop)
	for i := range benchAgents {
		a, err := agent.New(agent.Options{HubURLs: []string{f.URL}, Cluster: f.cluster,
			ID: fmt.Sprintf("bench-%03d", i), Slots: 4})
		require.NoError(f, err)
		a.Handle("noop", func(context.Context, *agent.Task) (any, error) { return map[string]bool{"done": true}, nil })
		go func() { _ = a.Run(ctx) }()
	}
	var o struct {
		Agents struct{ Online int }
		Tasks  struct{ Open int }
	}
	for limit := time.Now().Add(3 * time.Minute); ; {
		require.True(f, time.Now().Before(limit), "the installation never came up: %+v", o)
		f.call(http.MethodGet, "/overview", nil, &o)
		if o.Agents.Online == benchAgents && o.Tasks.Open == benchTasks-benchTasks/10 {
			return
		}
		<-time.After(time.Second)
	}
}

// loads opens a page in a tab of its own and returns the time that a script tells, in ms since the navigation began.
func (f *fleet) loads(b *testing.B, path, script string) time.Duration {
	ctx, end := chromedp.NewContext(browserFor(b), chromedp.WithNewBrowserContext())
	defer end()
	require.NoError(b, chromedp.Do(ctx, chromedp.Navigate(f.URL+path)))
	var ms float64
	require.True(b, eventually(func() bool {
		var err error
		ms, err = chromedp.Run(ctx, chromedp.Evaluate[float64](script))
		return err == nil && ms > 0
	}))
	return time.Duration(ms * float64(time.Millisecond))
}

func (f *fleet) read(b *testing.B, path string) {
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, f.URL+"/api/v1/agents"+path, nil)
	require.NoError(b, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(b, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(b, err)
	require.Equal(b, http.StatusOK, response.StatusCode)
}

// times are shown as their median and their 95th percentile.
type times []time.Duration

func (t *times) add(d time.Duration) { *t = append(*t, d) }

func (t times) String() string {
	slices.Sort(t)
	return fmt.Sprintf("p50 %4d ms p95 %4d ms", t[len(t)/2].Milliseconds(),
		t[min(len(t)-1, len(t)*95/100)].Milliseconds())
}
