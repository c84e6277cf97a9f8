package agent

import (
	"fmt"
	"maps"

	"mainstay.dev/mainstay/fleet"
)

// SetProvider sets whether this agent has access to an outside service that tasks name as their provider, and until
// when the service limits its rate. The agent sends it to its hub at once. Hubs prefer agents with access, and give no
// task to an agent whose access to its provider is rate limited. It may be called at any time.
func (a *Agent) SetProvider(name string, access fleet.ProviderAccess) error {
	a.mu.Lock()
	changed := maps.Clone(a.access)
	if changed == nil {
		changed = fleet.Providers{}
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
func (a *Agent) ownProviders() fleet.Providers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.access
}
