package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of what agents tell of themselves, in bytes of JSON. A cluster's state must fit into one message of Temporal,
// with all of its members.
const (
	maxMetadataEntries = 64
	maxMetadata        = 4 << 10
	maxProfile         = 32 << 10
	// maxProfiles bounds the profiles of all members together. One of at most smallProfile always fits, so that greedy
	// agents keep no ordinary ones out.
	maxProfiles  = 512 << 10
	smallProfile = 512
	// In a cluster of more than fewMembers, small profiles are bounded as well, by maxSmallProfiles together with the
	// others.
	fewMembers       = 1000
	maxSmallProfiles = 768 << 10
	// maxTexts bounds in such a cluster all that agents choose: profiles, ids, and those that join tokens count.
	maxTexts = 1 << 20
)

// Validate checks the sizes and names. Its errors are FieldErrors.
func (p *AgentProfile) Validate() error {
	if len(p.Metadata) > maxMetadataEntries {
		return wrongField("metadata", "may have at most %d entries", maxMetadataEntries)
	}
	if sizeOfMap(p.Metadata) > maxMetadata {
		return wrongField("metadata", "may have at most 4 KiB of JSON in all")
	}
	for _, list := range []struct {
		field, kind string
		names       []string
		most        int
	}{{"task_types", "task type", p.TaskTypes, 256}, {"capabilities", "capability", p.Capabilities, 64}} {
		if len(list.names) > list.most {
			return wrongField(list.field, "may have at most %d entries", list.most)
		}
		for i, name := range list.names {
			if err := ValidateID(list.kind, name); err != nil {
				return &FieldError{fmt.Sprintf("%s[%d]", list.field, i), err}
			}
		}
	}
	if p.Resources != nil {
		if err := p.Resources.Validate(); err != nil {
			return &FieldError{"resources", err}
		}
	}
	if err := ValidateTime("started_at", p.StartedAt); err != nil {
		return err
	}
	if p.Size() > maxProfile {
		return wrongField("host", "and the other texts of the agent have more than 32 KiB of JSON")
	}
	return nil
}

// ProfilesSize is about how long the profiles of all members are as JSON, in bytes.
func (c *Cluster) ProfilesSize() int {
	total := 0
	for i := range c.Members {
		total += c.Members[i].sizes().profile
	}
	return total
}

// RefuseProfile is why an agent may not join with what it tells of itself; "": it may. total is ProfilesSize at first,
// and brought up to date for the next agent.
func (c *Cluster) RefuseProfile(j *Join, total *int) string {
	if j.Validate() != nil {
		return RefusedProfile
	}
	size, others := j.Size(), *total
	if m := c.Member(j.AgentID); m != nil {
		others -= m.sizes().profile
	}
	if size > smallProfile && others+size > maxProfiles ||
		len(c.Members) >= fewMembers && others+size > maxSmallProfiles {
		return RefusedProfiles
	}
	*total = others + size
	return ""
}

// TextsSize is about how long all that agents have chosen is as JSON, in bytes: profiles and ids.
func (c *Cluster) TextsSize() int {
	total := 0
	for i := range c.Members {
		total += c.Members[i].sizes().texts
	}
	for i := range c.TokenUses {
		total += c.TokenUses[i].size()
	}
	return total
}

// Crowded reports whether a cluster of many members has no room for an agent's profile and ids. There is always room
// for a member that has no more of them than before. total is TextsSize at
// first, and brought up to date for the next agent.
func (c *Cluster) Crowded(j *Join, total *int) bool {
	more := j.Size() + JSONSize(j.AgentID) + JSONSize(j.Instance)
	if m := c.Member(j.AgentID); m != nil {
		more -= m.sizes().texts
	}
	if u := c.usesOf(j.Token.ID); j.Token.MaxUses > 0 && (u == nil || !slices.Contains(u.Agents, j.AgentID)) {
		more += JSONSize(j.AgentID)
	}
	if more > 0 && len(c.Members) >= fewMembers && *total+more > maxTexts {
		return true
	}
	*total += more
	return false
}

// Grows reports whether an agent would tell more of itself than it does as a member.
func (c *Cluster) Grows(j *Join) bool {
	m := c.Member(j.AgentID)
	return m == nil || j.Size() > m.sizes().profile
}

// memberSizes are about how long a member's profile, and all texts that it has chosen, are as JSON, in bytes.
type memberSizes struct{ profile, texts int }

// sizes counts them once after each join: a join asks for those of all members.
func (m *Member) sizes() memberSizes {
	if m.counted == (memberSizes{}) {
		m.counted.profile = m.Size()
		m.counted.texts = m.counted.profile + JSONSize(m.AgentID) + JSONSize(m.Instance)
	}
	return m.counted
}

// Size is about how long the profile's texts are as JSON, in bytes.
func (p *AgentProfile) Size() int {
	n := sizeOfMap(p.Metadata)
	for _, list := range [][]string{p.TaskTypes, p.Capabilities, {p.Host, p.Address, p.Zone, p.Group, p.Version}} {
		for _, s := range list {
			n += JSONSize(s)
		}
	}
	return n + p.Resources.size()
}

// size is how long it is as JSON, in bytes, which is the same each time.
//
//workflowcheck:ignore
func (v *Inventory) size() int {
	if v == nil {
		return 0
	}
	text, _ := json.Marshal(v) // it has nothing that JSON cannot have
	return len(text)
}

// sizeOfMap is the same in whatever order it is walked.
//
//workflowcheck:ignore
func sizeOfMap(m map[string]string) int {
	n := 0
	for name, value := range m {
		n += JSONSize(name) + JSONSize(value)
	}
	return n
}

// JSONSize is how many bytes a text has as JSON, with its quotes and a comma. What may be escaped counts as that.
func JSONSize(s string) int {
	n := len(s) + 3
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || strings.IndexByte(`"\<>&`, c) >= 0 {
			n += 5
		}
	}
	return n
}

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
