package fleet

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of the types of failures, which handlers name freely.
const (
	MaxErrorTypeBytes = 128
	maxErrorTypes     = 32
)

// ErrorTypeNoBeacon is the type of failure of an attempt without signs of life, whoever ends it.
const ErrorTypeNoBeacon = "no_beacon"

// ValidErrorType reports whether a text can be the type of a failure: printable, on one line, 1 to 128 bytes.
func ValidErrorType(text string) bool {
	return text != "" && len(text) <= MaxErrorTypeBytes && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func validateErrorTypes(what string, types []string) error {
	if len(types) > maxErrorTypes {
		return fmt.Errorf("%s may have at most %d entries", what, maxErrorTypes)
	}
	for _, t := range types {
		if !ValidErrorType(t) {
			return fmt.Errorf("an entry of %s must be 1 to %d printable characters, without blanks around it", what, MaxErrorTypeBytes)
		}
	}
	return nil
}
