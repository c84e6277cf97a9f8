package fleet

import "strings"

// Ids of tasks and names of schedules belong to a tenant: in full, task x of tenant acme is "acme:x", and task x
// without a tenant is "x". An id that Mainstay makes of a name or key has an "@", such as "nightly@20261121t030000z". A
// slug has neither character, so tenants' ids never collide, and no client can take an id that is made.

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

// IsTaskID reports whether a task can have this full id: one that a client chose, or one that was made.
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

// isTenant reports whether it is the name of a tenant, or empty.
func isTenant(tenant string) bool { return tenant == "" || ValidateID("tenant", tenant) == nil }
