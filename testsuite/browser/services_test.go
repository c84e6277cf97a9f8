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

const idle = `{"job": "NAME", "type": "service", "cluster": "CLUSTER", "recovery": RECOVERY, "instances": {"count": 1,
	"place": {"capabilities": [PLACE]}, "task": {"type": "exec", "payload": {"command": ["sh", "-c", "sleep 2; echo 'no <b>disk</b>' >&2; exit 4"]}}}}`

// TestInstancesThatDoNotRun sees on the page of each job why its instance does not run and what follows, and finds the
// jobs from the problems of the first view. What an instance wrote stays text.
func TestInstancesThatDoNotRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	apply := func(name, recovery, place string) string {
		job := f.cluster + "-" + name
		text := strings.NewReplacer("NAME", job, "CLUSTER", f.cluster, "RECOVERY", recovery, "PLACE", place).Replace(idle)
		f.call(http.MethodPut, "/jobs/"+job, jsonText(text), nil)
		return job
	}
	crash, person, gpu := apply("crash", `{"mode": "cluster_recover", "restart": {"attempts": 1, "delay": "1s"},
		"reschedule": {"delay": "1h", "attempts": 5, "interval": "24h"}}`, ""),
		apply("person", `"manual_recover"`, ""), apply("gpu", `"cluster_recover"`, `"gpu"`)
	p := openTab(t, f.URL, "#/jobs/"+crash)
	row := `document.querySelector("section table tbody tr")`
	p.until("it says what follows, when, what was tried, and why", row+`?.innerText.includes("goes to another agent") &&
		`+row+`.innerText.includes("1 restart") && `+row+`.innerText.includes("no <b>disk</b>") &&
		Date.parse(`+row+`.querySelector("time").dateTime) > Date.now() + 6e5 && !`+row+`.querySelector("td b")`)
	require.Empty(t, eval[[]string](p, accessible))
	p.shoot("not-running")
	p.goTo("#/jobs/" + gpu)
	p.shows("has the required capability gpu")
	p.goTo("#/jobs/" + person)
	p.shows("a person decides")

	p.goTo("#/jobs?troubled=true&cluster=" + f.cluster)
	p.until("it is listed", `[...document.querySelectorAll("tbody tr")].some((r) => r.innerText.includes("`+crash+`") &&
		r.innerText.includes("0 of 1"))`)
	require.Empty(t, eval[[]string](p, accessible))
	p.goTo("#/")
	p.until("the first view tells of them, with a link there", `[...document.querySelectorAll(".problem-row a")].some((a) =>
		a.innerText.includes("of cluster `+f.cluster+` ha") && a.hash.startsWith("#/jobs"))`)
}

// TestFailedDeploymentShowsUp finds a deployment that has failed from the first view.
func TestFailedDeploymentShowsUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	job := f.cluster + "-ranker"
	for i, version := range [][2]string{{"sleep 300", "30s"}, {"exit 3", "2s"}} {
		command, within := version[0], version[1]
		f.call(http.MethodPut, "/jobs/"+job, jsonText(`{"job": "`+job+`", "type": "service", "cluster": "`+f.cluster+`",
			"instances": {"task": {"type": "exec", "payload": {"command": ["sh", "-c", "`+command+`"]}}},
			"update": {"healthy_after": "300ms", "healthy_within": "`+within+`"}}`), nil)
		require.True(t, eventually(func() bool {
			var got struct {
				Deployments []struct {
					Version int
					Status  string
				}
			}
			f.call(http.MethodGet, "/jobs/"+job, nil, &got)
			return len(got.Deployments) == i+1 && got.Deployments[i].Version == i+1 && got.Deployments[i].Status != "running"
		}), command)
	}
	p := openTab(t, f.URL, "#/")
	p.press("Version 2 of job " + job + " of cluster " + f.cluster + " could not be deployed")
	p.shows("Deployment of version 2: instance 0 was not healthy within 2s")
	p.shows("Revert…")
	p.goTo("#/jobs?cluster=" + f.cluster)
	p.shows("deployment failed")
}
