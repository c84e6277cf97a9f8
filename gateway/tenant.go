package gateway

import (
	"context"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// ownTenant is the tenant of what a request makes or lists: the one that it names, or the only one that its identity may
// touch. Naming another is refused, not answered with nothing: it is a mistake that should be seen.
func ownTenant(ctx context.Context, named string) (string, error) {
	id := access.From(ctx)
	switch {
	case id.Tenant == "" && id.Known(), named == id.Tenant && id.Known():
		return named, nil
	case named == "" && id.Known():
		return id.Tenant, nil
	}
	return "", httpapi.Problem(protocol.CodeForbidden, "your token is of one tenant: leave tenant out, or name that one")
}

// sees reports whether the request may see and touch what is of a tenant.
func sees(ctx context.Context, tenant string) bool {
	id := access.From(ctx)
	return id.Sees(tenant)
}

// limited reports whether the request is of one tenant.
func limited(ctx context.Context) bool { return access.From(ctx).Tenant != "" }
