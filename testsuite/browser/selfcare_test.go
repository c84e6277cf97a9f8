package browser

import (
	"net/http"
	"testing"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// quickHealing acts on what is wrong for a second, when it is asked to look; by itself it looks once an hour.
var quickHealing = map[string]any{"self_healing": map[string]any{"patience": "1s", "cycle_interval": "1h"}}

// blockedScaling wants an agent of a spawner that is not there.
var blockedScaling = map[string]any{"desired_agents": 1, "scaling": map[string]any{"mode": "manual",
	"spawn": map[string]any{"spawner": "nowhere"}}}

// isBlocked waits until scaling has found that it cannot start agents.
func (f *fleet) isBlocked() {
	f.Helper()
	var status struct{ Blocked *struct{ Reason string } }
	require.True(f, eventually(func() bool {
		f.call(http.MethodGet, "/clusters/"+f.cluster+"/scaling", nil, &status)
		return status.Blocked != nil
	}), "scaling never became blocked")
}

// focus puts the keyboard's focus on the button with this name, as Tab does.
func (p *tab) focus(name string) {
	p.Helper()
	find := `[...document.querySelectorAll("main button")].find((e) => (e.getAttribute("aria-label") ?? e.textContent.trim()) === "` + name + `")`
	p.until("there is "+name, find)
	p.run(find + `.focus()`)
}

// choose goes down the choice that has the focus by the keyboard, and confirms the dialog.
func (p *tab) choose(value string) {
	p.Helper()
	for range 2 {
		if p.text(`document.activeElement.value`) != value {
			p.keys(kb.ArrowDown)
		}
	}
	p.until("it is chosen", `document.activeElement.value === "`+value+`"`)
	p.keys(kb.Tab + kb.Tab + kb.Enter)
}

// TestHealingShowsUp lets an agent fall ill while the page is open, and has healing act by a click.
func TestHealingShowsUp(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	f := newFleet(t, quickHealing, "a", "b")
	falls := f.illAgent("ill")
	p := openTab(t, f.URL, "#/healing?cluster="+f.cluster)
	p.shows("No action matches.")
	p.run(`window.untouched = true`)
	falls()
	p.press("Run a cycle now…")
	p.until("the dialog is open", `document.querySelector("dialog[open] select").value === "`+f.cluster+`"`)
	p.press("Run the cycle")
	p.until("what the cycle decided is told", `document.querySelector("#toasts").innerText.includes("1 action begun")`)
	item := `[...document.querySelectorAll("main .cards li")].find((e) => e.innerText.includes("Drain ` + f.name(
		"ill") + `"))`
	p.until("what was seen is told", item+`?.innerText.includes("disk errors")`)
	p.until("and what came of it",
		item+`?.innerText.includes("succeeded") && `+item+`.innerText.includes("out of service until it is healthy")`)
	p.until("and where more is",
		item+`.querySelector("a[href^='#/drains']") && `+item+`.querySelector("a.out").href.includes("healing%2F`+f.cluster+`%2Fdrain_agent")`)
	p.until("the page was not loaded again", `window.untouched === true`)

	p.press(f.name("ill"))
	p.shows("Drain " + f.name("ill"))
	p.goTo("#/clusters/" + f.cluster)
	p.shows("Healing took agent " + f.name("ill") + " of cluster " + f.cluster + " out of service")
}

// TestHealingLeavesTheLastAgentAlone shows what healing must not do, and why.
func TestHealingLeavesTheLastAgentAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, quickHealing)
	falls := f.illAgent("ill")
	p := openTab(t, f.URL, "#/healing?cluster="+f.cluster)
	falls()
	p.focus("What would it do now?")
	p.keys(kb.Enter)
	p.shows("What it would do now")
	p.shows("no healthy agent would be left")
	p.goTo("#/")
	p.shows("Agent " + f.name("ill") + " of cluster " + f.cluster + " is degraded, and healing must not act")
}

// TestHealingIsPausedByKeyboard pauses healing everywhere: other tests ask for their cycles themselves.
func TestHealingIsPausedByKeyboard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, quickHealing)
	p := openTab(t, f.URL, "")
	p.shortcut("g")
	p.shortcut("h")
	p.until("g h shows healing",
		`location.hash === "#/healing" && document.querySelector("h1").innerText === "Healing"`)
	p.focus("Pause healing…")
	p.keys(kb.Enter)
	p.until("the dialog has focus", `document.activeElement.closest("dialog") !== null`)
	p.keys("kernels" + kb.Enter)
	p.shows("Paused: no cycle begins by itself. kernels")
	p.goTo("#/")
	p.until("it is a problem, of its own or of agents of other tests that are ill",
		`/healing is paused/i.test(document.querySelector("main").innerText)`)
	p.press("Resume healing…")
	p.press("Resume healing")
	p.until("the problem is gone", `!/healing is paused/i.test(document.querySelector("main").innerText)`)
	p.goTo("#/healing")
	p.until("it is on", `document.querySelector("main header .badge").innerText.includes("on")`)
	p.focus("Change healing of cluster " + f.cluster)
	p.keys(kb.Enter)
	p.until("the choice has focus", `document.activeElement.name === "mode"`)
	p.choose("dry_run")
	p.until("the mode is another",
		`[...document.querySelectorAll("main tr")].some((r) => r.innerText.includes("`+f.cluster+`") && r.innerText.includes("dry run"))`)
}

func TestBlockedScalingIsShown(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	f := newFleet(t, nil)
	p := openTab(t, f.URL, "#/scaling?cluster="+f.cluster)
	p.shows("off everywhere")
	p.run(`window.untouched = true`)
	f.call(http.MethodPatch, "/clusters/"+f.cluster, blockedScaling, nil)
	p.shows("Agents cannot be started: spawner nowhere does not answer")
	p.shows("Could not start 1 agent")
	p.until("the page was not loaded again", `window.untouched === true`)
	p.goTo("#/")
	p.shows("Scaling cannot start agents of cluster " + f.cluster + ": 1 of 1 are missing")
	p.goTo("#/clusters/" + f.cluster)
	p.shows("spawner nowhere does not answer")
	p.focus("Change scaling of cluster " + f.cluster)
	p.keys(kb.Enter)
	p.until("the choice has focus", `document.activeElement.name === "mode"`)
	p.choose("off")
	p.until("it is off", `!document.querySelector("main").innerText.includes("Agents cannot be started")`)
}

// TestScaledByClick has the dev spawner start an agent and stop it.
func TestScaledByClick(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	p := openTab(t, f.URL, "")
	p.shortcut("g")
	p.shortcut("s")
	p.until("g s shows scaling",
		`location.hash === "#/scaling" && document.querySelector("h1").innerText === "Scaling"`)
	p.goTo("#/scaling?cluster=" + f.cluster)
	scale := func(to string) {
		t.Helper()
		p.press("Scale cluster " + f.cluster)
		p.until("the dialog has focus", `document.activeElement.name === "desired"`)
		p.run(`document.activeElement.select()`)
		p.keys(to)
		p.press("Scale")
	}
	p.expects("status of 422")
	scale("many")
	p.until("the mistake is said", `document.querySelector("dialog [role=alert]").innerText.includes("whole number")`)
	p.keys(kb.Escape)
	scale("1")
	p.shows("Started 1 agent")
	p.until("it counts",
		`document.querySelector("main .amount").innerText.includes("1 agent") && document.querySelector("main .amount").innerText.includes("1 wanted")`)
	scale("0")
	p.shows("Stopped 1 agent")
	p.until("it counts", `document.querySelector("main .amount").innerText.includes("0 agents")`)
}
