package agent

import (
	"fmt"
	"maps"
	"time"

	"mainstay.dev/sdk/api"
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
func (a *Agent) ReportLevel(level api.HealthLevel, note string) {
	a.ReportHealth(api.ScoreOf(level), note)
}

func (a *Agent) ownHealth() (*float64, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health, a.note
}

// SetProvider sets whether this agent has access to an outside service that tasks name as their provider, and until
// when the service limits its rate. The agent sends it to its hub at once. Hubs prefer agents with access, and give no
// task to an agent whose access to its provider is rate limited. It may be called at any time.
func (a *Agent) SetProvider(name string, access api.ProviderAccess) error {
	a.mu.Lock()
	changed := maps.Clone(a.access)
	if changed == nil {
		changed = api.Providers{}
	}
	changed[name] = access
	if err := changed.Validate(); err != nil {
		a.mu.Unlock()
		return fmt.Errorf("agent: %w", err)
	}
	a.access = changed
	r := a.run
	a.mu.Unlock()
	if r != nil {
		r.pollWithin(checkpointSpacing)
	}
	return nil
}

// ownProviders has what SetProvider set; it is never changed in place.
func (a *Agent) ownProviders() api.Providers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.access
}
