package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

func TestOverview(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]any{"replication_mode": "active_passive", "min_agents": 2}, "a", "b")
	p := openTab(t, f.URL, "")
	p.shows(f.cluster)
	p.until("the stream is there", `document.querySelector("#live").innerText === "Live"`)
	p.until("its card says who leads",
		`[...document.querySelectorAll(".card")].some((c) => c.innerText.includes("`+f.cluster+`") && c.innerText.includes("led by `+f.cluster+`"))`)
	p.press(f.cluster)
	p.shows("Topology")
	p.until("the topology has leader and standby",
		`[...document.querySelectorAll(".topology h3")].map((e) => e.innerText).join() === "Leader,Standbys"`)
	require.Equal(t, "Cluster "+f.cluster+" · Mainstay", p.text("document.title"))
	p.until("focus is on the heading", `document.activeElement.tagName === "H1"`)
}

// TestFocusAfterALateAnswer has the view that is left be drawn once more after the address has changed, and before the
// page is told of that.
func TestFocusAfterALateAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]any{}, "a")
	p := openTab(t, f.URL, "#/clusters")
	p.shows(f.cluster)
	p.run(`window.kept = {}; window.real = window.fetch;
		window.fetch = async (url, request) => {
			const answer = await real(url, request);
			if (!url.includes("/events")) kept[url] = await answer.clone().text();
			return answer;
		};
		document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "r", bubbles: true}))`)
	p.until("an answer is kept", `Object.keys(kept).some((url) => url.includes("clusters"))`)
	p.run(`window.fetch = (url, request) => kept[url] === undefined ? real(url, request)
			: Promise.resolve({ok: true, status: 200, text: () => Promise.resolve(kept[url])});
		document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "r", bubbles: true}));
		location.hash = "#/agents"`)
	p.shows(f.name("a"))
	p.until("focus is on the heading", `document.activeElement.tagName === "H1" && document.activeElement.innerText === "Agents"`)
}

// TestKillShowsUp kills an agent that leads and runs a task, while nobody touches the page.
func TestKillShowsUp(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	f := newFleet(t, map[string]any{"min_agents": 1, "desired_agents": 2}, "a", "b")
	task := f.submit("long", "sleep 300", nil)
	f.becomes(task, "running")
	p := openTab(t, f.URL, "#/clusters/"+f.cluster)
	p.until("both are online", `document.querySelectorAll("tbody .badge.t-ok").length >= 2`)
	p.run(`window.untouched = true; document.querySelector("main h1").focus(); window.told = [];
		new MutationObserver(() => window.told.push(document.querySelector("#announce").textContent)).observe(document.querySelector("#announce"), {childList: true, subtree: true, characterData: true})`)
	f.kill("a")
	p.until("it shows as lost",
		`[...document.querySelectorAll("tbody tr")].some((r) => r.innerText.includes("`+f.name(
			"a")+`") && r.innerText.includes("lost"))`)
	p.shows(f.cluster + " has 1 of 2 desired agents online")
	p.until("its failover is listed", `document.querySelector("main").innerText.includes("succeeded")`)
	p.until("the page was not loaded again", `window.untouched === true && document.activeElement.tagName === "H1"`)
	p.goTo("#/")
	p.shows("has 1 of 2 desired agents online")
	p.until("it was read out", `window.told.some((text) => text.includes("`+f.name("a")+` was lost"))`)
	p.shoot("kill")
}

// TestEventsThatComeTogetherAreReadOut: a busy browser reads several events in one turn, and a person who hears the
// page must hear each of them.
func TestEventsThatComeTogetherAreReadOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	p := openTab(t, f.URL, "", onLoad(`
		const get = window.fetch;
		const event = (id, type) => {
			const data = { id, type: "dev.mainstay." + type, data: { agent_id: "agent-" + id } };
			return "id: " + id + "\ndata: " + JSON.stringify(data) + "\n\n";
		};
		window.fetch = async (url, options) => {
			if (!String(url).includes("/events")) return get(url, options);
			const body = new ReadableStream({ start(stream) {
				stream.enqueue(new TextEncoder().encode(event("1", "agent.lost") + event("2", "agent.recovered")));
			} });
			return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
		};`))
	p.until("both are read out", `["agent-1 was lost", "agent-2 is back"].every((text) =>
		document.querySelector("#announce").textContent.includes(text))`)
}

func TestDeadLetterIsRetriedByClick(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	file := filepath.Join(t.TempDir(), "mended")
	task := f.submit("dead", "echo cannot reach the printer >&2; test -e "+file,
		map[string]any{"retry": map[string]any{"max_attempts": 1}})
	f.becomes(task, "dead_letter")
	p := openTab(t, f.URL, "#/dead-letters?cluster="+f.cluster)
	p.shows("cannot reach the printer")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.press("Retry " + task)
	f.becomes(task, "completed")
	p.shows("No dead letters.")
	p.until("it is said", `document.querySelector("#toasts").innerText.includes("`+task+`")`)

	p.goTo("#/tasks/" + task)
	p.until("both attempts are told", `document.querySelectorAll(".timeline li").length === 2`)
	p.shows("failed")
	p.shows("completed")
}

