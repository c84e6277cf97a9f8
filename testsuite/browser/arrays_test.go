package browser

import (
	"net/http"
	"os"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// TestArrayIsHelpedOn finds an array in the list, sees why an element failed, and has it run again, while only the page
// is used.
func TestArrayIsHelpedOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	flag := t.TempDir() + "/repaired"
	var made struct{ ID string }
	f.call(http.MethodPost, "/arrays", map[string]any{"type": "exec", "cluster": f.cluster, "count": 24,
		"retry": map[string]any{"max_attempts": 1}, "payload": map[string]any{"command": []string{"sh", "-c",
			"[ $MAINSTAY_ELEMENT != 7 ] || [ -e " + flag + " ] || { echo disk is full >&2; exit 3; }"}}}, &made)
	p := openTab(t, f.URL, "#/arrays?cluster="+f.cluster)
	p.press(made.ID)
	p.until("it needs somebody", `document.querySelector("main header .badge").innerText.includes("blocked")`)
	p.shows("23")
	p.shows("1 of 1 attempts failed")
	p.shows("24 of 24 have ended")
	p.shoot("array")

	p.run(`window.untouched = true`)
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	p.press("Run element 7 again")
	p.until("it has ended", `document.querySelector("main header .badge").innerText.includes("completed")`)
	p.until("the page was not loaded again", `window.untouched`)
	p.until("nothing more can be done", `document.querySelector("main .actions button") === null`)
}

// TestArrayIsPaused uses the keyboard alone.
func TestArrayIsPaused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "a")
	var made struct{ ID string }
	f.call(http.MethodPost, "/arrays", map[string]any{"type": "exec", "cluster": f.cluster, "count": 500, "max_parallel": 1,
		"payload": map[string]any{"command": []string{"sleep", "0.2"}}}, &made)
	p := openTab(t, f.URL, "#/arrays/"+made.ID)
	focus := func(name string) {
		p.until(name+" is there", `[...document.querySelectorAll("button")].some((b) => b.innerText.startsWith("`+name+`"))`)
		p.run(`[...document.querySelectorAll("button")].find((b) => b.innerText.startsWith("` + name + `")).focus()`)
		p.keys(kb.Enter)
		p.until("the dialog has focus", `document.activeElement.closest("dialog") !== null`)
	}
	focus("Pause…")
	p.keys("new disks" + kb.Enter)
	p.shows("new disks")
	p.until("it is paused", `document.querySelector("main header .badge").innerText.includes("paused")`)
	focus("Resume…")
	p.keys(kb.Enter)
	p.until("it goes on", `document.querySelector("main header .badge").innerText.includes("running")`)
	focus("Cancel…")
	p.keys("not needed" + kb.Enter)
	p.until("it ends", `document.querySelector("main header .badge").innerText.includes("cancelled")`)
	p.shows("not needed")
}
