package everyday

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
)

// patience bounds the start of the control plane, and each case; both need little of it.
const patience = 2 * time.Minute

// prelude is what each script begins with.
const prelude = `
eventually() {
	left=100
	until out=$(eval "$1" 2>&1); printf %s "$out" | grep -qF -- "$2"; do
		left=$((left - 1)); [ $left -gt 0 ] || { echo "never \"$2\", but at last:"; printf '%s\n' "$out"; exit 1; }
		sleep 0.1
	done
	printf '%s\n' "$out"
}
problem() {
	found=$(curl -s "$API/agents/overview" | grep -o "\"kind\":\"$1\",\"cluster\":\"$ID\"") && echo there || echo gone
}
agent() {
	mainstay agent run --hub "${API%/api*}" --cluster "$ID" --allow-exec --health '' "$@" >agent.log 2>&1 &
	agents="$agents $!"
}
trap 'kill $agents 2>/dev/null' EXIT
`

// atATime is how many cases run side by side: they wait much of their time.
const atATime = 6

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(atATime)); err != nil { // before Parse: -parallel counts more
		panic(err)
	}
	os.Exit(m.Run())
}

// TestEveryday runs all cases against one `mainstay dev`.
func TestEveryday(t *testing.T) {
	t.Parallel()
	cases, err := Read("cases")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	program, err := build.Program(t.TempDir())
	require.NoError(t, err)
	url := startDev(t, program)
	t.Run("cases", func(t *testing.T) { // ends when all its cases have, before the control plane
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				exit, output := run(t, c, program, url)
				for _, wrong := range c.Check(exit, output) {
					t.Errorf("%s: %s", c.Where, wrong)
				}
				if t.Failed() {
					t.Logf("%s\n--- said:\n%s", c.Script, output)
				}
			})
		}
	})
}

// startDev starts a control plane with three agents and returns its address. All of it ends with the test.
func startDev(t *testing.T, program string) string {
	dir := t.TempDir()
	var stdout, stderr build.Output
	dev := exec.Command(program, "dev", "--data-dir", filepath.Join(dir, "data"), "--http", "127.0.0.1:0",
		"--temporal", "127.0.0.1:0", "--ui", "off", "--slots", "16", "-o", "json")
	dev.Env = environment()
	dev.Stdout, dev.Stderr = &stdout, &stderr
	require.NoError(t, dev.Start())
	ended := make(chan struct{})
	go func() { _ = dev.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = dev.Process.Kill() // it may have ended just now
			t.Error("the control plane does not stop")
		}
		if t.Failed() {
			t.Logf("dev said:\n%s", stderr.String())
		}
	})
	var report struct{ URL string }
	require.Eventually(t, func() bool {
		return json.Unmarshal([]byte(stdout.String()), &report) == nil && report.URL != ""
	}, patience, 20*time.Millisecond, "dev said:\n%s", &stderr)
	return report.URL
}

func run(t *testing.T, c Case, program, url string) (int, string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	docs, err := filepath.Abs("../../docs")
	require.NoError(t, err)
	shell := exec.CommandContext(ctx, "sh", "-c", prelude+c.Script)
	shell.Dir = t.TempDir()
	shell.Env = append(environment(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "MAINSTAY_SERVER="+url,
		"API="+url+"/api/v1", "ID="+c.Slug(), "HOME="+shell.Dir, "DOCS="+docs)
	shell.WaitDelay = time.Second // a child may hold the output open
	said, _ := shell.CombinedOutput()
	return shell.ProcessState.ExitCode(), string(said)
}

// environment names no Temporal, no control plane, no zone and no language, so that each machine shows the same.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TEMPORAL_") || strings.HasPrefix(v, "MAINSTAY_") || strings.HasPrefix(v, "LC_")
	})
	return append(env, "TZ=UTC", "LANG=C.UTF-8")
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, problem string
		want          []Case
	}{
		"two": {text: "# one (4)\necho a: b\n\nexit 0: a: b\nhas: b\nnot: c\n\n# two\nfalse\nexit 1\n", want: []Case{
			{Name: "one (4)", Where: "f:1", Script: "echo a: b\n", Has: []string{"a: b", "b"}, Not: []string{"c"}},
			{Name: "two", Where: "f:8", Script: "false", Exit: 1},
		}},
		"no exit":    {text: "# one\ntrue\n", problem: "no line `exit N`"},
		"no command": {text: "# one\nexit 0\n", problem: "no command"},
		"no name":    {text: "true\nexit 0\n", problem: "begins with"},
		"stray":      {text: "# one\ntrue\nexit 0\nhave: x\n", problem: "f:4: after the exit code"},
		"bad like":   {text: "# one\ntrue\nexit 0\nlike: (\n", problem: "f:4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases, err := parse("f", tc.text)
			if tc.problem != "" {
				require.ErrorContains(t, err, tc.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, cases)
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	cases, err := parse("f", "# one\ntrue\nexit 2: wrong\nnot: goroutine\nlike: li(k|n)e\n")
	require.NoError(t, err)
	require.Empty(t, cases[0].Check(2, "wrong line"))
	require.Len(t, cases[0].Check(0, "goroutine"), 4)
}
