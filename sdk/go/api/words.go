package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Count is a number with its noun, as in "1 agent" and "3 agents".
func Count[N int | int64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, Plural(n, noun, noun+"s"))
}

// Plural returns one for the number 1, and many for every other.
func Plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Reasons joins reasons to one text and leaves out empty ones.
func Reasons(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(r string) bool { return r == "" }), "; ")
}

// escape is an escape sequence of a terminal: for colours and the cursor, for titles and links, or a short one. A title
// that does not end in its line hides nothing.
var escape = regexp.MustCompile(
	`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|\x{9d})[^\x07\x1b\x{9c}\n]*(?:\x07|\x1b\\|\x{9c})|\x1b[ -/]*[0-~]`)

// WithoutEscapes leaves out the escape sequences that set a terminal's colours, cursor and the like.
func WithoutEscapes(text string) string {
	if !strings.ContainsAny(text, "\x1b\u009b\u009d") {
		return text
	}
	return escape.ReplaceAllString(text, "")
}

// Printable leaves out escape sequences of terminals, and replaces other control characters and line separators of a
// text by blanks, except line ends and tabs. JSON takes six bytes for each, and a terminal may obey it.
func Printable(text string) string {
	text = WithoutEscapes(text)
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp)) {
			return ' '
		}
		return r
	}, text)
}

// ResultTooLarge says that a result has more bytes than its step allows.
func ResultTooLarge(bytes, limit int) string {
	return fmt.Sprintf("its result has %d bytes, and result_limit allows %d: write result_limit: 1MiB, or return "+
		"where the data is, as a path or a key", bytes, limit)
}

// ElementTooLarge says that the result of an array's element has more bytes than it may.
func ElementTooLarge(bytes, limit int) string {
	return fmt.Sprintf("its result has %d bytes, and with the array's max_parallel %d are allowed: lower max_parallel, or "+
		"return where the data is, as a path or a key", bytes, limit)
}

// HasAll reports whether have, a sorted set, contains all of want.
func HasAll(have, want []string) bool {
	for _, w := range want {
		if _, found := slices.BinarySearch(have, w); !found {
			return false
		}
	}
	return true
}

// SortedSet returns a sorted copy without repetitions, nil when empty.
func SortedSet(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	set := slices.Clone(list)
	slices.Sort(set)
	return slices.Compact(set)
}
