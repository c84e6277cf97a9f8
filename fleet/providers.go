package fleet

import (
	"fmt"
	"time"
)

// MaxProviders bounds the providers that an agent may name.
const MaxProviders = 64

// ProviderAccess is an agent's access to a provider: an outside service that tasks may name, such as a model's API,
// with limits of its own.
type ProviderAccess struct {
	// Available: the agent has credentials, and a network that reaches the provider.
	Available bool `json:"available"`
	// RateLimitedUntil is when the provider serves the agent again; absent: it does now.
	RateLimitedUntil *time.Time `json:"rate_limited_until,omitempty"`
}

// Providers are the providers that an agent has reported, by name.
type Providers map[string]ProviderAccess

// Validate checks names and bounds. Messages never repeat the submitted value.
func (p Providers) Validate() error {
	if len(p) > MaxProviders {
		return fmt.Errorf("an agent may name at most %d providers", MaxProviders)
	}
	for name := range p {
		if err := ValidateID("provider", name); err != nil {
			return err
		}
	}
	return nil
}

// LimitedUntil is when a rate limit of the provider ends; false: none holds at now.
func (p Providers) LimitedUntil(provider string, now time.Time) (time.Time, bool) {
	access, known := p[provider]
	if !known || access.RateLimitedUntil == nil || !access.RateLimitedUntil.After(now) {
		return time.Time{}, false
	}
	return *access.RateLimitedUntil, true
}

// Usable reports access to the provider that is not rate limited at now.
func (p Providers) Usable(provider string, now time.Time) bool {
	_, limited := p.LimitedUntil(provider, now)
	return p[provider].Available && !limited
}
