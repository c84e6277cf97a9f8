package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxIDLength is the longest id, in bytes.
const MaxIDLength = 63

// ErrInvalidID is wrapped by every error of ValidateID.
var ErrInvalidID = errors.New("invalid id")

// ValidateID checks that id is a lower-case slug: [a-z0-9][a-z0-9._-]{0,62}. what names the field in the message,
// which never echoes the id itself.
func ValidateID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalidID, what)
	case len(id) > MaxIDLength:
		return fmt.Errorf("%w: %s is longer than %d characters", ErrInvalidID, what, MaxIDLength)
	case strings.ContainsFunc(id, func(r rune) bool { return r >= 'A' && r <= 'Z' }):
		return fmt.Errorf("%w: %s must be in lower case: a-z, 0-9, '.', '_' and '-'", ErrInvalidID, what)
	case !isAlphanumeric(id[0]):
		return fmt.Errorf("%w: %s must start with a-z or 0-9", ErrInvalidID, what)
	}
	for i := 1; i < len(id); i++ {
		if c := id[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%w: %s may hold only a-z, 0-9, '.', '_' and '-'", ErrInvalidID, what)
		}
	}
	return nil
}

func isAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// ReservedAgentIDs are the words that the API's paths have in place of an agent's id.
var ReservedAgentIDs = []string{"arrays", "clusters", "deployments", "drains", "evaluations", "events", "failovers",
	"healing", "inbound", "jobs", "overview", "quarantine", "queue", "register", "rollouts", "runs", "scalings",
	"schedules", "services", "tasks", "tokens"}

// optionalID is ValidateID for an id that may be left out.
func optionalID(what, id string) error {
	if id == "" {
		return nil
	}
	return ValidateID(what, id)
}

// ValidateAgentID checks that id is a slug and no word that the API's paths use.
func ValidateAgentID(id string) error {
	if err := ValidateID("agent_id", id); err != nil {
		return err
	}
	if slices.Contains(ReservedAgentIDs, id) {
		return fmt.Errorf("%w: agent_id is a word that the API's paths use; choose another", ErrInvalidID)
	}
	return nil
}

// ReservedTaskIDs are the words that the API's paths have in place of a task's id.
var ReservedTaskIDs = []string{"batch", "bulk", "queue"}

// ValidateTaskID checks that a client's id, without its tenant, is a slug and none of ReservedTaskIDs.
func ValidateTaskID(id string) error {
	if err := ValidateID("id", id); err != nil {
		return err
	}
	if slices.Contains(ReservedTaskIDs, id) {
		return fmt.Errorf("%w: id is a word that the API's paths use; choose another", ErrInvalidID)
	}
	return nil
}

// Ids of tasks and names of schedules belong to a tenant: in full, task x of tenant acme is "acme:x", and task x
// without a tenant is "x". Generated ids have an "@", such as "nightly@20261121t030000z". A slug has neither character,
// so tenants' ids never collide, and no client can take a generated id.

// Qualify is the full form of an id or name of a tenant. Without a tenant it is the name itself.
func Qualify(tenant, name string) string {
	if tenant == "" {
		return name
	}
	return tenant + ":" + name
}

// CutTenant is the inverse of Qualify. It checks neither part.
func CutTenant(full string) (tenant, name string) {
	if i := strings.IndexByte(full, ':'); i > 0 {
		return full[:i], full[i+1:]
	}
	return "", full
}

// IsTaskID reports whether a task can have this full id, chosen by a client or generated.
func IsTaskID(full string) bool {
	tenant, name := CutTenant(full)
	chosen, added, made := strings.Cut(name, "@")
	return isTenant(tenant) && len(name) <= MaxIDLength && ValidateID("id", chosen) == nil &&
		(!made || ValidateID("id", added) == nil)
}

// IsScheduleName reports whether a schedule can have this full name.
func IsScheduleName(full string) bool {
	tenant, name := CutTenant(full)
	return isTenant(tenant) && ValidateScheduleName(name) == nil
}

// isTenant reports whether tenant is a tenant's name, or empty.
func isTenant(tenant string) bool { return tenant == "" || ValidateID("tenant", tenant) == nil }
