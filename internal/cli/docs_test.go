package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
)

var (
	docFence  = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	docInline = regexp.MustCompile("`(mainstay [^`]+)`")
	// docComment is what a line of a shell has after a command.
	docComment = regexp.MustCompile(`\s+#.*`)
	docQuoted  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	// docAlternatives are words of which one is to be chosen, as in retry|skip.
	docAlternatives = regexp.MustCompile(`^[a-z-]+(\|[a-z-]+)+$`)
)

// TestCommandsOfTheDocumentsExist looks for each command line that the documents show: its commands and its flags.
func TestCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	root, looked := whole(app.New("dev")), 0
	root.InitDefaultCompletionCmd()
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range docCommands(string(text)) {
			for _, words := range commandsOf(line) {
				assert.Empty(t, missingOf(root, words), "%s: %s", filepath.Base(file), line)
				looked++
			}
		}
	}
	require.Greater(t, looked, 150)
}

func TestMissingCommandsAreFound(t *testing.T) {
	t.Parallel()
	root := whole(app.New("dev"))
	for line, missing := range map[string]string{
		"mainstay task list --status review":            "",
		"mainstay task lst":                             "lst",
		"mainstay task list --statuss review":           "--statuss",
		"mainstay job list · get NAME · gett NAME":      "gett",
		"mainstay run step retry|skp RUN STEP":          "skp",
		"mainstay task submit -- ls --all":              "",
		"mainstay run retry RUN [--from STEP] [--form]": "--form",
	} {
		var found []string
		for _, words := range commandsOf(line) {
			found = append(found, missingOf(root, words)...)
		}
		assert.Equal(t, missing, strings.Join(found, " "), line)
	}
}

// docCommands are the lines of a document that call mainstay.
func docCommands(text string) (lines []string) {
	for _, block := range docFence.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line = docComment.ReplaceAllString(line, "")
			for part := range strings.SplitSeq(strings.NewReplacer(" | ", "\n", "; ", "\n", " > ", "\n").Replace(line), "\n") {
				if part = strings.TrimPrefix(strings.TrimSpace(part), "$ "); strings.HasPrefix(part, "mainstay ") {
					lines = append(lines, part)
				}
			}
		}
	}
	for _, span := range docInline.FindAllStringSubmatch(docFence.ReplaceAllString(text, ""), -1) {
		lines = append(lines, strings.Join(strings.Fields(span[1]), " "))
	}
	return lines
}

// commandsOf are the words of each command that a line stands for: `mainstay job list · get NAME` for two, and
// `mainstay job pause|resume NAME` too.
func commandsOf(line string) (commands [][]string) {
	line = docQuoted.ReplaceAllString(line, "TEXT")
	line = strings.NewReplacer("[", " ", "]", " ").Replace(line)
	parts := strings.Split(line, " · ")
	first := strings.Fields(parts[0])
	commands = append(commands, first)
	for _, part := range parts[1:] {
		for i := range first { // the words before the first that this part replaces
			if i > 0 && !strings.HasPrefix(first[i], "-") && strings.ToLower(first[i]) == first[i] {
				continue
			}
			if i > 0 {
				first = first[:i]
				break
			}
		}
		commands = append(commands, append(slices.Clone(first[:len(first)-1]), strings.Fields(part)...))
	}
	for i := 0; i < len(commands); i++ {
		words := commands[i]
		at := slices.IndexFunc(words, docAlternatives.MatchString)
		if at < 0 || strings.HasPrefix(words[at-1], "-") {
			continue
		}
		for j, one := range strings.Split(words[at], "|") {
			words = slices.Clone(words)
			words[at] = one
			if j == 0 {
				commands[i] = words
			} else {
				commands = append(commands, words)
			}
		}
	}
	return commands
}

// missingOf are the commands and flags among the words that there are not.
func missingOf(root *cobra.Command, words []string) (missing []string) {
	command := root
	for _, word := range words[1:] {
		name, _, _ := strings.Cut(word, "=")
		switch {
		case word == "--":
			return missing
		case strings.HasPrefix(word, "--") && len(word) > 2:
			if name = strings.Trim(name, ",.:"); command.Flag(name[2:]) == nil && name != "--help" && name != "--version" {
				missing = append(missing, name)
			}
		case command.HasAvailableSubCommands() && !strings.HasPrefix(word, "-") && word != "…" && strings.ToLower(word) == word:
			at := slices.IndexFunc(command.Commands(), func(c *cobra.Command) bool {
				return c.Name() == word || c.HasAlias(word)
			})
			if at < 0 {
				return append(missing, word)
			}
			command = command.Commands()[at]
		}
	}
	return missing
}
