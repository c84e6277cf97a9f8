package app

import (
	"os"
	"strings"
)

// ProgramName is how a person has called this program.
func ProgramName() string {
	if name := os.Args[0]; strings.ContainsRune(name, os.PathSeparator) {
		return name
	}
	return "mainstay"
}

// HostName is the name of this machine; "host" where nobody has given it one.
func HostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "host"
	}
	return name
}

// Slug makes an id of any text, of at most limit characters.
func Slug(text string, limit int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(text))
	if id = strings.TrimLeft(id, ".-_"); len(id) > limit {
		id = id[:limit]
	}
	if id == "" {
		return "host"
	}
	return id
}
