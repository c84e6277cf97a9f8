package protocol

import "mainstay.dev/mainstay/fleet"

// Log has lines of an attempt that somebody watches. It may have none: that says that there are no more yet.
type Log struct {
	Attempt int             `json:"attempt"`
	Lines   []fleet.LogLine `json:"lines,omitempty" maxItems:"500"`
}

// LogTaken answers a Log.
type LogTaken struct {
	// Watching is false when nobody wants more lines.
	Watching bool `json:"watching"`
}
