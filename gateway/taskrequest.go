package gateway

import (
	"errors"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// TaskRequest is a task as a client submits it.
type TaskRequest struct {
	ID             string `json:"id,omitempty" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The task's id, up to 63 characters; the task's tenant and a colon may stand before it, as in the id of the answer. Left out: one is made. Submitting the same task again answers the one that has the id; another body is refused with 409 idempotency_conflict."`
	IdempotencyKey string `json:"idempotency_key,omitempty" maxLength:"256" doc:"One key in a tenant and cluster starts one task, however often it is submitted, also after the task has ended. With another body it is refused with 409 idempotency_conflict. Not together with id."`
	fleet.TaskSpec
}

// taskID is the full id that the task will have; fresh makes one when the client left it open.
func (r *TaskRequest) taskID(fresh func() string) (string, error) {
	switch {
	case r.ID != "" && r.IdempotencyKey != "":
		return "", errors.New("give id or idempotency_key, not both")
	case r.ID != "":
		tenant, name := fleet.CutTenant(r.ID)
		if tenant != "" && tenant != r.Tenant {
			return "", errors.New("names another tenant than the field tenant")
		}
		return fleet.Qualify(r.Tenant, name), fleet.ValidateTaskID(name)
	case r.IdempotencyKey != "":
		return contract.KeyedTaskID(r.Tenant, r.Cluster, r.IdempotencyKey), nil
	}
	return fleet.Qualify(r.Tenant, fresh()), nil
}
