package browser

import (
	_ "embed"
	"testing"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

//go:embed accessible.js
var accessible string

// busyFleet has something of everything to show.
func busyFleet(t testing.TB) (f *fleet, views []string) {
	f = newFleet(t, map[string]any{"replication_mode": "sharded", "shards": 12, "desired_agents": 3}, "a", "b")
	single := newFleet(t, map[string]any{"min_agents": 1}, "a")
	single.submit("done", "echo done", map[string]any{"labels": map[string]string{"invoice": "2026-1"},
		"tenant": "acme"})
	dead := single.submit("dead", "echo out of paper >&2; exit 3",
		map[string]any{"retry": map[string]any{"max_attempts": 1}})
	once := single.submit("once", "sleep 300", map[string]any{"retry_safety": "at_most_once"})
	waiting := single.submit("waiting", "true", map[string]any{"required_capabilities": []string{"gpu"}})
	single.becomes(dead, "dead_letter")
	single.becomes(once, "running")
	single.kill("a")
	single.becomes(once, "review")
	healed := newFleet(t, quickHealing, "a", "b")
	healed.illAgent("ill")()
	healed.call("POST", "/healing/trigger", map[string]any{"cluster": healed.cluster}, nil)
	alone := newFleet(t, quickHealing)
	alone.illAgent("ill")()
	blocked := newFleet(t, blockedScaling)
	blocked.isBlocked()
	f.call("POST", "/"+f.name("b")+"/drain", map[string]any{"reason": "new disk"}, nil)
	runs := newFleet(t, nil, "a")
	_, run := runs.run(diamond)
	require.True(t, eventually(func() bool {
		var got struct{ Status string }
		runs.call("GET", "/runs/"+run, nil, &got)
		return got.Status == "blocked"
	}))
	var failovers struct{ Failovers []struct{ ID string } }
	require.True(t, eventually(func() bool {
		f.call("GET", "/failovers?cluster="+single.cluster, nil, &failovers)
		return len(failovers.Failovers) > 0
	}))
	return f, []string{
		"#/", "#/clusters", "#/clusters/" + f.cluster, "#/clusters/" + single.cluster, "#/agents",
		"#/agents/" + f.name("a"), "#/agents/" + single.name("a"),
		"#/tasks", "#/tasks?cluster=" + single.cluster, "#/tasks/" + once, "#/tasks/" + dead, "#/tasks/" + waiting,
		"#/runs", "#/runs/" + run, "#/jobs", "#/jobs?troubled=true", "#/queue", "#/failovers",
		"#/failovers/" + failovers.Failovers[0].ID, "#/drains", "#/dead-letters", "#/reviews",
		"#/healing", "#/healing?cluster=" + healed.cluster, "#/agents/" + healed.name("ill"),
		"#/clusters/" + alone.cluster,
		"#/scaling", "#/scaling?cluster=" + blocked.cluster, "#/clusters/" + blocked.cluster,
	}
}

// TestLook goes through every view, light and dark, on a wide window and on a phone, and holds each to what people need
// who do not see it all: names, headings, labels, contrast, and nothing that hides beyond the edge.
func TestLook(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	f, views := busyFleet(t)
	for name, before := range map[string][]step{
		"light": {colours("light")}, "dark": {colours("dark")}, "phone": {colours("light"), phone()},
		"dark phone": {colours("dark"), phone()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openTab(t, f.URL, "", before...)
			for i, view := range views {
				if i > 0 {
					p.goTo(view)
				}
				faults := eval[[]string](p, accessible)
				require.Empty(t, faults, "%s in %s", view, name)
				p.shoot(name + "-" + view[2:])
			}
		})
	}
}

func TestColours(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	f := newFleet(t, nil)
	const background = `getComputedStyle(document.body).backgroundColor`
	dark := openTab(t, f.URL, "", colours("dark")).text(background)
	p := openTab(t, f.URL, "", colours("light"))
	light := p.text(background)
	require.NotEqual(t, light, dark)
	p.press("Colours: System")
	p.press("Colours: Light")
	p.until("dark was chosen", background+` === "`+dark+`"`)
	p.do(chromedp.Reload())
	p.until("it stays so", `document.querySelector("h1") && `+background+` === "`+dark+`"`)
	p.press("Colours: Dark")
	p.until("the system's is back", background+` === "`+light+`"`)
}
