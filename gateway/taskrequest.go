package gateway

import (
	"errors"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// idOf is the full id that the task will have; fresh makes one when the client left it open.
func idOf(r *api.TaskRequest, fresh func() string) (string, error) {
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
