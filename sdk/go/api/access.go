package api

// AccessRole is what an identity may do in general. Each includes the one before.
type AccessRole string

// The roles.
const (
	RoleViewer   AccessRole = "viewer"   // looks
	RoleOperator AccessRole = "operator" // acts on tasks, agents, drains, schedules, failovers
	RoleAdmin    AccessRole = "admin"    // also makes and changes clusters, tokens and settings
)

// AccessRoles are all roles, the least first.
var AccessRoles = []AccessRole{RoleViewer, RoleOperator, RoleAdmin}

// Includes reports whether r may do what other may.
func (r AccessRole) Includes(other AccessRole) bool { return r.Rank() > 0 && r.Rank() >= other.Rank() }

// Rank counts the role among all roles, the least is 1; 0: it is none of them.
func (r AccessRole) Rank() int {
	for i, role := range AccessRoles {
		if r == role {
			return i + 1
		}
	}
	return 0
}

// IdentityKind is how an identity proved itself.
type IdentityKind string

// The kinds. The zero Identity is nobody.
const (
	IdentityLocal       IdentityKind = "local"       // security is off: everybody may do everything
	IdentityToken       IdentityKind = "token"       // an API token, or a browser's session that was opened with one
	IdentityJoin        IdentityKind = "join"        // a token with which agents register
	IdentityCertificate IdentityKind = "certificate" // a client certificate that the configuration gives a role
)

// TokenKind is what a token is for.
type TokenKind string

// The kinds of tokens.
const (
	TokenAPI  TokenKind = "api"  // a client of the API
	TokenJoin TokenKind = "join" // agents that register
)
