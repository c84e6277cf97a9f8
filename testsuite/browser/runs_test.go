package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// diamond runs a job whose step right fails and then waits for a person, and whose last step waits for approval.
const diamond = `{"job": "NAME", "cluster": "CLUSTER", "safety": "idempotent", "steps": {
	"start": {"task": {"type": "exec", "payload": {"command": ["true"]}}},
	"left": {"after": ["start"], "for_each": "['x', 'y']", "task": {"type": "exec", "payload": {"command": ["true"]}}},
	"right": {"after": ["start"], "on_failure": "hold", "retry": {"max_attempts": 1},
		"task": {"type": "exec", "payload": {"command": ["sh", "-c", "echo disk is full >&2; exit 3"]}}},
	"merge": {"after": ["left", "right"], "output": {"said": "result.stdout"},
		"task": {"type": "exec", "payload": {"command": ["echo", "all is merged"]}}},
	"publish": {"after": ["merge", "start"], "approve": {"message": "Publish it?"}}}}`

// run applies a definition and starts a run of it.
func (f *fleet) run(definition string) (job, id string) {
	f.Helper()
	job = f.cluster + "-job"
	text := strings.NewReplacer("NAME", job, "CLUSTER", f.cluster).Replace(definition)
	f.call(http.MethodPut, "/jobs/"+job, jsonText(text), nil)
	var started struct{ ID string }
	f.call(http.MethodPost, "/jobs/"+job+"/dispatch", map[string]any{}, &started)
	return job, started.ID
}

// jsonText is JSON that is sent as it is.
type jsonText string

func (t jsonText) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// TestRunIsHelpedOn follows a run on its page, from the step that fails to its end, while only the page is used.
func TestRunIsHelpedOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	job, id := f.run(diamond)
	p := openTab(t, f.URL, "#/runs?job="+job)
	p.press(id)
	p.until("the failure is shown", `document.querySelector("main header .badge").innerText.includes("blocked")`)
	p.shows("disk is full")
	p.until("steps stand by level, and a line leads to each from those before it", `(() => {
		const nodes = [...document.querySelectorAll(".node")];
		const left = (step) => nodes.find((n) => n.innerText.startsWith(step)).getBoundingClientRect().left;
		return left("start") < left("left") && left("left") === left("right") && left("right") < left("merge") &&
			left("merge") < left("publish") && document.querySelectorAll(".graph .line").length === 8;
	})()`)
	p.until("each attempt has a bar and its agent", `(() => {
		const rows = [...document.querySelectorAll(".timeline li")].map((e) => e.innerText);
		return rows.length === 4 && rows.every((text) => text.includes("`+f.name("a")+`"));
	})()`)

	p.expects("status of 409")
	p.run(`window.untouched = true`)
	p.press("It was done: right")
	p.keys("{no json" + kb.Tab + "copied by hand")
	p.press("It was done")
	p.until("the mistake is said", `document.querySelector("dialog [role=alert]").innerText.includes("not JSON")`)
	p.keys(strings.Repeat(kb.Backspace, len("{no json")) + `{"rows": 7}`)
	p.press("It was done")
	p.shows("Publish it?")
	p.shows("copied by hand")

	p.press("Approve: publish")
	f.call(http.MethodPost, "/runs/"+id+"/steps/publish/approve", map[string]any{"reason": "a colleague was faster"}, nil)
	p.press("Approve")
	p.until("the API's refusal is shown", `document.querySelector("dialog [role=alert]").innerText.length > 20`)
	p.keys(kb.Escape)
	p.shows("a colleague was faster")
	p.until("the run has ended", `document.querySelector("main header .badge").innerText.includes("completed")`)
	p.until("the page was not loaded again", `window.untouched`)
	p.shows("Run again…")
	p.goTo("#/jobs")
	p.shows(job)
	p.shoot("jobs")
}

// TestRunIsPausedAndCancelled uses the keyboard alone.
func TestRunIsPausedAndCancelled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	_, id := f.run(strings.Replace(diamond, `"true"`, `"sleep", "300"`, 1))
	p := openTab(t, f.URL, "#/runs/"+id)
	p.until("its step runs", `[...document.querySelectorAll(".node")].some((n) =>
		n.innerText.includes("running") && n.innerText.includes("`+f.name("a")+`"))`)
	focus := func(name string) {
		p.run(`[...document.querySelectorAll("button")].find((b) => b.innerText.startsWith("` + name + `")).focus()`)
		p.keys(kb.Enter)
		p.until("the dialog has focus", `document.activeElement.closest("dialog") !== null`)
	}
	focus("Pause…")
	p.keys(kb.Tab + "new disks" + kb.Enter)
	p.shows("new disks")
	p.until("it is paused", `document.querySelector("main header .badge").innerText.includes("paused")`)
	focus("Resume…")
	p.keys(kb.Enter)
	p.until("it goes on", `[...document.querySelectorAll("button")].some((b) => b.innerText === "Pause…")`)
	focus("Cancel…")
	p.keys("not needed" + kb.Enter)
	p.until("it ends", `document.querySelector("main header .badge").innerText.includes("cancelled")`)
	focus("Run again…")
	p.keys(kb.Tab + kb.Enter)
	p.until("the new run is shown", `location.hash !== "#/runs/`+id+`" &&
		document.querySelector("main").innerText.includes("again after")`)
	again := strings.TrimPrefix(p.text(`location.hash`), "#/runs/")
	require.NotEqual(t, id, again)
	f.call(http.MethodPost, "/runs/"+again+"/cancel", nil, nil)

	p.run(`[...document.querySelectorAll(".node")].at(-1).focus()`)
	p.keys(kb.Enter)
	p.until("a node leads to its step", `document.activeElement.id.startsWith("step-")`)
}

// TestBatchJobIsPaused goes from the runs of a job to its page, and pauses and resumes it there.
func TestBatchJobIsPaused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	job, _ := f.run(strings.Replace(diamond, `"safety"`, `"on": [{"schedule": {"interval": "24h"}}], "safety"`, 1))
	p := openTab(t, f.URL, "#/runs?job="+job)
	p.press("Job " + job)
	p.shows("Next runs")
	p.shows("Show its runs")
	require.Empty(t, eval[[]string](p, accessible))
	p.press("Pause…")
	p.press("Pause the job")
	p.shows("Paused for")
	p.press("Resume…")
	p.press("Resume the job")
	p.until("it is not paused any more", `!document.querySelector("main").innerText.includes("Paused for")`)
	p.until("it has no instances to stop", `!document.querySelector("main").innerText.includes("healthy") &&
		![...document.querySelectorAll("main button")].some((b) => b.innerText.startsWith("Stop"))`)
}
