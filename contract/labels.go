package contract

import (
	"fmt"
	"net/url"
	"strings"
)

// LabelTerm is a label as the search attribute AttrLabels has it: "name=value". In the value, "%" and the characters
// that the query languages of Temporal's stores treat differently are percent-encoded.
func LabelTerm(name, value string) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('=')
	for _, r := range value {
		if awkward(r) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// ParseLabelTerm is the inverse of LabelTerm.
func ParseLabelTerm(term string) (name, value string) {
	name, value, _ = strings.Cut(term, "=")
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return name, value
}

// awkward: SQLite's store does not undo the escaping of quotes and backslashes, and splits lists at the heart.
func awkward(r rune) bool {
	return r < ' ' || r == 0x7f || strings.ContainsRune("%'\"`\\♡", r)
}