func TestDeadLetterIsDiscarded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	task := f.submit("dead", "exit 3", map[string]any{"retry": map[string]any{"max_attempts": 1}})
	f.becomes(task, "dead_letter")
	p := openTab(t, f.URL, "#/tasks/"+task)
	p.press("Discard…")
	p.press("Discard")
	p.until("a reason is wanted", `document.querySelector("dialog :invalid") !== null`)
	p.keys("not needed")
	p.press("Discard")
	f.becomes(task, "failed")
	p.until("the dialog is gone", `document.querySelector("dialog") === null`)
	p.shows("not needed")
}

func TestReviewIsDecided(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	task := f.submit("once", "sleep 300", map[string]any{"retry_safety": "at_most_once"})
	f.becomes(task, "running")
	f.kill("a")
	f.becomes(task, "review")
	p := openTab(t, f.URL, "#/reviews?cluster="+f.cluster)
	p.shows("may have begun this at_most_once task")
	p.press(task + " was done")
	p.until("the dialog has focus", `document.activeElement.closest("dialog") !== null`)
	p.keys("{not json")
	p.press("It was done")
	p.until("the mistake is said", `document.querySelector("dialog [role=alert]").innerText.includes("not JSON")`)
	p.keys(strings.Repeat(kb.Backspace, len("{not json")) + `{"receipt": 7}` + kb.Tab + "the bank has it")
	p.press("It was done")
	f.becomes(task, "completed")
	p.shows("Nothing waits for a decision.")
	p.goTo("#/tasks/" + task)
	p.shows(`"receipt": 7`)
	p.shows("completed: the bank has it")
}

// TestAgentsBetweenOnlineAndLost has an agent stop with work. The other two statuses last for seconds, so they are put
// into the API's answers.
func TestAgentsBetweenOnlineAndLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "suspect", "silent")
	f.agent("stops", "--stop-timeout", "10m")
	f.becomes(f.submit("long", "sleep 300", map[string]any{"agent": f.name("stops")}), "running")
	require.NoError(t, syscall.Kill(f.pids["stops"], syscall.SIGTERM))
	require.True(t, eventually(func() bool { return f.status("stops") == "stopping" }))
	others := onLoad(`
		const get = window.fetch, others = {
			"` + f.name("suspect") + `": ["suspect", "its connection closed"],
			"` + f.name("silent") + `": ["warning", "silent for longer"],
		};
		window.fetch = async (url, options) => {
			const answer = await get(url, options);
			if (!answer.ok || !/\/agents(\?|\/web-|$)/.test(url)) return answer;
			const body = await answer.json();
			for (const a of body.agents ?? [body])
				if (others[a.id]) [a.status, a.status_reason] = others[a.id];
			return Response.json(body);
		};`)
	for _, scheme := range []string{"light", "dark"} {
		p := openTab(t, f.URL, "#/agents?cluster="+f.cluster, colours(scheme), others)
		for agent, words := range map[string][2]string{
			"stops":   {"stopping", "it finishes what it has, and then leaves"},
			"suspect": {"not answering", "its connection closed"},
			"silent":  {"warning", "silent for longer"},
		} {
			p.until(agent+" is "+words[0], `[...document.querySelectorAll("main tr")].some((row) =>
				row.querySelector("a")?.innerText === "`+f.name(agent)+`" &&
				row.querySelector(".badge").innerText.endsWith("`+words[0]+`") && row.innerText.includes("`+words[1]+`"))`)
		}
		require.Empty(t, eval[[]string](p, accessible), scheme)
		p.shoot("between-" + scheme)
		p.goTo("#/agents/" + f.name("stops"))
		p.until("it says so by itself", `document.querySelector("main header .badge").innerText.endsWith("stopping")`)
	}
}

func TestRefusalIsShown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	p := openTab(t, f.URL, "#/agents/"+f.name("a"))
	p.expects("status of 422")
	p.press("Fail over…")
	p.until("the dialog is open", `document.querySelector("dialog[open]") !== null`)
	p.keys(f.name("a"))
	p.press("Move it")
	p.until("the API's reason is shown",
		`document.querySelector("dialog [role=alert]").innerText.includes("must be another agent")`)
	p.keys(kb.Escape)
	p.until("the dialog is gone", `document.querySelector("dialog") === null`)
}

