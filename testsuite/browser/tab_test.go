package browser

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// step is something that a tab does.
type step = chromedp.Action[chromedp.Void]

// tab is a tab of the browser with its own storage. What its console complains about fails the test.
type tab struct {
	testing.TB
	ctx  context.Context
	base string

	mu       sync.Mutex
	complain []string
	expected []string // complaints that have one of these in them are no mistake
}

// busy is what the browser says of an answer that asks to try again, as a control plane on a busy machine gives.
const busy = "status of 503"

// openTab opens a page of the control plane at base.
func openTab(t testing.TB, base, hash string, before ...step) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browserFor(t), chromedp.WithNewBrowserContext())
	p := &tab{TB: t, ctx: ctx, base: base, expected: []string{busy}}
	listening, quit := context.WithCancel(ctx)
	console := chromedp.Console(listening)
	var listeners sync.WaitGroup
	listeners.Go(func() {
		for message, err := range console {
			if err != nil {
				return
			}
			p.heard(message)
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			p.shoot(strings.ReplaceAll(t.Name(), "/", "-") + "-failed")
		}
		quit()
		listeners.Wait()
		end()
		p.quiet()
	})
	p.do(window(1280, 900, false))
	p.do(before...)
	p.open(hash)
	return p
}

// heard keeps complaints: exceptions, errors on the console, requests that fail, and what the policy refused.
func (p *tab) heard(m chromedp.ConsoleMessage) {
	if !m.IsException() && m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning &&
		m.Source != "security" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complain = append(p.complain, m.String()+" "+m.URL)
}

func (p *tab) quiet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.complain {
		known := false
		for _, expected := range p.expected {
			known = known || strings.Contains(text, expected)
		}
		if !known {
			p.Errorf("the console complains: %s", text)
		}
	}
}

// expects says that a complaint with this text is no mistake in this test.
func (p *tab) expects(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, text)
}

func (p *tab) do(steps ...step) {
	p.Helper()
	require.NoError(p, chromedp.Do(p.ctx, steps...))
}

// open goes to a view and waits until it is drawn.
func (p *tab) open(hash string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base + "/" + hash))
	p.until("it is drawn", `document.querySelector("main h1") !== null && !document.querySelector("main .loading")`)
}

// goTo changes the view as a link does, without loading the page anew.
func (p *tab) goTo(hash string) {
	p.Helper()
	p.run(`location.hash = ` + strconv.Quote(hash))
	p.until(hash+" is drawn",
		`document.querySelector("main").dataset.view === location.hash && !document.querySelector("main .loading")`)
}

// eval evaluates a script that the test itself brings; the page's policy does not hold for it.
func eval[T any](p *tab, script string) T {
	p.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(p, err, "%s", script)
	return value
}

// text evaluates to a text.
func (p *tab) text(script string) string {
	p.Helper()
	return eval[string](p, script)
}

// run evaluates a script for what it does.
func (p *tab) run(script string) {
	p.Helper()
	eval[chromedp.Void](p, script)
}

// until waits until a condition holds in the page.
func (p *tab) until(what, condition string) {
	p.Helper()
	var last string
	ok := p.Context().Err() == nil && eventually(func() bool {
		holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+condition+")"))
		if err != nil {
			last = err.Error()
		}
		return holds
	})
	if !ok {
		text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		require.FailNow(p, "never: "+what, "%s\n%s", last, text)
	}
}

// shows waits until the main part shows a text.
func (p *tab) shows(text string) {
	p.Helper()
	p.until("it shows "+text, `document.querySelector("main").innerText.includes(`+strconv.Quote(text)+`)`)
}

// press clicks the newest element that has this accessible name, as a person with a pointer does.
func (p *tab) press(name string) {
	p.Helper()
	find := `[...document.querySelectorAll("button, a")].filter((e) => e.offsetParent !== null && (e.getAttribute("aria-label") ?? e.textContent.trim()) === ` + strconv.Quote(name) + `).at(-1)`
	p.until("there is "+name, find)
	at := eval[[2]float64](p,
		`(() => { const e = `+find+`; e.scrollIntoView({block: "center"}); const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()`)
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// keys types on the keyboard.
func (p *tab) keys(text string) {
	p.Helper()
	p.do(chromedp.KeyEvent(text))
}

// shortcut presses a key that types nothing.
func (p *tab) shortcut(key string) {
	p.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown,
			input.DispatchKeyEventTypeKeyUp} {
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent,
				input.DispatchKeyEventParams{Type: kind, Key: key}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// shoot keeps a picture of the page in the folder that MAINSTAY_SCREENSHOTS names.
func (p *tab) shoot(name string) {
	dir := os.Getenv("MAINSTAY_SCREENSHOTS")
	if dir == "" {
		return
	}
	if picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot()); err == nil {
		_ = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600)
	}
}

func eventually(holds func() bool) bool {
	deadline, ticker := time.After(patience), time.NewTicker(5*tick)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-deadline:
			return false
		case <-ticker.C:
		}
	}
	return true
}

// window, phone and colours change what the browser says it is.
func window(width, height int64, mobile bool) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride,
			emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1,
				Mobile: mobile})
		return err
	})
}

// onLoad runs a script before those of every page that is loaded.
func onLoad(script string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		params := page.AddScriptToEvaluateOnNewDocumentParams{Source: script}
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, params)
		return err
	})
}

func phone() step { return window(360, 740, true) }

func colours(scheme string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	})
}
