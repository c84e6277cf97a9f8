// Package browser drives the fleet page in a headless Chromium, against the real program.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
)

const (
	// requireEnv makes the tests fail, and not be skipped, where there is no browser. `make e2e` sets it.
	requireEnv = "MAINSTAY_REQUIRE_BROWSER"
	// browserEnv names the browser's program.
	browserEnv = "MAINSTAY_BROWSER"
	// patience bounds every wait; a test that passes needs little of it.
	patience = 40 * time.Second
	tick     = 20 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// shared is what the tests use together: one browser and one `mainstay dev`.
var shared struct {
	dir     string
	ends    []func()
	endings sync.Mutex
}

func run(m *testing.M) int {
	var err error
	if shared.dir, err = os.MkdirTemp("", "mainstay-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(shared.dir) }()
	defer func() {
		for _, end := range slices.Backward(shared.ends) {
			end()
		}
	}()
	return m.Run()
}

func atEnd(do func()) {
	shared.endings.Lock()
	defer shared.endings.Unlock()
	shared.ends = append(shared.ends, do)
}

// browserPath finds the browser.
func browserPath() (string, error) {
	if path := os.Getenv(browserEnv); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New(
		"there is no Chromium here: install Debian's package chromium, or name the program in " + browserEnv)
}

// theBrowser starts the browser that all tests share.
var theBrowser = sync.OnceValues(func() (context.Context, error) {
	path, err := browserPath()
	if err != nil {
		return nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(filepath.Join(shared.dir, "profile")), chromedp.WSURLReadTimeout(time.Minute))
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	browser, endBrowser := chromedp.NewContext(allocator)
	atEnd(func() { endBrowser(); endAllocator() })
	return browser, chromedp.Do(browser)
})

// browserFor is the browser, or the end of the test where there is none.
func browserFor(t testing.TB) context.Context {
	t.Helper()
	if _, err := browserPath(); err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	browser, err := theBrowser()
	require.NoError(t, err)
	return browser
}

// binary is the program, built once.
var binary = sync.OnceValues(func() (string, error) { return build.Program(shared.dir) })

// devReport is what tests read of what `dev` reports when all is up.
type devReport struct {
	URL   string `json:"url"`
	UIURL string `json:"ui_url"`

	// Where security is on: an admin's token, and the file of one that agents join with.
	token, joinFile string
}

// theDev is the `mainstay dev` that all tests share; each has a cluster of its own there.
var theDev = sync.OnceValues(func() (devReport, error) { return startDev("--agents", "1", "--ui", "127.0.0.1:0") })

// theSecuredDev asks who one is.
var theSecuredDev = sync.OnceValues(func() (devReport, error) {
	admin, adminFile, joinFile := strings.Repeat("first-admin", 4), filepath.Join(shared.dir,
		"admin"), filepath.Join(shared.dir, "join")
	for path, secret := range map[string]string{adminFile: admin, joinFile: strings.Repeat("first-join-token", 3)} {
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			return devReport{}, err
		}
	}
	report, err := startDev("--agents", "0", "--ui", "127.0.0.1:0", "--admin-token-file", adminFile,
		"--join-token-file", joinFile)
	report.token, report.joinFile = admin, joinFile
	return report, err
})

// startDev runs `mainstay dev` until all tests have ended.
func startDev(more ...string) (devReport, error) {
	var report devReport
	path, err := binary()
	if err != nil {
		return report, err
	}
	args := append([]string{"dev", "--ephemeral", "--http", "127.0.0.1:0", "--temporal", "127.0.0.1:0", "-o", "json"},
		more...)
	var stdout, stderr build.Output
	command := exec.Command(path, args...)
	command.Env = plainEnvironment()
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		return report, err
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	atEnd(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			_ = command.Process.Kill()
		}
	})
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		if json.Unmarshal([]byte(stdout.String()), &report) == nil {
			return report, nil
		}
		select {
		case <-ended:
			return report, fmt.Errorf("mainstay dev ended: %s", stderr.String())
		case <-time.After(tick):
		}
	}
	return report, fmt.Errorf("mainstay dev did not come up: %s", stderr.String())
}

func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TEMPORAL_") || strings.HasPrefix(v, "MAINSTAY_")
	})
}
