package api

import (
	"time"

	"mainstay.dev/mainstay/access"
)

// Session says who asks.
type Session struct {
	Security  bool        `json:"security" doc:"false: security is off, and everybody may do everything."`
	Kind      access.Kind `json:"kind" enum:"local,token,certificate"`
	Name      string      `json:"name,omitempty"`
	Role      access.Role `json:"role" enum:"viewer,operator,admin"`
	Tenant    string      `json:"tenant,omitempty" doc:"The only one whose tasks are shown. Absent: all."`
	ExpiresAt *time.Time  `json:"expires_at,omitempty" doc:"When a browser must sign in again."`
}
