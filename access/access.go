package access

// Role is what an identity may do in general. Each includes the one before.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // looks
	Operator Role = "operator" // acts on tasks, agents, drains, schedules, failovers
	Admin    Role = "admin"    // also makes and changes clusters, tokens and settings
)

// Roles are all roles, the least first.
var Roles = []Role{Viewer, Operator, Admin}

// Includes reports whether r may do what other may.
func (r Role) Includes(other Role) bool { return r.Rank() > 0 && r.Rank() >= other.Rank() }

func (r Role) Rank() int {
	for i, role := range Roles {
		if r == role {
			return i + 1
		}
	}
	return 0
}

// Kind is how an identity proved itself.
type Kind string

// The kinds. The zero Identity is nobody.
const (
	KindLocal       Kind = "local"       // security is off: everybody may do everything
	KindToken       Kind = "token"       // an API token, or a browser's session that was opened with one
	KindJoin        Kind = "join"        // a token with which agents register
	KindCertificate Kind = "certificate" // a client certificate that the configuration gives a role
)

// TokenKind is what a token is for.
type TokenKind string

// The kinds of tokens.
const (
	APIToken  TokenKind = "api"  // a client of the API
	JoinToken TokenKind = "join" // agents that register
)
