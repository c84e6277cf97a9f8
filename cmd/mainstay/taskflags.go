package main

import (
	"strings"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// priorityFlag reads --priority; empty is the default.
func priorityFlag(text string) (fleet.Priority, error) {
	if text == "" {
		return 0, nil
	}
	priority, err := fleet.ParsePriority(text)
	if err != nil {
		return 0, usageError("--%w", err)
	}
	return priority, nil
}

// startFlag reads --start-at: a time, or +DURATION from now. Empty is the zero time.
func startFlag(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return timeFlag("--start-at", text, now)
}

// pastFlag reads a time, or how long ago it was, such as 2h; -2h means the same.
func pastFlag(flag, text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	ago, err := fleet.ParseDuration(strings.TrimPrefix(text, "-"))
	if err != nil || ago < 0 || strings.HasPrefix(text, "+") {
		return time.Time{}, usageError("%s must be a time such as 2026-12-24T18:00:00Z, or how long ago, such as 2h", flag)
	}
	return now.Add(-ago).UTC(), nil
}

// timeFlag reads a time, or one counted from now, such as +10m, or -2h.
func timeFlag(flag, text string, now time.Time) (time.Time, error) {
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		span, err := fleet.ParseDuration(text[1:])
		if err != nil || span < 0 {
			return time.Time{}, usageError("%s: write the time from now like +10m, +2h30m or -2h", flag)
		}
		if text[0] == '-' {
			span = -span
		}
		return now.Add(span).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageError("%s must be a time such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, or counted from now, such as +10m", flag)
	}
	return at.UTC(), nil
}
