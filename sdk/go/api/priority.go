package api

import (
	"errors"
	"math"
	"slices"
	"strconv"
)

// Priority orders the tasks of a lane: 1 goes first, 5 last. It reads as a number or a name, in JSON and YAML, and is
// written as a number. 0 means DefaultPriority.
type Priority int

// The priorities.
const (
	PriorityCritical Priority = iota + 1
	PriorityHigh
	PriorityNormal
	PriorityLow
	PriorityBackground

	DefaultPriority = PriorityNormal
)

// priorityNames are the names of 1, 2, …
var priorityNames = []string{"critical", "high", "normal", "low", "background"}

// PriorityNames returns the names of the priorities, the most urgent first.
func PriorityNames() []string { return slices.Clone(priorityNames) }

// ErrPriority is the error for text that is no priority. It does not repeat the text.
var ErrPriority = errors.New("priority must be 1 (first) to 5 (last), or critical, high, normal, low or background")

// Valid reports whether p is one of the priorities; 0 is not.
func (p Priority) Valid() bool { return p >= PriorityCritical && p <= PriorityBackground }

// OrDefault returns p, or DefaultPriority for 0.
func (p Priority) OrDefault() Priority {
	if p == 0 {
		return DefaultPriority
	}
	return p
}

// String is the name of a priority, or the number of an invalid one.
func (p Priority) String() string {
	if !p.Valid() {
		return strconv.Itoa(int(p))
	}
	return priorityNames[p-1]
}

// ParsePriority reads a name or a number.
func ParsePriority(text string) (Priority, error) {
	if i := slices.Index(priorityNames, text); i >= 0 {
		return Priority(i + 1), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || !Priority(n).Valid() {
		return 0, ErrPriority
	}
	return Priority(n), nil
}

// UnmarshalText implements encoding.TextUnmarshaler; YAML uses it for numbers too.
func (p *Priority) UnmarshalText(text []byte) error {
	parsed, err := ParsePriority(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// UnmarshalJSON takes a number or a string. null changes nothing.
func (p *Priority) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if unquoted, ok := unquote(text); ok {
		return p.UnmarshalText([]byte(unquoted))
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || number != math.Trunc(number) || number != 0 && !(1 <= number && number <= 5) {
		return ErrPriority
	}
	*p = Priority(number)
	return nil
}

// unquote returns the text of a JSON string without escapes; no priority needs any.
func unquote(text string) (string, bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	return text[1 : len(text)-1], true
}
