package fleet

import (
	"fmt"
	"slices"
)

// ReservedAgentIDs are the words that stand where an agent's id would in the paths of the API.
var ReservedAgentIDs = []string{"clusters", "drains", "events", "failovers", "healing", "overview", "queue", "register", "scalings", "schedules", "tasks", "tokens"}

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

// ValidateTaskID checks that what a client chose as id, without its tenant, is a slug and no word that the API's paths use.
func ValidateTaskID(id string) error {
	if err := ValidateID("id", id); err != nil {
		return err
	}
	if slices.Contains(ReservedTaskIDs, id) {
		return fmt.Errorf("%w: id is a word that the API's paths use; choose another", ErrInvalidID)
	}
	return nil
}
