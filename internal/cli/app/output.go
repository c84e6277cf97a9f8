package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"mainstay.dev/sdk/api"
)

// Table writes aligned columns. Control characters in cells, which may come from agents, cannot reach the terminal.
type Table struct {
	to   io.Writer
	text bytes.Buffer
	w    *tabwriter.Writer
}

// NewTable writes to w once it is flushed.
func NewTable(w io.Writer, header ...string) *Table {
	t := &Table{to: w}
	t.w = tabwriter.NewWriter(&t.text, 0, 8, 2, ' ', 0)
	if len(header) > 0 {
		t.Row(header...)
	}
	return t
}

// Row adds a line. Empty cells show as "-", but for the last.
func (t *Table) Row(cells ...string) {
	clean := make([]string, len(cells))
	for i, cell := range cells {
		if clean[i] = OneLine(cell); clean[i] == "" && i < len(cells)-1 {
			clean[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(clean, "\t")) // to memory
}

// Facts prints a line for each value that exists: the facts about one thing.
func (a *App) Facts(lines [][2]any) error {
	t := NewTable(a.Stdout)
	for _, line := range lines {
		if cells := a.texts(line[:]); cells[1] != "" {
			t.Row(cells...)
		}
	}
	return t.Flush()
}

// PrintTable prints a row for each item, or says none when there is no item.
func PrintTable[T any](a *App, items []T, none string, header []string, row func(*T) []any) error {
	if len(items) == 0 {
		return a.Say(none)
	}
	t := NewTable(a.Stdout, header...)
	for i := range items {
		t.Row(a.texts(row(&items[i]))...)
	}
	return t.Flush()
}

// PrintBelow prints a row for each item below what was printed, and nothing when there is no item.
func PrintBelow[T any](a *App, items []T, header []string, row func(*T) []any) error {
	if len(items) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return PrintTable(a, items, "", header, row)
}

// texts are values as people read them: a time as how long ago it is, a list with commas, and nothing for nil.
func (a *App) texts(values []any) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case nil:
		case time.Time:
			texts[i] = a.Ago(&v)
		case *time.Time:
			texts[i] = a.Ago(v)
		case []string:
			texts[i] = strings.Join(v, ", ")
		default:
			switch of := reflect.ValueOf(value); {
			case of.Kind() == reflect.String:
				texts[i] = of.String()
			case of.Kind() != reflect.Pointer:
				texts[i] = fmt.Sprint(value)
			case !of.IsNil():
				texts[i] = fmt.Sprint(of.Elem().Interface())
			}
		}
	}
	return texts
}

// Flush writes the table, without blanks at the ends of lines.
func (t *Table) Flush() error {
	_ = t.w.Flush() // to memory
	for line := range strings.Lines(t.text.String()) {
		if _, err := fmt.Fprintln(t.to, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// OneLine leaves out escape sequences and replaces everything else that is not printable, line ends too, by blanks.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, api.WithoutEscapes(s)))
}

// lineEnds are what ends a line; a carriage return alone, as of progress bars, is the last.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Printable makes a text safe for a terminal: it leaves out colours and other escape sequences, gives all ends of lines
// the system's form, and replaces other control characters.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', unicode.IsGraphic(r), r == '\u200c', r == '\u200d': // the last two join emoji
			return r
		}
		return '\uFFFD'
	}, lineEnds.Replace(api.WithoutEscapes(s)))
}

// escapeUnprintable writes characters that a terminal obeys, or does not show, as JSON escapes: it stays the same JSON.
func escapeUnprintable(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Ago is a time as people say it; empty for nil.
func (a *App) Ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := a.Now().Sub(*t)
	if d < 0 {
		return "in " + Roughly(toUnit(-d))
	}
	return Roughly(d) + " ago"
}

// toUnit rounds to well below the unit that roughly shows, so that ten minutes from now shows as 10m, and not as 9m
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

// Clock is a time of day, in UTC as all times of the command line are.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// ExactClock is Clock with milliseconds.
func ExactClock(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }

// Roughly is a duration with one unit, two where it helps.
func Roughly(d time.Duration) string {
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

// Took is how long something took; empty when a time is not known.
func Took(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return Roughly(max(0, to.Sub(*from)))
}

// ByteCount is a size as people say it.
func ByteCount(n int64) string {
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

// Indented is JSON in a readable form, or as it is when it is none.
func Indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// Percent is empty for nil.
func Percent(p *float64) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%%", *p)
}

// LabelText lists labels as name=value, by name.
func LabelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for name, value := range labels {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Progress shows how far something is: a bar on a terminal, a line for each quarter elsewhere.
type Progress struct {
	To    io.Writer
	TTY   bool
	Unit  string
	Total int

	mu   sync.Mutex
	done int
}

const barWidth = 40

// Step counts one more and returns how many there are.
func (p *Progress) Step() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := 4 * p.done / p.Total
	p.done++
	if p.TTY {
		p.draw()
		if p.done == p.Total {
			fmt.Fprintln(p.To)
		}
		return p.done
	}
	if 4*p.done/p.Total > before {
		fmt.Fprintf(p.To, "%d of %d %s\n", p.done, p.Total, p.Unit)
	}
	return p.done
}

func (p *Progress) draw() {
	filled := barWidth * p.done / p.Total
	fmt.Fprintf(p.To, "\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.done,
		p.Total, p.Unit)
}

// Tell prints a line between the progress.
func (p *Progress) Tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.TTY {
		fmt.Fprintln(p.To, line)
		return
	}
	fmt.Fprintf(p.To, "\r\x1b[K%s\n", line)
	p.draw()
}

// watchEvery is the time between two looks of --watch without a value.
const watchEvery = 2 * time.Second

// clearScreen moves a terminal's cursor to the top and clears the screen below.
const clearScreen = "\x1b[H\x1b[J"

// Watched adds --watch to a command that prints how something stands: it prints it again and again, until Ctrl-C.
func (a *App) Watched(command *cobra.Command) *cobra.Command {
	var every time.Duration
	command.Flags().DurationVarP(
		&every,
		"watch",
		"w",
		0,
		"print again and again, with this time between (--watch alone: 2s)",
	)
	command.Flags().Lookup("watch").NoOptDefVal = watchEvery.String()
	once := command.RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		if every == 0 {
			return once(c, args)
		}
		out := a.Stdout
		defer func() { a.Stdout = out }()
		for {
			var page bytes.Buffer
			a.Stdout = &page
			err := once(c, args)
			if c.Context().Err() != nil {
				return nil
			}
			if err != nil && ExitCode(err) != ExitUnreachable {
				return err
			}
			if err != nil {
				page.WriteString(OneLine(err.Error()) + "\n")
			}
			if a.StdoutTTY {
				_, _ = out.Write([]byte(clearScreen))
			}
			if _, err := out.Write(page.Bytes()); err != nil {
				return err
			}
			select {
			case <-time.After(every):
			case <-c.Context().Done():
				return nil
			}
		}
	}
	return command
}
