package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// signIn types a token into the form, as a person does.
func (p *tab) signIn(token string) {
	p.Helper()
	p.until("the form waits for a token",
		`document.querySelector("main h1").innerText === "Sign in" && document.activeElement.name === "token"`)
	p.keys(token + kb.Enter)
}

func TestSigningIn(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil, "a")
	file := filepath.Join(t.TempDir(), "mended")
	task := f.submit("dead", "test -e "+file, map[string]any{"retry": map[string]any{"max_attempts": 1}})
	f.becomes(task, "dead_letter")
	p := openTab(t, f.URL, "#/dead-letters?cluster="+f.cluster)
	p.expects("status of 401")
	p.until("the form stays, alone",
		`performance.now() > 1000 && document.querySelectorAll("main > .signin").length === 1 && document.querySelector("main").children.length === 1`)
	p.until("nothing else is offered",
		`document.querySelector("#nav").offsetParent === null && document.querySelector("#live").innerText === "" && document.title === "Sign in · Mainstay"`)
	p.shoot("sign-in")
	p.signIn("wrong")
	p.shows("This token is not valid")
	p.signIn(f.token) // in place of what was typed
	p.shows(task)
	p.until("the stream is there", `document.querySelector("#live").innerText === "Live"`)
	require.Empty(t, p.text("document.cookie"), "no script can read the session")
	const look = `fetch("/api/v1/agents/overview",
		{headers: {"X-Mainstay-Session-Key": localStorage.getItem("mainstay-session-key")}}).then((r) => r.status)`
	require.EqualValues(t, http.StatusOK, eval[int](p, look))
	require.EqualValues(t, http.StatusUnauthorized, eval[int](p,
		`fetch("/api/v1/agents/overview").then((r) => r.status)`), "a cookie alone is no session")

	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.press("Retry " + task)
	f.becomes(task, "completed")
	p.shows("No dead letters.")

	p.goTo("#/")
	p.run(`window.told = []; new MutationObserver(() => window.told.push(document.querySelector("#announce").textContent)).observe(document.querySelector("#announce"), {childList: true, subtree: true, characterData: true})`)
	f.kill("a")
	p.until("an event tells what happened", `window.told.some((text) => text.includes("`+f.name("a")+` was lost"))`)

	p.press("Sign out")
	p.until("the form is back", `document.querySelector("main > .signin") !== null`)
	require.EqualValues(t, http.StatusUnauthorized, eval[int](p, look), "the session is over")
}

// TestRevokedSession takes the token away from somebody who looks at the page.
func TestRevokedSession(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil)
	token := f.newToken(map[string]any{"role": "operator"})
	p := openTab(t, f.URL, "#/clusters/"+f.cluster)
	p.expects("status of 401")
	p.signIn(token.Secret)
	p.shows("No agent yet.")
	f.call(http.MethodDelete, "/tokens/"+token.ID, nil, nil)
	p.until("it asks again",
		`document.querySelector("main > .signin") !== null && !document.querySelector("main").innerText.includes("No agent yet.")`)
	p.signIn(token.Secret)
	p.shows("This token is not valid, or is no longer.")
}

func TestViewerIsToldWhyNot(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil, "a")
	task := f.submit("dead", "exit 3", map[string]any{"retry": map[string]any{"max_attempts": 1}})
	f.becomes(task, "dead_letter")
	p := openTab(t, f.URL, "#/dead-letters?cluster="+f.cluster)
	p.expects("status of 401")
	p.expects("status of 403")
	p.signIn(f.newToken(map[string]any{"role": "viewer"}).Secret)
	p.press("Retry " + task)
	const why = "this needs the role operator, and your token has the role viewer"
	p.until("the reason is said", `document.querySelector("#toasts").innerText.includes("`+why+`")`)
	p.goTo("#/clusters/" + f.cluster)
	p.press("Pause…")
	p.until("the dialog is open", `document.querySelector("dialog[open]") !== null`)
	p.press("Pause")
	p.until("the dialog says it too", `document.querySelector("dialog [role=alert]").innerText.includes("`+why+`")`)
	p.shoot("viewer")
	f.becomes(task, "dead_letter")
}

