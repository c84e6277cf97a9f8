package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// outputFlag adds -o to a command that prints data.
func (a *app) outputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&a.output, "output", "o", "text", "text or json")
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if a.output != "text" && a.output != "json" {
			return usageError("--output must be text or json")
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
}

// print prints data as JSON, or calls text.
func (a *app) print(data any, text func() error) error {
	if a.output != "json" {
		return text()
	}
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(data)
}

// table writes aligned columns. Control characters in cells, which may come from agents, cannot reach the terminal.
type table struct {
	to   io.Writer
	text bytes.Buffer
	w    *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{to: w}
	t.w = tabwriter.NewWriter(&t.text, 0, 8, 2, ' ', 0)
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

// row adds a line. Empty cells show as "-", but for the last.
func (t *table) row(cells ...string) {
	clean := make([]string, len(cells))
	for i, cell := range cells {
		if clean[i] = oneLine(cell); clean[i] == "" && i < len(cells)-1 {
			clean[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(clean, "\t")) // to memory
}

// facts adds a line for each value that there is: what is known of one thing.
func (t *table) facts(lines [][2]string) {
	for _, line := range lines {
		if line[1] != "" {
			t.row(line[0], line[1])
		}
	}
}

// flush writes the table, without blanks at the ends of lines.
func (t *table) flush() error {
	_ = t.w.Flush() // to memory
	for line := range strings.Lines(t.text.String()) {
		if _, err := fmt.Fprintln(t.to, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// oneLine replaces everything that is not printable, line ends too, by blanks.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s))
}

// printable keeps line ends and tabs and replaces other control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// ago is a time as people say it; empty for nil.
func (a *app) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := a.now().Sub(*t)
	if d < 0 {
		return "in " + roughly(toUnit(-d))
	}
	return roughly(d) + " ago"
}

// toUnit rounds to well below the unit that roughly shows, so that what is ten minutes from now is in 10m, and not in 9m
// because a moment has passed.
func toUnit(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Second:
		return d
	case d < 2*time.Hour:
		return d.Round(time.Second)
	case d < 48*time.Hour:
		return d.Round(time.Minute)
	}
	return d.Round(time.Hour)
}

// roughly is a duration with one unit, two where it helps.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// byteCount is a size as people say it.
func byteCount(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exponent := float64(n)/unit, 0
	for value >= unit && exponent < 4 {
		value /= unit
		exponent++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[exponent])
}

// indented is JSON in a readable form, or as it is when it is none.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

func number[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func percent(p *float64) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%%", *p)
}
