package guard

import (
	"context"
	"net/http"
	"strings"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
)

// checkSession refuses a request of an agent whose session token is not good or is another agent's. Whether the session
// still counts, the hub says afterwards.
func checkSession(sessions func(token string) (agent string, good bool), r *http.Request, agent string) error {
	headers := r.Header.Values("Authorization")
	if len(headers) == 1 && sessions != nil {
		if token, bearer := strings.CutPrefix(headers[0], "Bearer "); bearer {
			if of, good := sessions(strings.TrimSpace(token)); good && of == agent {
				return nil
			}
		}
	}
	return httpapi.Problem(protocol.CodeUnauthorized,
		"the session token is missing, forged or another agent's: register, and send its session_token as Authorization: Bearer")
}

// Unlocked is the gate while security is off: everybody may do everything, but agents still prove that a session is
// theirs before a body of theirs is read.
type Unlocked struct {
	// Sessions is as in Options.
	Sessions func(token string) (agent string, good bool)
}

// Admit implements httpapi.Gate.
func (u Unlocked) Admit(
	r *http.Request, route httpapi.Route, params map[string]string,
) (context.Context, func(int), error) {
	ctx := r.Context()
	if route.Policy.IsSession() {
		if err := checkSession(u.Sessions, r, params["id"]); err != nil {
			return ctx, nil, err
		}
	}
	return access.With(ctx, access.Local), nil, nil
}