// TestCancelUnderWayIsShown has a command that does not stop when it is asked to. That it is under way lasts for seconds, so
// the page goes on hearing what the API said of it.
func TestCancelUnderWayIsShown(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil, "a")
	task := f.submit("stubborn", "trap '' TERM; sleep 300", nil)
	f.becomes(task, "running")
	p := openTab(t, f.URL, "#/tasks/"+task, onLoad(`
		const get = window.fetch;
		let cancelling;
		window.fetch = async (url, options) => {
			const answer = await get(url, options);
			if (!answer.ok || !String(url).includes("/tasks/`+task+`")) return answer;
			const body = await answer.json();
			if (String(url).endsWith("/cancel")) cancelling = body.cancelling;
			return Response.json({ ...body, cancelling });
		};`))
	p.expects("status of 401")
	p.signIn(f.newToken(map[string]any{"role": "operator"}).Secret)
	p.press("Cancel…")
	p.keys("too dear")
	p.press("Cancel the task")
	p.until("it says that it is under way, and who asked",
		`/being cancelled by `+f.cluster+` \(.+\): too dear/.test(document.querySelector("main").innerText)`)
	p.until("the history has it", `[...document.querySelectorAll("tr")].some((row) =>
		["cancel asked", "`+f.cluster+` (", "too dear"].every((word) => row.innerText.includes(word)))`)
}

// TestOneTenantsPage: views of the whole fleet say why they are not for a tenant's token; its tasks are shown.
func TestOneTenantsPage(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil)
	mine := f.submit("mine", "true", map[string]any{"tenant": "acme"})
	other := f.submit("other", "true", map[string]any{"tenant": "beta"})
	p := openTab(t, f.URL, "")
	p.expects("status of 401")
	p.expects("status of 403")
	p.signIn(f.newToken(map[string]any{"role": "operator", "tenant": "acme"}).Secret)
	p.shows("your token is of one tenant")
	p.goTo("#/tasks?cluster=" + f.cluster)
	p.shows(mine)
	p.until("another's is not there", `!document.querySelector("main").innerText.includes("`+other+`")`)
	p.until("the stream is there", `document.querySelector("#live").innerText === "Live"`)
}

// TestWebUIAsksForAnAdmin opens the Web UI with the fleet page's session, which is not good there, then with an
// operator's token and an admin's as password.
func TestWebUIAsksForAnAdmin(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, theSecuredDev, nil)
	p := openTab(t, f.URL, "#/clusters/"+f.cluster)
	p.expects("status of 401")
	p.expects("status of 403")
	p.expects(strings.TrimPrefix(f.UIURL, "http://")) // the Web UI's own complaints are not ours
	p.signIn(f.token)
	p.shows("No agent yet.")
	response, err := http.Get(f.UIURL)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	require.Contains(t, response.Header.Get("WWW-Authenticate"), "an admin's API token as password")
	open := func(token string) {
		p.do(chromedp.Navigate(strings.Replace(f.UIURL, "://", "://me:"+token+"@", 1) + "/namespaces/default/workflows"))
	}
	open(f.newToken(map[string]any{"role": "operator"}).Secret)
	p.until("an operator is refused", `document.body.innerText.includes("this needs the role admin")`)
	open(f.token)
	p.until("its workflows are there", `document.body.innerText.includes("cluster/`+f.cluster+`")`)
	p.shoot("web-ui-secured")
}

type newToken struct {
	ID     string
	Secret string `json:"token"`
}

// newToken makes an API token, as the admin.
func (f *fleet) newToken(request map[string]any) newToken {
	f.Helper()
	request["name"] = f.cluster
	var token newToken
	f.call(http.MethodPost, "/tokens", request, &token)
	return token
}
