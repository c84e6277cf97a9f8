package agent

import (
	"slices"
	"strings"
)

// secretVariables are Mainstay's own secrets, which submitted commands do not inherit. Nothing here limits what else a
// command can do as this user.
var secretVariables = []string{"MAINSTAY_JOIN_TOKEN", "MAINSTAY_TOKEN", "MAINSTAY_ADMIN_TOKEN", "MAINSTAY_TOKEN_KEY"}

// WithoutSecrets leaves Mainstay's own secrets out of an environment, for handlers that start processes.
func WithoutSecrets(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(secretVariables, name)
	})
}
