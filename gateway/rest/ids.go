package rest

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// OwnTenant is the tenant for what a request makes or lists: the one that it names, or the only one that its identity
// may touch. Naming another is refused rather than answered with an empty list, so that the mistake shows.
func OwnTenant[S ~string](ctx context.Context, named S) (S, error) {
	id := access.From(ctx)
	switch {
	case id.Tenant == "" && id.Known(), string(named) == id.Tenant && id.Known():
		return named, nil
	case named == "" && id.Known():
		return S(id.Tenant), nil
	}
	return "", httpapi.Problem(protocol.CodeForbidden,
		"your token is of one tenant: leave tenant out, or name that one")
}

// OwnID is the full form of a task's id or a schedule's name in a request. An identity of one tenant may leave its
// tenant out. ok is false for what belongs to another tenant; the answer is the same as for what does not exist.
func OwnID(ctx context.Context, id string) (full string, ok bool) {
	own := access.From(ctx).Tenant
	tenant, name := api.CutTenant(id)
	switch {
	case own == "", tenant == own:
		return id, true
	case tenant == "":
		return api.Qualify(own, name), true
	}
	return "", false
}

// own is OwnID of a thing that should exist. unknown is the code if it does not; is recognises ids of its kind.
func own(ctx context.Context, id, unknown string, is func(full string) bool) (string, error) {
	if full, ok := OwnID(ctx, id); ok && is(full) {
		return full, nil
	}
	return "", Unknown(unknown)
}

// NewID is the full id of a task or an array that a request submits: the one that it names, one made of its key, or a
// fresh one.
func NewID(named, tenant, cluster, key string, fresh func() string) (string, error) {
	switch {
	case named != "" && key != "":
		return "", errors.New("give id or idempotency_key, not both")
	case named != "":
		of, name := api.CutTenant(named)
		if of != "" && of != tenant {
			return "", errors.New("names another tenant than the field tenant")
		}
		return api.Qualify(tenant, name), api.ValidateTaskID(name)
	case key != "":
		return contract.KeyedTaskID(tenant, cluster, key), nil
	}
	return api.Qualify(tenant, fresh()), nil
}

// OwnTask is OwnID of a task that should be there.
func OwnTask(ctx context.Context, id string) (string, error) {
	return own(ctx, id, protocol.CodeUnknownTask, func(full string) bool {
		owner, _, _ := strings.Cut(full, array.Mark)
		run, _, _, step := job.CutTaskID(owner)
		name, agent, instance := job.CutInstanceID(full)
		return api.IsTaskID(owner) || step && api.IsTaskID(run) ||
			instance && api.IsTaskID(name) && api.ValidateID("instance", agent) == nil
	})
}

// OwnJob is OwnID of a job that should be there.
func OwnJob(ctx context.Context, name string) (string, error) {
	return own(ctx, name, protocol.CodeUnknownJob, api.IsScheduleName)
}

// OwnRun is OwnID of a run that should be there.
func OwnRun(ctx context.Context, id string) (string, error) {
	return own(ctx, id, protocol.CodeUnknownRun, api.IsTaskID)
}

// OwnArray is OwnID of an array that should be there.
func OwnArray(ctx context.Context, id string) (string, error) {
	return own(ctx, id, protocol.CodeUnknownArray, func(full string) bool {
		run, _, element, step := job.CutTaskID(full)
		return api.IsTaskID(full) || step && element < 0 && api.IsTaskID(run)
	})
}

// Actor is who makes a request, for the record of a decision.
func Actor(ctx context.Context) string {
	id := access.From(ctx)
	return cmp.Or(id.Name, id.ID)
}

// OwnSchedule is OwnID of a schedule that should be there.
func OwnSchedule(ctx context.Context, name string) (string, error) {
	return own(ctx, name, protocol.CodeUnknownSchedule, api.IsScheduleName)
}

// Sees reports whether the request may see and change what belongs to a tenant.
func Sees(ctx context.Context, tenant string) bool {
	id := access.From(ctx)
	return id.Sees(tenant)
}

// Who is who makes the request, in words that stay in histories: the name and id of its token or certificate. It is
// empty while security is off.
func Who(ctx context.Context) string {
	id := access.From(ctx)
	switch {
	case id.Kind == api.IdentityLocal:
		return ""
	case id.Name == "" || id.Name == id.ID:
		return id.ID
	}
	return id.Name + " (" + id.ID + ")"
}

// Limited reports whether the request is of one tenant.
func Limited(ctx context.Context) bool { return access.From(ctx).Tenant != "" }
