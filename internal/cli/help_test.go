package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

// Help fits a terminal. Examples, which are copied, and the usage line stay whole.
func TestHelpHasAtMostAHundredColumns(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		ran := clitest.Run(t.Context(), "", append(strings.Fields(c.CommandPath())[1:], "--help")...)
		example := false
		for line := range strings.Lines(ran.Stdout) {
			if example = strings.HasPrefix(line, "Examples:") || example && line != "\n"; !example {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, c.CommandPath()+": "+line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(whole(app.New("dev")))
}