func TestPauseAndMaintenance(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	p := openTab(t, f.URL, "#/clusters/"+f.cluster)
	p.press("Pause…")
	p.keys("disks")
	p.press("Pause")
	p.shows("Paused for")
	task := f.submit("waits", "true", nil)
	p.goTo("#/tasks/" + task)
	p.shows("is paused since")
	p.shows("disks")
	p.goTo("#/clusters/" + f.cluster)
	p.press("Resume…")
	p.press("Resume")
	f.becomes(task, "completed")
	p.goTo("#/agents/" + f.name("a"))
	p.press("Maintenance…")
	p.press("Put into maintenance")
	p.shows("maintenance for")
	p.press("End maintenance…")
	p.press("End maintenance")
	p.until("it is online again", `document.querySelector("main header .badge").innerText.includes("online")`)
	f.call(http.MethodPost, "/"+f.name("a")+"/drain", map[string]any{"dry_run": true}, nil)
	p.goTo("#/drains?cluster=" + f.cluster)
	p.until("a dry run is no plan", `document.querySelector("main .badge")?.innerText.includes("dry run")`)
}

// TestKeyboard does without a pointer.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	task := f.submit("mine", "true", nil)
	f.becomes(task, "completed")
	p := openTab(t, f.URL, "")
	p.keys(kb.Tab)
	p.until("the first stop skips to the content",
		`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	p.keys(kb.Enter)
	p.until("the content has focus", `document.activeElement.id === "main"`)
	p.shortcut("g")
	p.shortcut("a")
	p.until("g a shows agents", `location.hash === "#/agents" && document.querySelector("h1").innerText === "Agents"`)
	p.shortcut("/")
	p.until("/ goes to the search", `document.activeElement.name === "q"`)
	p.expects("status of 404") // of three places, one knows it
	p.keys(task + kb.Enter)
	p.until("the task is shown",
		`location.hash === "#/tasks/`+task+`" && document.querySelector("h1").innerText === "`+task+`"`)
	p.shortcut("?")
	p.until("? shows the keys", `document.querySelector("dialog[open]").innerText.includes("Overview")`)
	p.keys(kb.Escape)
	p.until("Escape closes it", `document.querySelector("dialog") === null`)

	// Every stop has a visible focus.
	for range 12 {
		p.keys(kb.Tab)
		p.until("focus is visible",
			`(() => { const e = document.activeElement, s = getComputedStyle(e); return e === document.body || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1; })()`)
	}
}

// TestStreamIsLost cuts the browser off and lets it come back.
func TestStreamIsLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	wire := newWire(t, f.URL)
	p := openTab(t, wire.url, "#/clusters/"+f.cluster)
	p.expects("net::ERR_")
	p.until("it is live", `document.querySelector("#live").innerText === "Live"`)
	wire.cut(true)
	p.until("it says that nothing answers", `document.querySelector("#trouble").innerText.includes("does not answer")`)
	p.shows(f.name("a")) // what was known stays
	p.shoot("cut-off")
	f.agent("late")
	wire.cut(false)
	p.until("it is live again",
		`document.querySelector("#live").innerText === "Live" && document.querySelector("#trouble").innerText === ""`)
	p.shows(f.name("late"))
}

// TestHiddenTabFollowsNothing hides the tab and shows it again.
func TestHiddenTabFollowsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	p := openTab(t, f.URL, "#/clusters/"+f.cluster)
	p.until("it is live", `document.querySelector("#live").innerText === "Live"`)
	hide := func(hidden bool) {
		p.run(fmt.Sprintf(`Object.defineProperty(document, "hidden", { value: %t, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	hide(true)
	p.until("it is not live", `document.querySelector("#live").innerText !== "Live"`)
	f.agent("late")
	hide(false)
	p.until("it is live again", `document.querySelector("#live").innerText === "Live"`)
	p.shows(f.name("late"))
}

func TestUnknownThings(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	p := openTab(t, f.URL, "#/nowhere")
	p.shows("There is nothing here")
	p.expects("status of 404")
	p.run(`location.hash = "#/tasks/none-such"`)
	p.shows("Not found")
	p.run(`location.hash = "#/clusters/` + f.cluster + `"`)
	p.shows("No agent yet.")
}

// TestHostileText has a task say what would be markup.
func TestHostileText(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	task := f.submit("hostile", "echo '"+strings.ReplaceAll(hostile, "'", `'\''`)+"' >&2; exit 1",
		map[string]any{"retry": map[string]any{"max_attempts": 1},
			"labels": map[string]string{"note": `"><b>bold</b>`}})
	f.becomes(task, "dead_letter")
	p := openTab(t, f.URL, "#/dead-letters?cluster="+f.cluster)
	p.shows("onerror=")
	p.goTo("#/tasks/" + task)
	p.shows("<b>bold</b>")
	p.until("nothing of it became an element",
		`document.querySelectorAll("main img, main script, main b:not(.count)").length === 0 && !document.title.includes("owned")`)
}

func TestTemporalLinks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	task := f.submit("linked", "true", nil)
	f.becomes(task, "completed")
	p := openTab(t, f.URL, "#/tasks/"+task)
	link := p.text(`document.querySelector("a.out").href`)
	require.True(t, strings.HasPrefix(link, f.UIURL+"/namespaces/default/workflows/task%2F"+task), link)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
}
