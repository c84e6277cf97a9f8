package task

import (
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// ErrorTool is the type of the failure of a call whose tool reported an error.
const ErrorTool = "tool_error"

// PreferOpen names as provider of a task that calls a server of tools that server, unless it has another.
func PreferOpen(s *api.TaskSpec) {
	i := slices.IndexFunc(s.RequiredCapabilities, func(c string) bool { return strings.HasPrefix(c, api.ToolPrefix) })
	if i >= 0 && s.Provider == "" {
		s.Provider = s.RequiredCapabilities[i]
	}
}

// CapabilitiesOf are the capabilities that the task's agent must have; with routes, for the first of them.
func CapabilitiesOf(s *api.TaskSpec) []string {
	if len(s.Routes) > 0 {
		return s.ForRoute(s.Routes[0]).RequiredCapabilities
	}
	return s.RequiredCapabilities
}
