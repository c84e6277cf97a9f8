// Package fleet is Mainstay's domain: types, states and decisions. Decisions are pure functions of (state, facts, now),
// so workflows can call them deterministically and tests can table them. It imports only the standard library.
package fleet

import (
	"errors"
	"fmt"
	"slices"
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

// ReservedAgentIDs are the words that stand where an agent's id would in the paths of the API.
var ReservedAgentIDs = []string{"clusters", "drains", "events", "failovers", "healing", "overview", "queue", "register",
	"scalings", "schedules", "tasks", "tokens"}

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

// ReservedTaskIDs are the words that stand where a task's id would in the paths of the API.
var ReservedTaskIDs = []string{"batch", "bulk", "queue"}

// ValidateTaskID checks that what a client chose as id, without its tenant, is a slug and no word that the API's paths
// use.
func ValidateTaskID(id string) error {
	if err := ValidateID("id", id); err != nil {
		return err
	}
	if slices.Contains(ReservedTaskIDs, id) {
		return fmt.Errorf("%w: id is a word that the API's paths use; choose another", ErrInvalidID)
	}
	return nil
}
