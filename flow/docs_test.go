package flow

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var fences = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestDefinitionsInTheDocumentsAreValid reads each definition that the documents show, and the steps that they show
// alone.
func TestDefinitionsInTheDocumentsAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	read := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, fence := range fences.FindAllStringSubmatch(string(text), -1) {
			definition := strings.ReplaceAll(fence[1], "steps: {…}", "steps: {a: {task: {type: echo}}}")
			if strings.HasPrefix(definition, "  ") && strings.Contains(definition, "task:") {
				definition = "steps:\n" + definition
			}
			if strings.HasPrefix(definition, "steps:") {
				definition = "job: a\ncluster: default\n" + definition
			}
			if strings.HasPrefix(definition, "job:") {
				_, _, err := Read(filepath.Base(file), []byte(definition))
				require.NoError(t, err, definition)
				read++
			}
		}
	}
	require.Greater(t, read, 4)
}
