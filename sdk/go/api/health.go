package api

import (
	"slices"
	"time"
)

// HealthLevel is a level of health.
type HealthLevel string

// The levels, from best to worst.
const (
	HealthHealthy  HealthLevel = "healthy"
	HealthDegraded HealthLevel = "degraded"
	HealthWarning  HealthLevel = "warning"
	HealthCritical HealthLevel = "critical"
	HealthFailed   HealthLevel = "failed"
)

// HealthLevels are the levels, best first.
var HealthLevels = []HealthLevel{HealthHealthy, HealthDegraded, HealthWarning, HealthCritical, HealthFailed}

// HealthFactor is one of the five parts of a score, with the reason in words.
type HealthFactor struct {
	Name   string  `json:"name"`
	Score  float64 `json:"score"`
	Weight float64 `json:"weight"`
	Why    string  `json:"why"`
}

// CheckStatus is the outcome of a check.
type CheckStatus string

// The outcomes of a check.
const (
	CheckPass CheckStatus = "pass"
	CheckWarn CheckStatus = "warn"
	CheckFail CheckStatus = "fail"
	// CheckUnknown: what it looks at is not reported.
	CheckUnknown CheckStatus = "unknown"
)

// HealthCheck is one check of an agent: cpu, memory, disk or agent.
type HealthCheck struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	Why    string      `json:"why"`
	// LastCheck is when what it looks at was measured; zero: not known.
	LastCheck time.Time `json:"last_check,omitzero"`
}

// WorseThan reports whether a level is worse than another; an empty one counts as healthy.
func (l HealthLevel) WorseThan(other HealthLevel) bool { return l.Rank() > other.Rank() }

// Rank counts the level among all levels, the best is 0.
func (l HealthLevel) Rank() int {
	return max(0, slices.Index(HealthLevels, l))
}

// ScoreOf is the score for a level that an agent reports.
func ScoreOf(l HealthLevel) float64 { return 1 - 0.25*float64(l.Rank()) }
