package agent

import (
	"slices"
	"strings"
)

// secretVariables are Mainstay's own secrets. A command that somebody submitted does not inherit them; what it can do
// as this user beyond that, nothing here can prevent.
var secretVariables = []string{"MAINSTAY_JOIN_TOKEN", "MAINSTAY_TOKEN", "MAINSTAY_ADMIN_TOKEN", "MAINSTAY_TOKEN_KEY"}

// WithoutSecrets leaves Mainstay's own secrets out of an environment, for handlers that start processes.
func WithoutSecrets(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(secretVariables, name)
	})
}
