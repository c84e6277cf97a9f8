//go:build !linux

package protocol

import "time"

// setUserTimeout does nothing: keep-alive notices a dead end alone here, unless data is under way.
func setUserTimeout(uintptr, time.Duration) error { return nil }
