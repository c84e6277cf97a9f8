package app

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxHelpWidth and minHelpWidth bound the columns of help texts.
const (
	maxHelpWidth = 100
	minHelpWidth = 60
)

// helpWidth is how many columns help texts may take: those of the terminal.
func helpWidth() int {
	columns := terminalColumns(os.Stdout)
	if columns == 0 {
		return maxHelpWidth
	}
	return min(max(columns, minHelpWidth), maxHelpWidth)
}

// fitHelp breaks the lines of a command's help, and of those below it.
func fitHelp(c *cobra.Command, width int) {
	if !c.HasParent() {
		c.SetUsageTemplate(strings.ReplaceAll(c.UsageTemplate(), ".FlagUsages ",
			fmt.Sprintf(".FlagUsagesWrapped %d ", width)))
	}
	c.Long = fitted(c.Long, width)
	for _, sub := range c.Commands() {
		fitHelp(sub, width)
	}
}

// fitted breaks paragraphs anew. Lines that begin with a blank, and those before them, stay as they are, as in tables.
func fitted(text string, width int) string {
	var b strings.Builder
	column := 0
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		keeps := func(i int) bool {
			return i >= len(lines) || lines[i] == "" || lines[i][0] == ' '
		}
		if keeps(i) {
			b.WriteString(line + "\n")
			continue
		}
		for word := range strings.FieldsSeq(line) {
			size := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+size > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += size
		}
		if keeps(i + 1) {
			b.WriteByte('\n')
			column = 0
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
