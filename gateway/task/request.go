package task

import (
	"errors"
	"strings"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
)

// takeKey takes the Idempotency-Key header, which means what idempotency_key means in the body. The header's own form
// has quotes around the key; they are no part of it.
func takeKey(r *api.TaskRequest, header string) error {
	key := strings.TrimSpace(header)
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	switch {
	case key == "" && header != "":
		return rest.Invalid("header.Idempotency-Key", errors.New("is empty: leave it out, or give a key"))
	case len(key) > 256:
		return rest.Invalid("header.Idempotency-Key", errors.New("must have at most 256 characters"))
	case key != "" && r.IdempotencyKey != "" && key != r.IdempotencyKey:
		return rest.Invalid("header.Idempotency-Key",
			errors.New("differs from idempotency_key in the body: give one of them"))
	case key != "":
		r.IdempotencyKey = key
	}
	return nil
}

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
