package access

import (
	"mainstay.dev/sdk/api"
)

// need is what a route asks of a caller in principle.
type need string

const (
	needNothing need = "open"
	needRole    need = "role"
	needJoin    need = "join"
	needSession need = "session"
)

// Policy is what a route needs. The zero value is "nobody has thought about it": nobody is let in while security is on,
// and a test fails.
type Policy struct {
	need    need
	role    api.AccessRole
	tenants bool
}

// The policies. View, Operate and Administer exclude identities of one tenant, unless Scoped says that the route's
// handler limits itself to what belongs to the tenant.
var (
	// Open is for what reveals nothing about the installation: probes, and the page's own files.
	Open = Policy{need: needNothing}
	// View is for looking, Operate for acting on tasks and agents, Administer for clusters, tokens and settings.
	View       = Policy{need: needRole, role: api.RoleViewer}
	Operate    = Policy{need: needRole, role: api.RoleOperator}
	Administer = Policy{need: needRole, role: api.RoleAdmin}
	// Join is for registering an agent; the handler asks MayJoin.
	Join = Policy{need: needJoin}
	// Session is for an agent's requests after that; the handler checks the sealed session token.
	Session = Policy{need: needSession}
)

// Scoped admits identities of one tenant too. The handler must ask the request's identity (From) whether it Sees what
// it shows or touches, and answer as if there were nothing where it does not.
func (p Policy) Scoped() Policy {
	p.tenants = true
	return p
}

// Declared reports whether the policy says anything.
func (p Policy) Declared() bool { return p.need != "" }

// IsOpen reports whether everybody is let in.
func (p Policy) IsOpen() bool { return p.need == needNothing }

// IsJoin reports whether the policy is that of registering an agent.
func (p Policy) IsJoin() bool { return p.need == needJoin }

// IsSession reports whether the policy is that of a registered agent's requests.
func (p Policy) IsSession() bool { return p.need == needSession }

// Role is the least role that is let in; empty for policies that ask for none.
func (p Policy) Role() api.AccessRole { return p.role }

// IsScoped reports whether identities of one tenant are let in.
func (p Policy) IsScoped() bool { return p.tenants }

// Decision is what a policy says about an identity.
type Decision int

// The decisions.
const (
	Allowed      Decision = iota
	NotKnown              // prove who you are
	RoleTooLow            // known, and may not do this
	OneTenant             // the route serves everybody's data, and the identity is of one tenant
	NotForTokens          // only agents may, with a join token
	Undeclared            // the route has no policy
)

// Decide says whether the policy lets an identity in.
func (p Policy) Decide(id *Identity) Decision {
	switch p.need {
	case needNothing, needSession:
		return Allowed
	case needJoin:
		switch {
		case !id.Known():
			return NotKnown
		case !id.Joins:
			return NotForTokens
		}
		return Allowed
	case needRole:
		switch {
		case !id.Known():
			return NotKnown
		case !id.Role.Includes(p.role):
			return RoleTooLow
		case id.Tenant != "" && !p.tenants:
			return OneTenant
		}
		return Allowed
	}
	if id.Kind == api.IdentityLocal {
		return Allowed
	}
	return Undeclared
}
