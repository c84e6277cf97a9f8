package agent

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

const (
	// healthSpacing is the least time between two polls because of a changed health report.
	healthSpacing = time.Second
	// healthNoteBytes bounds the note of a health report.
	healthNoteBytes = 200
)

// SetHealth sets the agent's own health, 0 (failed) to 1 (healthy), which it sends with its heartbeats. It is a fifth
// of the agent's health score.
func (a *Agent) SetHealth(health float64) { a.ReportHealth(health, "") }

// ReportHealth sets the agent's own health, with a line for people. It lasts until the next call. A change is sent
// within a second.
func (a *Agent) ReportHealth(health float64, note string) {
	health, note = min(1, max(0, health)), cutText(note, healthNoteBytes)
	a.mu.Lock()
	changed := a.health == nil && health < 1 || a.health != nil && *a.health != health || a.note != note
	a.health, a.note = &health, note
	r := a.run
	a.mu.Unlock()
	if changed && r != nil {
		r.pollWithin(healthSpacing)
	}
}

// ReportLevel is ReportHealth with the name of a level.
func (a *Agent) ReportLevel(level fleet.HealthLevel, note string) {
	a.ReportHealth(fleet.ScoreOf(level), note)
}

func (a *Agent) ownHealth() (*float64, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health, a.note
}
