package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

const ranker = `{"job": "NAME", "type": "service", "cluster": "CLUSTER", "instances": {"count": 2,
	"task": {"type": "exec", "payload": {"command": ["sh", "-c", "sleep 300 # PAYLOAD"]}}},
	"update": {"canary": 1, "healthy_after": "300ms"}}`

// TestServiceIsPromoted sees a canary on the page of its job, and lets the others follow there.
func TestServiceIsPromoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a", "b")
	job := f.cluster + "-ranker"
	apply := func(payload string) {
		text := strings.NewReplacer("NAME", job, "CLUSTER", f.cluster, "PAYLOAD", payload).Replace(ranker)
		f.call(http.MethodPut, "/jobs/"+job, jsonText(text), nil)
	}
	deployed := func(status string) {
		t.Helper()
		require.True(t, eventually(func() bool {
			var got struct{ Deployments []struct{ Status string } }
			f.call(http.MethodGet, "/jobs/"+job, nil, &got)
			return len(got.Deployments) > 0 && got.Deployments[len(got.Deployments)-1].Status == status
		}), status)
	}
	apply("one")
	deployed("successful")
	p := openTab(t, f.URL, "#/jobs?cluster="+f.cluster)
	p.shows("2 instances")
	p.press(job)
	p.shows("2 of 2 healthy")
	apply("two")
	deployed("waiting")
	p.shows("waits for promotion")
	p.shows("canary")
	require.Empty(t, eval[[]string](p, accessible))
	p.shoot("job")
	p.press("Promote…")
	p.press("Promote")
	deployed("successful")
	p.until("both have the new version", `document.querySelector("main header .badge").innerText.includes("2 of 2 healthy") &&
		!document.querySelector("main").innerText.includes("waits for promotion")`)
	p.press("Scale…")
	p.keys(kb.End + kb.Backspace + "1" + kb.Enter)
	p.shows("1 of 1 healthy")
	p.shoot("job-scaled")
}
