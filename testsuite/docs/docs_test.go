// Package docs tests that what the documents show is true. Their commands are in the tests of package cli.
package docs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/agenttasks/mcptool"
	"mainstay.dev/mainstay/internal/agenttasks/modeltask"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/config/agentconfig"
	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// TestMain sets the variables that the documents name.
func TestMain(m *testing.M) {
	for _, name := range []string{"BILLING_TOKEN", "ANTHROPIC_API_KEY"} {
		if err := os.Setenv(name, "secret"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// block is a code block of a document.
type block struct{ where, language, text string }

var fence = regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```")

func blocks(t *testing.T) (all []block) {
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			all = append(all, block{filepath.Base(file), m[1], m[2]})
		}
	}
	return all
}

const (
	jobHead = "job: a\ncluster: default\n"
	service = jobHead + "type: service\ninstances: {count: 3, task: {type: exec, payload: {command: [a]}}}\n"
	oneStep = jobHead + "steps:\n  fetch: {task: {type: echo}, output: {ids: \"[1]\"}}\n" +
		"  a:\n    after: [fetch]\n    task: {type: echo}\n"
)

// readers read a block of YAML by its first key.
var readers = map[string]func(t *testing.T, text string) error{
	"job":    readJob,
	"steps":  func(t *testing.T, text string) error { return readJob(t, jobHead+text) },
	"update": func(t *testing.T, text string) error { return readJob(t, service+text) },
	"place":  func(t *testing.T, text string) error { return readJob(t, oneStep+indent(text, 4)) },
	"check":  func(t *testing.T, text string) error { return readJob(t, oneStep+indent(text, 4)) },
	"recovery": func(t *testing.T, text string) error { // the mode alone, or all of it
		alone, whole, _ := strings.Cut(text, "\n")
		return errors.Join(readJob(t, oneStep+indent(alone, 4)), readJob(t, oneStep+indent(whole, 4)))
	},
	"clusters": readConfig,
	"spawner":  readConfig,
	"security": readConfig,
	"rollout": func(t *testing.T, text string) error {
		return readConfig(t, "clusters:\n  - name: a\n    scaling:\n"+text)
	},
	"agent": func(_ *testing.T, text string) error {
		_, err := agentconfig.Parse("agent.yaml", []byte(text))
		return err
	},
	"servers": func(t *testing.T, text string) error {
		_, err := mcptool.Read(file(t, text))
		return err
	},
	"cpu": func(t *testing.T, text string) error {
		_, err := document.Read("resources.yaml", []byte(text), &api.Inventory{}, nil)
		return err
	},
	"scrape_configs": func(*testing.T, string) error { return nil }, // of Prometheus
	"providers": func(t *testing.T, text string) error {
		_, err := modeltask.Read(file(t, text))
		return err
	},
}

// TestYAML reads each block of YAML as the program would.
func TestYAML(t *testing.T) {
	t.Parallel()
	read := 0
	for _, b := range blocks(t) {
		if b.language != "yaml" {
			continue
		}
		text := strings.ReplaceAll(b.text, "steps: {…}", "steps: {a: {task: {type: echo}}}")
		if strings.HasPrefix(text, "  ") && strings.Contains(text, "task:") {
			text = "steps:\n" + text
		}
		key, _, _ := strings.Cut(strings.TrimLeft(withoutComments(text), " "), ":")
		reader := readers[key]
		require.NotNil(t, reader, "%s: nobody reads this block:\n%s", b.where, b.text)
		require.NoError(t, reader(t, text), "%s:\n%s", b.where, b.text)
		read++
	}
	require.Greater(t, read, 15)
}

// TestJSON reads each block of JSON, and the payloads of commands as agents do.
func TestJSON(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t) {
		if b.language != "json" {
			continue
		}
		var value any
		require.NoError(t, json.Unmarshal([]byte(b.text), &value), "%s:\n%s", b.where, b.text)
		if object, _ := value.(map[string]any); object["command"] != nil {
			_, err := payload.ReadExec(json.RawMessage(b.text))
			require.NoError(t, err, "%s:\n%s", b.where, b.text)
		}
	}
}

// TestGoOfTheReadme looks for each block of Go of the README in the example that it is from, which is compiled.
func TestGoOfTheReadme(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../examples/go-agent/main.go")
	require.NoError(t, err)
	read := 0
	for _, b := range blocks(t) {
		if b.where == "README.md" && b.language == "go" {
			require.Contains(t, string(example), b.text)
			read++
		}
	}
	require.NotZero(t, read)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("(?s)```.*?```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unfit   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`) // for an anchor
)

// TestLinks follows each link from a document to another file, or to a heading of one.
func TestLinks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	top, err := filepath.Glob("../../*.md")
	require.NoError(t, err)
	for _, file := range append(files, top...) {
		for _, match := range link.FindAllStringSubmatch(prose(t, file), -1) {
			to, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := file
			if to != "" {
				target = filepath.Join(filepath.Dir(file), to)
			}
			_, err := os.Stat(target)
			if !assert.NoError(t, err, "%s links to %s", filepath.Base(file), match[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchorsOf(prose(t, target)), anchor, "%s links to %s", filepath.Base(file), match[1])
		}
	}
}

// prose is a document without its blocks of code.
func prose(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return code.ReplaceAllString(string(text), "")
}

// anchorsOf are the names that GitHub gives to headings.
func anchorsOf(text string) (anchors []string) {
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		words := unfit.ReplaceAllString(strings.ToLower(match[1]), "")
		anchors = append(anchors, strings.ReplaceAll(words, " ", "-"))
	}
	return anchors
}

func readJob(_ *testing.T, text string) error {
	_, _, err := flow.Read("job.yaml", []byte(text))
	return err
}

func readConfig(_ *testing.T, text string) error {
	_, err := config.Parse("mainstay.yaml", []byte(text))
	return err
}

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func indent(text string, by int) (out string) {
	for line := range strings.Lines(text) {
		out += strings.Repeat(" ", by) + line
	}
	return out
}

func withoutComments(text string) (out string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out += line
		}
	}
	return out
}
