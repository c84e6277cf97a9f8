package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTellsWhatGoTestDoes runs the real go test on a package made for it: what the program prints must have what a
// person needs, and nothing of what passed.
func TestTellsWhatGoTestDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code                 string
		says, saysNot, skips []string
	}{
		"passes and skips": {
			code:    `func TestGood(t *testing.T) { t.Log("chatter") }; func TestAway(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Skip("no tool") }); t.SkipNow() }`,
			says:    []string{"ok  \tx\t"},
			saysNot: []string{"chatter", "no tool", "PASS"},
			skips:   []string{"x TestAway/sub: x_test.go:5: no tool", "x TestAway: it gives no reason"},
		},
		"fails": {
			code:    `func TestBad(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("broken here") }) }; func TestGood(t *testing.T) { t.Log("chatter") }`,
			says:    []string{"broken here", "--- FAIL: TestBad/sub", "FAIL\tx\t"},
			saysNot: []string{"chatter"},
		},
		"panics": {code: `func TestBad(t *testing.T) { panic("out of range") }`,
			says: []string{"out of range", "FAIL\tx\t"}},
		"does not build": {code: `func TestBad(t *testing.T) { undefined() }`,
			says: []string{"undefined: undefined", "[build failed]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.go"),
				[]byte("package x\n\nimport \"testing\"\n\n"+c.code+"\n"), 0o600))
			command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-json", ".")
			command.Dir = dir
			events, _ := command.Output() // it fails where the test of the case does
			require.NotEmpty(t, events)
			var said, skips bytes.Buffer
			require.NoError(t, tell(bytes.NewReader(events), &said, &skips))
			for _, text := range c.says {
				require.Contains(t, said.String(), text)
			}
			for _, text := range c.saysNot {
				require.NotContains(t, said.String(), text)
			}
			require.ElementsMatch(t, c.skips, strings.FieldsFunc(skips.String(),
				func(r rune) bool { return r == '\n' }))
		})
	}
}

func TestTellKeepsWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	var said, skips bytes.Buffer
	require.NoError(t, tell(strings.NewReader("go: no such tool\n"), &said, &skips))
	require.Equal(t, "go: no such tool\n", said.String())
	require.Empty(t, skips.String())
}
