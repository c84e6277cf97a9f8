package client

import (
	"context"
	"time"

	"mainstay.dev/sdk/api"
)

// ServiceQuery selects instances of a service; all that is set must hold. Without Any, only those that pass are found.
type ServiceQuery struct {
	Any       bool
	Tag, Zone string
	Role      api.InstanceRole
	// Index, with Wait, holds the answer until the instances differ from those of an earlier answer, at most a minute.
	Index string
	Wait  time.Duration
}

// List lists the services that have an instance.
func (s Services) List(ctx context.Context) ([]api.Service, error) {
	answer, err := get[struct{ Services []api.Service }](ctx, s.c, path("services"), nil)
	if err != nil {
		return nil, err
	}
	return answer.Services, nil
}

// Get finds the instances of a service.
func (s Services) Get(ctx context.Context, name string, q ServiceQuery) (*api.ServiceInstances, error) {
	health := ""
	if q.Any {
		health = "any"
	}
	return get[api.ServiceInstances](ctx, s.c, path("services", name), values("health", health, "tag", q.Tag,
		"zone", q.Zone, "role", q.Role, "index", q.Index, "wait", min(q.Wait, maxHold)))
}
