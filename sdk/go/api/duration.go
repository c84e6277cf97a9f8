package api

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as text: Go's form, with days ("30s", "1m30s", "7d"), or .NET's
// TimeSpan ("00:00:30", "7.00:00:00"). It is written in Go's form.
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns Go's form.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. The error does not repeat the text.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

// ErrDuration is the error of every text that is not a duration. It does not repeat the text.
var ErrDuration = errors.New(`not a duration: write it like "30s", "1m30s" or "7d"`)

// ParseDuration reads Go's form, with days, or a TimeSpan ([-][d.]hh:mm[:ss[.fffffff]]). A value that does not fit into
// a time.Duration becomes the longest one, so that bounds refuse it.
func ParseDuration(text string) (time.Duration, error) {
	if !strings.Contains(text, ":") {
		return parseUnits(text)
	}
	rest, negative := strings.CutPrefix(text, "-")
	var days int
	if head, tail, found := strings.Cut(rest, "."); found && !strings.Contains(head, ":") {
		n, err := strconv.ParseUint(head, 10, 15)
		if err != nil {
			return 0, ErrDuration
		}
		days, rest = int(n), tail
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, ErrDuration
	}
	hours, err1 := strconv.ParseUint(parts[0], 10, 8)
	minutes, err2 := strconv.ParseUint(parts[1], 10, 8)
	if err1 != nil || err2 != nil || hours > 23 || minutes > 59 {
		return 0, ErrDuration
	}
	var seconds time.Duration
	if len(parts) == 3 {
		s, err := time.ParseDuration(parts[2] + "s")
		if err != nil || s < 0 || s >= time.Minute {
			return 0, ErrDuration
		}
		seconds = s
	}
	total := time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(
		minutes)*time.Minute + seconds
	if negative {
		total = -total
	}
	return total, nil
}

// parseUnits reads Go's form, with days.
func parseUnits(text string) (time.Duration, error) {
	rest := strings.TrimLeft(text, "+-")
	if len(text)-len(rest) > 1 || rest == "" {
		return 0, ErrDuration
	}
	total := 0.0
	exact, err := time.ParseDuration(rest) // it reads neither days nor values that are too long
	for err != nil && rest != "" {
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if end < 0 {
			return 0, ErrDuration
		}
		number, behind := rest[:end], rest[end:]
		end = strings.IndexFunc(behind, func(r rune) bool { return r == '.' || r >= '0' && r <= '9' })
		if end < 0 {
			end = len(behind)
		}
		n, wrong := strconv.ParseFloat(number, 64)
		unit, known := units[behind[:end]]
		if wrong != nil && !math.IsInf(n, 0) || !known {
			return 0, ErrDuration
		}
		total += n * float64(unit)
		rest = behind[end:]
	}
	if err != nil {
		exact = math.MaxInt64
		if total < math.MaxInt64 {
			exact = time.Duration(math.Round(total))
		}
	}
	if text[0] == '-' {
		exact = -exact
	}
	return exact, nil
}

var units = map[string]time.Duration{"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// Or returns d, or fallback when d is zero.
func (d Duration) Or(fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return time.Duration(d)
}

// ValidateTime checks a time from outside: JSON can hold it in UTC too, where its year may be another.
func ValidateTime(what string, t time.Time) error {
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return WrongField(what, "must be of the years 0 to 9999 in UTC")
	}
	return nil
}
