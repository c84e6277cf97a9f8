package api

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxRoutes bounds the routes of a task.
const MaxRoutes = 8

// Route is a provider and one of its models.
type Route struct {
	Provider string `json:"provider" maxLength:"63" pattern:"^[a-z0-9][a-z0-9._-]*$" doc:"The provider, as agents name it."`
	Model    string `json:"model" minLength:"1" maxLength:"128" doc:"The model, as the provider names it."`
	Window   int    `json:"window,omitempty" minimum:"1" doc:"How many tokens a conversation may have. After one that was too long, only routes with a larger window are used."`
}

// ModelCapability is the capability of agents that can call a provider of models.
func ModelCapability(provider string) string { return "model." + provider }

// ModelTask is the type of tasks that call models.
const ModelTask = "model"

// ToolTask is the type of tasks that call a tool.
const ToolTask = "mcp-tool"

// ToolPrefix begins what ToolCapability returns.
const ToolPrefix = "mcp."

// ToolCapability is the capability of agents that can call a server of tools. While an agent has a session with the
// server open, it has access to a provider of this name too, so that it is preferred.
func ToolCapability(server string) string { return ToolPrefix + server }

// ForRoute is the task as it is for an attempt that takes one of its routes.
func (s TaskSpec) ForRoute(r Route) TaskSpec {
	s.RequiredCapabilities = append(slices.Clone(s.RequiredCapabilities), ModelCapability(r.Provider))
	s.Provider, s.Routes = r.Provider, nil
	return s
}

func validateRoutes(routes []Route) error {
	if len(routes) > MaxRoutes {
		return fmt.Errorf("a task may have at most %d routes", MaxRoutes)
	}
	for _, r := range routes {
		if err := cmp.Or(ValidateID("routes: provider", r.Provider),
			ValidateID("routes: the capability of provider", ModelCapability(r.Provider))); err != nil {
			return err
		}
		if r.Model == "" || len(r.Model) > 128 || r.Window < 0 {
			return fmt.Errorf("routes: model must have 1 to 128 characters, and window be no less than 0")
		}
	}
	return nil
}
