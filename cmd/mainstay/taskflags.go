package main

import (
	"strings"
	"time"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

// priorityFlag reads --priority; empty is the default.
func priorityFlag(text string) (gateway.Priority, error) {
	if text == "" {
		return 0, nil
	}
	priority, err := fleet.ParsePriority(text)
	if err != nil {
		return 0, usageError("--%w", err)
	}
	return gateway.Priority(priority), nil
}

// startFlag reads --start-at: a time, or +DURATION from now. Empty is the zero time.
func startFlag(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if after, ok := strings.CutPrefix(text, "+"); ok {
		wait, err := fleet.ParseDuration(after)
		if err != nil || wait < 0 {
			return time.Time{}, usageError("--start-at: write the time from now like +10m or +2h30m")
		}
		return now.Add(wait).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageError("--start-at must be a time such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, or +10m from now")
	}
	return at.UTC(), nil
}
